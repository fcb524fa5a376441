//! The channel as what stubs call, and as the innermost service of a stack of layers.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::{BoxFuture, Either, ready};
use rpc_core::client::attempts::Attempts;
use rpc_core::client::{Call, ClientCall, ClientReply};
use tower::Service;

use super::{Channel, Servers};
use crate::{Caller, Status};

impl Caller for Channel {
    // One future or the other, and none around them: a wrapper would move each call once more.
    fn call(&self, mut call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        if let Err(status) = self.credentials.apply(call.method(), call.metadata_mut()) {
            return Either::Right(Either::Right(Either::Right(ready(Err(status)))));
        }
        match (&self.attempts, &self.servers) {
            (None, Servers::One(channel)) => Either::Left(channel.call(call)),
            // In memory of their own, so that calls to one server do not carry their size.
            (None, Servers::Many(endpoints)) => {
                Either::Right(Either::Left(Box::pin(endpoints.call(call))))
            }
            (Some(attempts), servers) => Either::Right(Either::Right(Either::Left(Box::pin(
                servers.attempt(attempts, call),
            )))),
        }
    }
}

impl Servers {
    /// Makes a call as the service config says.
    async fn attempt(&self, attempts: &Attempts, call: Call<'_>) -> Result<ClientReply, Status> {
        let defaults = self.defaults();
        match self {
            Self::One(channel) => attempts.call(channel, defaults, call).await,
            Self::Many(endpoints) => attempts.call(endpoints, defaults, call).await,
        }
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
    /// When the channel cannot connect any more, in this process and with this configuration.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        match &mut self.servers {
            Servers::One(channel) => Service::poll_ready(channel, cx),
            Servers::Many(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, mut call: ClientCall) -> Self::Future {
        if let Err(status) = self.credentials.apply(call.method(), call.metadata_mut()) {
            return ready(Err(status)).boxed();
        }
        match (&self.attempts, &mut self.servers) {
            (None, Servers::One(channel)) => Service::call(channel, call),
            (None, Servers::Many(endpoints)) => endpoints.clone().call_owned(call).boxed(),
            (Some(attempts), servers) => {
                let (attempts, servers) = (Arc::clone(attempts), servers.clone());
                async move { servers.attempt(&attempts, call.into_call()).await }.boxed()
            }
        }
    }
}
