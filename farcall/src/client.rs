//! Calls: the functions that make them, how layers see them, and interceptors.

pub use rpc_core::client::{
    Call, ClientCall, ClientReply, DynCaller, Intercepted, LayeredChannel, Path, PathCounts,
    client_streaming, mock, server_streaming, streaming, unary,
};
