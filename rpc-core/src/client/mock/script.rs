//! How a mocked method answers, its message types erased.

use std::any::{Any, TypeId, type_name};
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use prost::Message;
use tonic::{Request, Response, Status};

use crate::CallKind;
use crate::payload::dyn_message::{DynMessage, DynMessages, RawMessage};

/// A request or a response of any type.
pub(super) type Erased = Box<dyn Any + Send>;

/// How a method answers.
#[derive(Clone)]
pub(super) struct Script {
    kind: CallKind,
    /// The types of request and response, for the error when they are mixed up.
    types: [&'static str; 2],
    answer: Arc<dyn Fn(Erased) -> BoxFuture<'static, Result<Erased, Status>> + Send + Sync>,
}

/// How the messages of a script cross a caller whose type is forgotten: a
/// [`crate::client::DynCaller`].
pub(super) struct DynForms<In, Out> {
    /// The request that came that way, if its messages are the script's.
    pub(super) request: fn(Erased) -> Option<Request<In>>,
    /// What such a caller is answered with.
    pub(super) response: fn(Response<Out>) -> Erased,
}

/// A request of a method that takes one message.
pub(super) fn one_request<M: 'static>(request: Erased) -> Option<Request<M>> {
    let request = request.downcast::<Request<DynMessage>>().ok()?;
    let (metadata, extensions, message) = request.into_parts();
    Some(Request::from_parts(metadata, extensions, message.downcast()?))
}

/// A request of a method that takes a stream.
pub(super) fn many_requests<M>(request: Erased) -> Option<Request<BoxStream<'static, M>>>
where
    M: Send + 'static,
{
    let request = request.downcast::<Request<DynMessages>>().ok()?;
    let (metadata, extensions, messages) = request.into_parts();
    Some(Request::from_parts(metadata, extensions, messages.downcast()?))
}

/// A response that is one message.
pub(super) fn one_response<M: Message>(response: Response<M>) -> Erased {
    Box::new(response.map(|message| RawMessage::of(&message)))
}

/// A response that is a stream.
pub(super) fn many_responses<M: Message + 'static>(
    response: Response<BoxStream<'static, Result<M, Status>>>,
) -> Erased {
    let raw = |message: Result<M, _>| message.map(|message| RawMessage::of(&message));
    Box::new(response.map(|messages| messages.map(raw).boxed()))
}

/// A request with a stream of any type. One whose messages are of any type is left as it is.
pub(super) fn erased_requests<S>(request: Request<S>) -> Erased
where
    S: Stream<Item: Send> + Send + 'static,
{
    if TypeId::of::<S>() == TypeId::of::<DynMessages>() {
        return Box::new(request);
    }
    Box::new(request.map(StreamExt::boxed))
}

impl Script {
    /// A script that takes a `Request<In>` and answers with a `Response<Out>`.
    pub(super) fn new<In, Out, F, Fut>(
        kind: CallKind,
        DynForms { request: from_dyn, response: into_dyn }: DynForms<In, Out>,
        handler: F,
    ) -> Self
    where
        In: Send + 'static,
        Out: Send + 'static,
        F: Fn(Request<In>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Out>, Status>> + Send + 'static,
    {
        let typed: fn(Response<Out>) -> Erased = |response| Box::new(response);
        let answer = move |request: Erased| {
            let (request, response) = match request.downcast::<Request<In>>() {
                Ok(request) => (Some(*request), typed),
                Err(request) => (from_dyn(request), into_dyn),
            };
            let Some(request) = request else {
                let expected = type_name::<In>();
                let words = format!("the script takes {expected}, and the call has another type");
                return futures::future::ready(Err(Status::internal(words))).boxed();
            };
            handler(request).map(move |answer| answer.map(response)).boxed()
        };
        Self { kind, types: [type_name::<In>(), type_name::<Out>()], answer: Arc::new(answer) }
    }

    /// Answers a call of that kind.
    pub(super) async fn answer<Out>(
        &self,
        kind: CallKind,
        request: Erased,
    ) -> Result<Response<Out>, Status>
    where
        Out: Send + 'static,
    {
        if kind != self.kind {
            let words = format!("the script is of kind {:?}, and the call is {kind:?}", self.kind);
            return Err(Status::internal(words));
        }
        let answer = (self.answer)(request).await?;
        let answer = answer.downcast::<Response<Out>>().map_err(|_| {
            let [_, found] = self.types;
            let expected = type_name::<Out>();
            Status::internal(format!("the script answers with {found} instead of {expected}"))
        })?;
        Ok(*answer)
    }
}

/// A stream of responses, its type forgotten.
pub(super) fn boxed<M, S>(response: Response<S>) -> Response<BoxStream<'static, Result<M, Status>>>
where
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    response.map(StreamExt::boxed)
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [request, response] = self.types;
        write!(f, "{:?}: {request} -> {response}", self.kind)
    }
}
