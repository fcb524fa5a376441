//! A channel as the innermost service of a client's layers.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Extensions, Status};
use tower::Service;

use super::call::CallBody;
use super::reply::ReplyBody;
use super::{ClientCall, ClientReply};
use crate::client::begun::Begun;
use crate::client::call_deadline::within;
use crate::client::download::begin;
use crate::client::reply::open_reply;
use crate::client::{Channel, Outgoing, Started};
use crate::{CallKind, Trailers};

/// A channel among others, of which tower chooses one for each call. [`LayeredChannel`] has an
/// example.
///
/// [`LayeredChannel`]: crate::client::LayeredChannel
impl Service<ClientCall> for Channel {
    type Response = ClientReply;
    type Error = Status;
    type Future = BoxFuture<'static, Result<ClientReply, Status>>;

    /// Ready while there is a connection; a call waits for the server's limit by itself.
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
        Box::pin(async move { channel.make(call).await })
    }
}

impl Channel {
    async fn make(&self, call: ClientCall) -> Result<ClientReply, Status> {
        let method = call.method();
        let (mut request, body, of_layers) = call.into_parts();
        let begun = Begun::under_layers(&self.defaults, method, &mut request, of_layers);
        let (deadline, readiness) = (begun.deadline(), self.readiness(&request));
        let limits = begun.limits();
        let (message, stream) = match body {
            CallBody::Message(message) => (Some(message), None),
            CallBody::Stream(stream) => (None, Some(stream)),
        };
        let (metadata, message) = (request.metadata(), message.as_deref());
        let outgoing = Outgoing { method, metadata, deadline, readiness, limits, message };
        let reply = within(deadline, async {
            if let Some(stream) = stream {
                let started = self.start(outgoing).await?;
                let upload = stream.start(&started, outgoing);
                return self.answer(outgoing, started, upload, begun).await;
            }
            let mut attempts = self.attempts(method);
            loop {
                let started =
                    self.start(outgoing).await.map_err(|status| attempts.final_status(status))?;
                match self.answer(outgoing, started, None, begun).await {
                    Err(status) => attempts.retry_after(status)?,
                    reply => return reply,
                }
            }
        });
        begun.finish(&self.manager, reply.await)
    }

    /// Waits for the first answer to a call.
    async fn answer(
        &self,
        outgoing: Outgoing<'_>,
        started: Started,
        upload: Option<AbortOnDropHandle<()>>,
        begun: Begun,
    ) -> Result<ClientReply, Status> {
        if matches!(outgoing.method.kind, CallKind::Unary | CallKind::ClientStreaming) {
            let (metadata, Trailers(trailers), message) = open_reply(started.reply().await?)?;
            outgoing.limits.of_responses().check(message.len())?;
            drop(upload);
            let mut extensions = Extensions::new();
            if !trailers.is_empty() {
                extensions.insert(Trailers(trailers));
            }
            return Ok(ClientReply { metadata, extensions, body: ReplyBody::Message(message) });
        }
        let (metadata, stream) = begin(started, upload, begun.within(&self.manager)).await?;
        let body = ReplyBody::Stream(Box::new(stream));
        Ok(ClientReply { metadata, extensions: Extensions::new(), body })
    }
}
