//! A channel as the innermost service of a client's layers.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tonic::{Extensions, Status};
use tower::Service;

use super::call::{CallBody, Upload};
use super::reply::ReplyBody;
use super::{ClientCall, ClientReply};
use crate::client::channel::{open_reply, within};
use crate::client::download::begin;
use crate::client::{Channel, Outgoing};
use crate::{CallKind, NotExecuted, Trailers};

impl Service<ClientCall> for Channel {
    type Response = ClientReply;
    type Error = Status;
    type Future = BoxFuture<'static, Result<ClientReply, Status>>;

    /// A channel is always ready: a call waits for the server's limit by itself.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ClientCall) -> Self::Future {
        let channel = self.clone();
        Box::pin(async move { channel.make(call).await })
    }
}

impl Channel {
    async fn make(&self, call: ClientCall) -> Result<ClientReply, Status> {
        let method = call.method();
        let (mut request, body) = call.into_parts();
        let deadline = self.deadline(&mut request);
        let (message, stream) = match body {
            CallBody::Message(message) => (Some(message), None),
            CallBody::Stream(stream) => (None, Some(stream)),
        };
        let (metadata, message) = (request.metadata(), message.as_deref());
        let outgoing = Outgoing { method, metadata, deadline, message };
        let is_repeatable = stream.is_none();
        within(deadline, async {
            match self.answer(outgoing, stream).await {
                Err(status) if is_repeatable && NotExecuted::invites_another_start(&status) => {
                    self.answer(outgoing, None).await
                }
                other => other,
            }
        })
        .await
    }

    /// Starts the call and waits for its first answer.
    async fn answer(
        &self,
        outgoing: Outgoing<'_>,
        stream: Option<Box<dyn Upload>>,
    ) -> Result<ClientReply, Status> {
        let started = self.start(outgoing).await?;
        let upload = stream.and_then(|stream| stream.start(&started));
        if matches!(outgoing.method.kind, CallKind::Unary | CallKind::ClientStreaming) {
            let (metadata, Trailers(trailers), message) = open_reply(started.reply().await?)?;
            drop(upload);
            let mut extensions = Extensions::new();
            if !trailers.is_empty() {
                extensions.insert(Trailers(trailers));
            }
            return Ok(ClientReply { metadata, extensions, body: ReplyBody::Message(message) });
        }
        let (metadata, stream) = begin(started, upload, outgoing.deadline, self.clone()).await?;
        let body = ReplyBody::Stream(stream);
        Ok(ClientReply { metadata, extensions: Extensions::new(), body })
    }
}
