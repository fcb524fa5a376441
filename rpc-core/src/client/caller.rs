//! `Caller`: the trait through which generated stubs make calls.

use std::future::Future;

use futures::Stream;
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use crate::MethodDescriptor;

/// Something that can make calls: a `Channel`, or a layer around one.
///
/// Dropping the future of a call cancels the call on the server. There is no `dyn Caller`, since
/// its methods are generic; a [`DynCaller`](super::DynCaller) takes its place.
pub trait Caller: Send + Sync {
    /// Makes a call with one request and one response.
    fn unary<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Req>,
    ) -> impl Future<Output = Result<Response<Resp>, Status>> + Send
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static;

    /// Makes a call with one request and a stream of responses.
    fn server_streaming<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Req>,
    ) -> impl Future<Output = Result<Response<Streaming<Resp>>, Status>> + Send
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static;

    /// Makes a call with a stream of requests and one response.
    fn client_streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<S>,
    ) -> impl Future<Output = Result<Response<Resp>, Status>> + Send
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static;

    /// Makes a call with a stream each way.
    fn streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<S>,
    ) -> impl Future<Output = Result<Response<Streaming<Resp>>, Status>> + Send
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static;
}
