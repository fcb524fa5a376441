//! The farcall runtime: wire format, call protocol, transport trait, client and server.
//!
//! Three rings. [`wire`] and [`calls`] are pure: values in, values out, no socket, no clock, no
//! task. [`transport`] is the seam: it moves opaque frames of any size with memory from the
//! transport's own pool. [`client`], [`server`] and [`connect`] are the async drivers that join
//! the two. No transport is named here, save the in-process one, which is nothing but a queue.
#![doc(html_root_url = "https://docs.rs/farcall-core/latest")]
#![forbid(unsafe_code)]

mod buffer;
pub mod byte_budget;
mod call_log;
pub mod calls;
#[cfg(test)]
mod captured_log;
pub mod client;
pub mod codegen;
pub mod connect;
mod deadline;
mod descriptor;
mod detach;
mod dyn_message;
mod encode;
mod frames;
pub mod handoff;
mod inherited;
pub mod inproc;
pub mod layer;
mod limits;
mod liveness;
pub mod log_limit;
mod long_wait;
mod may_have_executed;
pub mod memory;
mod message_limits;
mod not_executed;
pub mod peer_key;
pub mod pool;
pub mod quota;
mod refusal;
pub mod server;
pub mod settings;
mod shared_limit;
mod stream;
mod trailers;
pub mod transport;
pub mod wire;

pub use buffer::{Buffer, BufferMemory, BufferSource, buffer, offer_source};
pub use calls::breaker::Backoff;
pub use calls::keepalive::Keepalive;
pub use calls::reconnect::ConnectBackoff;
pub use calls::replays::ReplayLimits;
pub use client::{Caller, Channel, Readiness};
pub use deadline::Deadline;
pub use descriptor::{CallKind, Idempotency, MethodDescriptor, ServiceDescriptor};
pub use detach::Detach;
pub use limits::Limits;
pub use may_have_executed::MayHaveExecuted;
pub use not_executed::NotExecuted;
pub use server::{Server, Service};
pub use settings::InvalidSetting;
pub use trailers::Trailers;

pub use tonic::{Code, Extensions, Request, Response, Status, Streaming, async_trait, metadata};
