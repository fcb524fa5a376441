//! A channel as the innermost service of a client's layers.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tonic::Status;
use tower::Service;

use crate::client::{Caller, Channel, ClientCall, ClientReply};
use crate::layer::record_transport;

/// A channel among others, of which tower chooses one for each call. [`LayeredChannel`] has an
/// example.
///
/// [`LayeredChannel`]: crate::client::LayeredChannel
impl Service<ClientCall> for Channel {
    type Response = ClientReply;
    type Error = Status;
    type Future = BoxFuture<'static, Result<ClientReply, Status>>;

    /// Ready while there is a connection; a call waits for the server's limit by itself. A channel
    /// to many servers chooses by itself, and is always ready.
    ///
    /// Without a connection it is pending, and connects: at once the first time and after a
    /// connection that was of use, else when the backoff is over, as often as it takes. It wakes
    /// the task when there is a connection. So a balancer sends no call to a server that is not
    /// there, and needs none to find out that it has come back. A call that is made all the same
    /// does as its [`crate::Readiness`] says. Under [`Channel::layer`] the channel is always ready.
    ///
    /// # Errors
    ///
    /// When the channel cannot connect any more, in this process and with this configuration.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.poll_connected(cx)
    }

    fn call(&mut self, call: ClientCall) -> Self::Future {
        let channel = self.clone();
        Box::pin(async move {
            let reply = Caller::call(&channel, call.into_call()).await;
            record_transport(channel.transport());
            reply
        })
    }
}
