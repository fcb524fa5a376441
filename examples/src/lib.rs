//! An in-memory server of etcd's key-value service, written once against tonic's trait.
//!
//! [`Kv`] implements `etcdserverpb.KV` over a [`Store`]; `kv-server` serves it over any address
//! that farcall knows, and `kv-client` calls it. It is no etcd: nothing is kept on disk,
//! replicated, watched or leased. The crate in `demo` runs both over every transport.
#![forbid(unsafe_code)]

mod key_range;
mod kv;
mod range_options;
mod store;

/// Code generated from `proto/hello.proto`.
#[allow(missing_docs, clippy::all, reason = "messages have the comments of their .proto file")]
pub mod hello {
    farcall::include_proto!("hello");
}

/// Code generated from `proto/talk.proto`, which has a method of each kind.
#[allow(missing_docs, clippy::all, reason = "messages have the comments of their .proto file")]
pub mod talk {
    farcall::include_proto!("talk");
}

/// Code generated from etcd's `.proto` files.
#[allow(
    missing_docs,
    rustdoc::all,
    clippy::all,
    reason = "generated from comments and names that are not ours"
)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
}

pub use key_range::{KeyRange, prefix_end};
pub use kv::Kv;
pub use store::{Change, Found, Store};

/// The longest message that server and clients accept: a value of 64 MiB, and what belongs to it.
pub const MESSAGE_LEN_MAX: u64 = 80 << 20;

/// Prints farcall's log lines: warnings, or what `RUST_LOG` asks for.
#[cfg(feature = "programs")]
pub fn log_to_stderr() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    // A full disk must not end the program.
    let subscriber = tracing_subscriber::fmt().log_internal_errors(false);
    subscriber.with_env_filter(filter).with_writer(std::io::stderr).init();
}
