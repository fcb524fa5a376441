//! How a channel makes calls of each kind.

use std::fmt;
use std::future::Future;

use bytes::Bytes;
use futures::Stream;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::begun::Begun;
use super::download::download;
use super::upload::upload;
use super::{CallDeadline, Caller, Channel, Outgoing, Reply};
use crate::call::message_limits::MessageLimits;
use crate::payload::encode::{Encode, Split};
use crate::wire::outcome::Outcome;
use crate::{Deadline, MethodDescriptor, Trailers};

impl Channel {
    /// Makes a call whose answer is one message.
    async fn exchange(&self, call: Outgoing<'_>) -> Result<Reply, Status> {
        let mut starts = self.starts(call.method);
        loop {
            let started = self.start(call).await.map_err(|status| starts.last(status))?;
            match started.reply().await {
                Err(status) => starts.again(status)?,
                reply => return reply,
            }
        }
    }

    /// Makes a call whose answer is a stream.
    async fn follow<Resp>(
        &self,
        begun: Begun,
        call: Outgoing<'_>,
    ) -> Result<Response<Streaming<Resp>>, Status>
    where
        Resp: Message + Default + 'static,
    {
        let mut starts = self.starts(call.method);
        loop {
            let started = self.start(call).await.map_err(|status| starts.last(status))?;
            match download(started, None, begun.within(self)).await {
                Err(status) => starts.again(status)?,
                response => return response,
            }
        }
    }
}

// Not listed at the trait, which farcall's users read: their channel is farcall's.
#[doc(hidden)]
impl Caller for Channel {
    async fn unary<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        mut request: Request<Req>,
    ) -> Result<Response<Resp>, Status>
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        let (begun, readiness) = (Begun::new(self, method, &mut request), self.readiness(&request));
        let (deadline, limits) = (begun.deadline(), begun.limits());
        let (metadata, _, message) = request.into_parts();
        let message = Split::new(message, method.detach.request);
        let (metadata, message): (_, Option<&dyn Encode>) = (&metadata, Some(&message));
        let call = Outgoing { method, metadata, deadline, readiness, limits, message };
        let reply = within(deadline, self.exchange(call)).await;
        begun.finish(self, reply.and_then(|reply| decode(reply, limits)))
    }

    async fn server_streaming<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        mut request: Request<Req>,
    ) -> Result<Response<Streaming<Resp>>, Status>
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        let (begun, readiness) = (Begun::new(self, method, &mut request), self.readiness(&request));
        let (deadline, limits) = (begun.deadline(), begun.limits());
        let (metadata, _, message) = request.into_parts();
        let message = Split::new(message, method.detach.request);
        let (metadata, message): (_, Option<&dyn Encode>) = (&metadata, Some(&message));
        let call = Outgoing { method, metadata, deadline, readiness, limits, message };
        begun.finish(self, within(deadline, self.follow(begun, call)).await)
    }

    async fn client_streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        mut request: Request<S>,
    ) -> Result<Response<Resp>, Status>
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        let (begun, readiness) = (Begun::new(self, method, &mut request), self.readiness(&request));
        let (deadline, limits) = (begun.deadline(), begun.limits());
        let (metadata, _, stream) = request.into_parts();
        let metadata = &metadata;
        let call = Outgoing { method, metadata, deadline, readiness, limits, message: None };
        let reply = async {
            let started = self.start(call).await?;
            let _upload = upload(stream, &started, call);
            started.reply().await
        };
        let reply = within(deadline, reply).await;
        begun.finish(self, reply.and_then(|reply| decode(reply, limits)))
    }

    async fn streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        mut request: Request<S>,
    ) -> Result<Response<Streaming<Resp>>, Status>
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        let (begun, readiness) = (Begun::new(self, method, &mut request), self.readiness(&request));
        let (deadline, limits) = (begun.deadline(), begun.limits());
        let (metadata, _, stream) = request.into_parts();
        let metadata = &metadata;
        let call = Outgoing { method, metadata, deadline, readiness, limits, message: None };
        let answer = async {
            let started = self.start(call).await?;
            let upload = upload(stream, &started, call);
            download(started, upload, begun.within(self)).await
        };
        begun.finish(self, within(deadline, answer).await)
    }
}

/// Runs a call until its deadline; dropping it there cancels it on the peer.
pub(super) async fn within<T>(
    limit: Option<&CallDeadline>,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match limit {
        None => call.await,
        Some(limit) => {
            let Deadline(instant) = limit.deadline();
            let ended = tokio::time::timeout_at(instant, call).await;
            ended.unwrap_or_else(|_| Err(limit.exceeded()))
        }
    }
}

pub(super) fn undecodable(what: &str, error: &dyn fmt::Display) -> Status {
    Status::internal(format!("the response's {what} does not decode: {error}"))
}

fn decode<Resp>(reply: Reply, limits: MessageLimits) -> Result<Response<Resp>, Status>
where
    Resp: Message + Default,
{
    let (metadata, trailers, message) = open_reply(reply)?;
    limits.of_responses().check(message.len())?;
    let message = Resp::decode(message).map_err(|error| undecodable("message", &error))?;
    let mut extensions = Extensions::new();
    if !trailers.0.is_empty() {
        extensions.insert(trailers);
    }
    Ok(Response::from_parts(metadata, message, extensions))
}

/// The parts of an answer that is one message: all metadata, the trailing part of it once more,
/// and the message, not decoded; or the status that came instead.
pub(super) fn open_reply(reply: Reply) -> Result<(MetadataMap, Trailers, Bytes), Status> {
    if reply.code == 0 && reply.block.is_empty() {
        return Ok((MetadataMap::new(), Trailers::default(), reply.message));
    }
    let outcome = Outcome::decode(reply.code, reply.block);
    let outcome = outcome.map_err(|error| undecodable("block", &error))?;
    let trailers = outcome.result?;
    let metadata = if trailers.is_empty() {
        outcome.metadata
    } else {
        merge(outcome.metadata, trailers.clone())
    };
    Ok((metadata, Trailers(trailers), reply.message))
}

/// Joins initial and trailing metadata as tonic's client does for a unary call.
fn merge(initial: MetadataMap, trailing: MetadataMap) -> MetadataMap {
    let mut headers = initial.into_headers();
    headers.extend(trailing.into_headers());
    MetadataMap::from_headers(headers)
}
