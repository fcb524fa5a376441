//! The channel as what stubs call, and as the innermost service of a stack of layers.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use rpc_core::client::{Call, ClientCall, ClientReply};
use tower::Service;

use super::Channel;
use crate::{Caller, Method, Status};

impl Caller for Channel {
    // Not `async`: the call would be moved once more.
    fn call(&self, call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        self.0.call(call)
    }

    fn described(&self, path: &str) -> Option<Method> {
        self.0.described(path)
    }
}

/// A channel among others, of which tower chooses one for each call;
/// [`LayeredChannel`](crate::client::LayeredChannel) has an example.
impl Service<ClientCall> for Channel {
    type Response = ClientReply;
    type Error = Status;
    type Future = BoxFuture<'static, Result<ClientReply, Status>>;

    /// Ready while there is a connection; a call waits for the server's limit by itself. Without a
    /// connection it is pending, makes the attempts that are due, and wakes the task when there is
    /// one. Under [`Channel::layer`] the channel is always ready, and so is one with many
    /// endpoints, which chooses by itself.
    ///
    /// # Errors
    ///
    /// Returns `UNAVAILABLE` if the channel cannot connect any more, in this process and with this configuration.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Service::poll_ready(&mut self.0, cx)
    }

    fn call(&mut self, call: ClientCall) -> Self::Future {
        Service::call(&mut self.0, call)
    }
}
