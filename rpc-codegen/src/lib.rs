//! Compiles `.proto` files in a build script: messages by prost, traits, servers and clients by
//! tonic, and beside them farcall's services and stubs.
//!
//! It takes the place of `tonic-prost-build` with the same builder. The server trait stays tonic's
//! own, so one `impl Greeter for MyGreeter` is served by farcall over every transport and by
//! tonic's `Server`. No protoc is needed by default.
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
//!         // Zero copy: `bytes` fields are `Bytes`, which share the transport's memory.
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
//! machine's protoc instead: the program that the environment variable `PROTOC` names, or `protoc`
//! in `PATH`. It spares a build the dozen crates of protox:
//!
//! ```toml
//! [build-dependencies]
//! rpc-codegen = { version = "0.1", default-features = false, features = ["protoc"] }
//! ```
//!
//! Cargo unifies the features of all build scripts that are built together. With both features
//! protoc runs, since one crate asked for it and the other feature may come from a default. Without
//! either, [`compile_fds`] generates code from descriptors that something else has parsed.
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
//! A `bytes` field is a `Vec<u8>`, which is copied between message and transport, unless
//! [`Builder::bytes`] makes it `Bytes`. A `Bytes` of at least 64 KiB in a request or response may
//! travel from where it lies, when its message is generated in the same run;
//! [`Builder::service_generator`] and messages from an [`extern_path`](Builder::extern_path) know
//! nothing of fields, and theirs are copied.
//!
//! # Messages that hold themselves
//!
//! Receivers decode 100 messages within each other, and encoding recurses. So the generated module
//! counts the levels of a request or response whose type can hold itself. Messages from an
//! [`extern_path`](Builder::extern_path) are not counted: only their own crate knows their fields.
//!
//! # Names
//!
//! prost's and tonic's rules hold: a method `Type` is `r#type`. Names with which tonic's modules
//! would not compile give way: a method that meets a function of tonic's client (`New`, `Connect`,
//! ...) gets an underscore there, and `New` in our stub too; a service named like something that
//! tonic's server module uses (`Option`, `Body`, ...) has its trait named `OptionRpc` in
//! `option_rpc_server`. On the wire nothing changes.

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

/// Starts with the default settings.
#[must_use]
pub fn configure() -> Builder {
    Builder::new()
}

/// Compiles one `.proto` file, whose directory is where its imports are looked for.
///
/// # Errors
///
/// When the file does not parse or is missing, or when the output cannot be written.
pub fn compile_protos(proto: impl AsRef<Path>) -> Result<(), CodegenError> {
    let proto = proto.as_ref();
    let dir = proto.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    configure().compile_protos(&[proto], &[dir])
}

/// Generates code from descriptors that something else has parsed.
///
/// # Errors
///
/// When the set contradicts itself, or when the output cannot be written.
pub fn compile_fds(fds: FileDescriptorSet) -> Result<(), CodegenError> {
    configure().compile_fds(fds)
}
