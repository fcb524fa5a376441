//! Generated code of services that run in production elsewhere, and of the golden tests' samples.
//!
//! That it compiles, tonic's modules and ours, is the test; `tests/` looks at some descriptors and
//! makes calls. Nothing here is written by hand, and no crate depends on it.

#![forbid(unsafe_code)]

/// What generated code names: the runtime's, and in the place of farcall's addresses names inside
/// the process.
pub mod runtime {
    pub use rpc_core::codegen::*;
    pub use rpc_core::connect::ConnectError;

    use rpc_core::client::ClientConfig;
    use rpc_core::inproc::InprocConnector;

    /// A name inside the process.
    pub trait IntoAddress {
        /// The name.
        fn into_name(self) -> String;
    }

    impl IntoAddress for &str {
        fn into_name(self) -> String {
            self.to_owned()
        }
    }

    /// A channel to the server of that name.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub async fn connect(address: impl IntoAddress) -> Result<Channel, ConnectError> {
        let connector = InprocConnector::new(address.into_name(), ClientConfig::default());
        Channel::connect(connector).await
    }
}

/// Declares one module for each group of files that the build script made.
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
