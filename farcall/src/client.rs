//! Calls: the functions that make them, how layers see them, and interceptors.

pub use rpc_core::client::{
    Call, ClientCall, ClientReply, Intercepted, LayeredChannel, ReceivedMessage, client_streaming,
    server_streaming, streaming, unary, untyped,
};
