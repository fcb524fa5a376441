//! The service that the suite calls, written against tonic's trait and generated from
//! `proto/suite.proto`. It is a package of its own, so that the program that counts instructions
//! is built without the rest of the suite.
#![forbid(unsafe_code)]

mod answers;
pub mod entries;
pub mod relay;
mod service;
pub mod small_calls;
pub mod streams;
pub mod watch;

/// Messages, tonic's modules and farcall's, from `proto/suite.proto`.
#[allow(missing_docs, reason = "generated")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/farcall.suite.rs"));
}

/// The `FileDescriptorSet` of `proto/suite.proto`.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/suite.bin"));

pub use service::Probe;
