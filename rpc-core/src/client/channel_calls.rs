//! How a channel makes calls of each kind.

use futures::Stream;
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use super::begun::Begun;
use super::call_deadline::within;
use super::download::download;
use super::reply::decode;
use super::upload::upload;
use super::{Caller, Channel, Outgoing, Reply};
use crate::MethodDescriptor;
use crate::payload::encode::{Encode, Split};

impl Channel {
    /// Makes a call whose answer is one message.
    async fn exchange(&self, call: Outgoing<'_>) -> Result<Reply, Status> {
        let mut attempts = self.attempts(call.method);
        loop {
            let started = self.start(call).await.map_err(|status| attempts.final_status(status))?;
            match started.reply().await {
                Err(status) => attempts.retry_after(status)?,
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
        let mut attempts = self.attempts(call.method);
        loop {
            let started = self.start(call).await.map_err(|status| attempts.final_status(status))?;
            match download(started, None, begun.within(&self.manager)).await {
                Err(status) => attempts.retry_after(status)?,
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
        let (begun, readiness) =
            (Begun::new(&self.defaults, method, &mut request), self.readiness(&request));
        let (deadline, limits) = (begun.deadline(), begun.limits());
        let (metadata, _, message) = request.into_parts();
        let message = Split::new(message, method.detach.request);
        let (metadata, message): (_, Option<&dyn Encode>) = (&metadata, Some(&message));
        let call = Outgoing { method, metadata, deadline, readiness, limits, message };
        let reply = within(deadline, self.exchange(call)).await;
        begun.finish(&self.manager, reply.and_then(|reply| decode(reply, limits)))
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
        let (begun, readiness) =
            (Begun::new(&self.defaults, method, &mut request), self.readiness(&request));
        let (deadline, limits) = (begun.deadline(), begun.limits());
        let (metadata, _, message) = request.into_parts();
        let message = Split::new(message, method.detach.request);
        let (metadata, message): (_, Option<&dyn Encode>) = (&metadata, Some(&message));
        let call = Outgoing { method, metadata, deadline, readiness, limits, message };
        begun.finish(&self.manager, within(deadline, self.follow(begun, call)).await)
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
        let (begun, readiness) =
            (Begun::new(&self.defaults, method, &mut request), self.readiness(&request));
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
        begun.finish(&self.manager, reply.and_then(|reply| decode(reply, limits)))
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
        let (begun, readiness) =
            (Begun::new(&self.defaults, method, &mut request), self.readiness(&request));
        let (deadline, limits) = (begun.deadline(), begun.limits());
        let (metadata, _, stream) = request.into_parts();
        let metadata = &metadata;
        let call = Outgoing { method, metadata, deadline, readiness, limits, message: None };
        let answer = async {
            let started = self.start(call).await?;
            let upload = upload(stream, &started, call);
            download(started, upload, begun.within(&self.manager)).await
        };
        begun.finish(&self.manager, within(deadline, answer).await)
    }
}
