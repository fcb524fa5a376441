//! Calls as layers see them, and interceptors.

pub use rpc_core::client::{
    ClientCall, ClientReply, DynCaller, Intercepted, LayeredChannel, Path, PathCounts, mock,
};
