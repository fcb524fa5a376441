//! Calls as layers see them, and interceptors.

pub use rpc_core::client::{ClientCall, ClientReply, Intercepted, LayeredChannel};
