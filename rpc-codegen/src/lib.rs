//! Compiles `.proto` files in a build script: messages with prost, traits, servers and clients with
//! tonic, and farcall's services and stubs next to them.
//!
//! It replaces `tonic-prost-build` with the same builder. The server trait stays tonic's own, so
//! farcall serves one `impl Greeter for MyGreeter` over every transport, and so does tonic's
//! `Server`. By default no protoc is needed.
//!
//! ```toml
//! [dependencies]
//! farcall = "0.1"
//! prost = "0.14"
//! # tonic's generated modules name both.
//! tonic = { version = "0.14", default-features = false, features = ["codegen"] }
//! tonic-prost = "0.14"
//!
//! [build-dependencies]
//! rpc-codegen = "0.1"
//! ```
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), rpc_codegen::CodegenError> {
//!     rpc_codegen::configure()
//!         // Zero copy: `bytes` fields become `Bytes`, which share the transport's memory.
//!         .bytes(".")
//!         .compile_protos(&["proto/helloworld.proto"], &["proto"])
//! }
//! ```
//!
//! ```ignore
//! // main.rs
//! mod helloworld {
//!     include!(concat!(env!("OUT_DIR"), "/helloworld.rs"));
//! }
//! use helloworld::greeter_rpc::{GreeterService, GreeterStub};
//! ```
//!
//! # Parsers
//!
//! The feature `protox`, a default, parses `.proto` files in Rust. The feature `protoc` runs the
//! machine's protoc instead: the program in the environment variable `PROTOC`, or `protoc` in
//! `PATH`. It saves a build the dozen crates of protox:
//!
//! ```toml
//! [build-dependencies]
//! rpc-codegen = { version = "0.1", default-features = false, features = ["protoc"] }
//! ```
//!
//! Cargo unifies the features of all build scripts that are built together. If both are on, protoc
//! runs: some crate asked for it, while the other feature may come from a default. Without either,
//! [`compile_fds`] generates code from descriptors that another tool has parsed.
//!
//! # What is generated
//!
//! For a service `pkg.Greeter`, after tonic's `greeter_client` and `greeter_server`, a module
//! `greeter_rpc` with
//! - `SERVICE`: its name and its methods' paths, kinds and idempotency;
//! - `GreeterService<T>`: serves a `T: greeter_server::Greeter` (with `build_server`);
//! - `GreeterStub<C>`: calls the methods through a channel (with `build_client`).
//!
//! # Long `bytes` fields
//!
//! A `bytes` field is a `Vec<u8>`, unless [`Builder::bytes`] makes it `Bytes`. A `Bytes` of at
//! least 64 KiB in a request or response can travel without a copy if its message is generated in
//! the same run. So can a `Vec<u8>` over TCP: it is written from where it lies, and read into the
//! vector that becomes the field, if it is the longest field of a unary message. RDMA copies it.
//! [`Builder::service_generator`] and messages from an [`extern_path`](Builder::extern_path) do not
//! know the fields, so theirs are copied.
//!
//! # Recursive messages
//!
//! Receivers decode at most 100 nested messages, and encoding is recursive. The generated module
//! therefore counts the levels of a request or response whose type can contain itself. It does not
//! count messages from an [`extern_path`](Builder::extern_path): only their own crate knows their
//! fields.
//!
//! # Names
//!
//! prost's and tonic's rules apply: a method `Type` becomes `r#type`. Names that would break
//! tonic's modules change. A method that collides with a function of tonic's client (`New`,
//! `Connect`, ...) gets an underscore there, and `New` also gets one in our stub. A service whose
//! name tonic's server module uses (`Option`, `Body`, ...) has its trait named `OptionRpc` in
//! `option_rpc_server`. Nothing changes on the wire.

#![forbid(unsafe_code)]

mod builder;
mod bytes_fields;
mod compile;
mod descriptor_set;
mod emit;
mod error;
mod foreign_config;
mod generator;
pub mod manual;
mod message_graph;
mod message_type;
mod messages;
mod mod_cfg;
mod names;
mod nesting;
mod package_dir;
mod parse;
mod prost_settings;
mod protoc_arg;
mod settings;
mod tonic_paths;

use std::path::Path;

pub use prost_build::Config;
pub use prost_types::FileDescriptorSet;

pub use self::builder::Builder;
pub use self::error::{CodegenError, ProtoLocation};
pub use self::package_dir::package_dir;

/// Returns a builder with the default settings.
#[must_use]
pub fn configure() -> Builder {
    Builder::new()
}

/// Compiles one `.proto` file. Imports are searched in its directory.
///
/// # Errors
///
/// Returns an error if the file is missing or does not parse, or if the output cannot be written.
pub fn compile_protos(proto: impl AsRef<Path>) -> Result<(), CodegenError> {
    let proto = proto.as_ref();
    let dir = proto.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    configure().compile_protos(&[proto], &[dir])
}

/// Generates code from descriptors that another tool has parsed.
///
/// # Errors
///
/// Returns an error if the set is inconsistent, or if the output cannot be written.
pub fn compile_fds(fds: FileDescriptorSet) -> Result<(), CodegenError> {
    configure().compile_fds(fds)
}
