//! The channel as what stubs call, and as the innermost service of a stack of layers.

use std::task::{Context, Poll};

use futures::Stream;
use futures::future::BoxFuture;
use prost::Message;
use rpc_core::client::{ClientCall, ClientReply};
use tower::Service;

use super::Channel;
use crate::{Caller, MethodDescriptor, Request, Response, Status, Streaming};

impl Caller for Channel {
    fn unary<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Req>,
    ) -> impl Future<Output = Result<Response<Resp>, Status>> + Send
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        self.core.unary(method, request)
    }

    fn server_streaming<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Req>,
    ) -> impl Future<Output = Result<Response<Streaming<Resp>>, Status>> + Send
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        self.core.server_streaming(method, request)
    }

    fn client_streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<S>,
    ) -> impl Future<Output = Result<Response<Resp>, Status>> + Send
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        self.core.client_streaming(method, request)
    }

    fn streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<S>,
    ) -> impl Future<Output = Result<Response<Streaming<Resp>>, Status>> + Send
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        self.core.streaming(method, request)
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
    /// one. Under [`Channel::layer`] the channel is always ready.
    ///
    /// # Errors
    ///
    /// When the channel cannot connect any more, in this process and with this configuration.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Service::poll_ready(&mut self.core, cx)
    }

    fn call(&mut self, call: ClientCall) -> Self::Future {
        Service::call(&mut self.core, call)
    }
}
