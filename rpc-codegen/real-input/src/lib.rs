//! Generated code of services that run in production elsewhere, and of the golden tests' samples.
//!
//! The test is that tonic's modules and ours compile. `tests/` checks some descriptors and makes
//! calls. Nothing here is written by hand, and no crate depends on it.

#![forbid(unsafe_code)]

/// The names that generated code uses: the runtime's, with in-process names in place of farcall's
/// addresses.
pub mod runtime {
    pub use rpc_core::codegen::*;
    pub use rpc_core::connect::ConnectError;

    use rpc_core::client::ClientConfig;
    use rpc_core::inproc::InprocConnector;

    /// A name within the process.
    pub trait IntoAddress {
        /// Returns the name.
        fn into_name(self) -> String;
    }

    impl IntoAddress for &str {
        fn into_name(self) -> String {
            self.to_owned()
        }
    }

    /// Connects a channel to the server with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such server.
    pub async fn connect(address: impl IntoAddress) -> Result<Channel, ConnectError> {
        let connector = InprocConnector::new(address.into_name(), ClientConfig::default());
        Channel::connect(connector).await
    }
}

/// Declares a module for each group of files that the build script generated.
macro_rules! generated {
    ($($(#[$doc:meta])* $group:ident)*) => {$(
        $(#[$doc])*
        #[allow(
            missing_docs,
            rustdoc::all,
            clippy::all,
            reason = "generated from comments and names that are not ours"
        )]
        pub mod $group {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($group), "/mod.rs"));
        }
    )*};
}

generated! {
    /// etcd's key-value store, watches, leases, cluster, maintenance, auth, locks, elections.
    etcd
    /// OpenTelemetry's collectors of traces, metrics, logs and profiles.
    otlp
    /// gRPC's health checks.
    health
    /// farcall's module alone, for the health service of `tonic-health`.
    tonics_health
    /// gRPC's server reflection, both versions.
    reflection
    /// gRPC's interoperability tests and benchmarks.
    interop
    /// Names that collide with everything.
    odd_names
    /// The same names with `generate_default_stubs`.
    odd_names_default_stubs
    /// The samples as they come.
    plain
    /// The samples with `Bytes` in place of `Vec<u8>`.
    shared_bytes
    /// The samples with `use_arc_self`.
    arc_self
    /// The samples with `generate_default_stubs`.
    default_stubs
    /// The samples with both.
    arc_self_default_stubs
    /// The samples without servers.
    client_only
    /// The samples as most have them: tonic's clients have no `connect`.
    without_transport
    /// The samples without clients.
    server_only
    /// The samples with `google.protobuf` compiled too.
    well_known
    /// The samples with modules that depend on features.
    conditional
    /// Messages that can nest without end.
    nest
}

/// A service that no `.proto` file describes.
#[allow(missing_docs, clippy::all, reason = "generated")]
pub mod by_hand {
    include!(concat!(env!("OUT_DIR"), "/hand.ByHand.rs"));
}
