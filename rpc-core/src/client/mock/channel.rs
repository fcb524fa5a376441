//! The mock of a channel.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use super::RecordedCall;
use super::script::{
    DynForms, Script, boxed, erased_requests, many_requests, many_responses, one_request,
    one_response,
};
use crate::stream::{Scripted, scripted_response};
use crate::{CallKind, Caller, Deadline, MethodDescriptor};

/// A channel whose answers a test scripts, a script a method; clones share them.
///
/// A method without a script answers with `UNIMPLEMENTED` and words that name it. A script whose
/// kind of call or whose messages are not the method's answers with `INTERNAL`, and words that say
/// so.
///
/// # Examples
///
/// ```
/// use farcall::mock::MockChannel;
/// use farcall::{CallKind, Caller, Code, Detach, Idempotency, MethodDescriptor};
/// use farcall::{Request, Response, Status};
/// # // Stands for what is generated from a `.proto` file.
/// # static SAY_HELLO: MethodDescriptor = MethodDescriptor {
/// #     path: "/hello.Greeter/SayHello",
/// #     kind: CallKind::Unary,
/// #     idempotency: Idempotency::Unknown,
/// #     detach: Detach::NONE,
/// # };
/// # struct GreeterStub<C>(C);
/// # impl<C: Caller> GreeterStub<C> {
/// #     fn new(caller: C) -> Self { Self(caller) }
/// #     async fn say_hello(&self, name: String) -> Result<Response<String>, Status> {
/// #         self.0.unary(&SAY_HELLO, Request::new(name)).await
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Status> {
/// let mock = MockChannel::new();
/// mock.on_unary("/hello.Greeter/SayHello", |request: Request<String>| async move {
///     match request.into_inner().as_str() {
///         "" => Err(Status::invalid_argument("a name, please")),
///         name => Ok(Response::new(format!("Hello, {name}!"))),
///     }
/// });
///
/// let greeter = GreeterStub::new(mock.clone());
/// assert_eq!(greeter.say_hello("Ada".into()).await?.into_inner(), "Hello, Ada!");
/// let refused = greeter.say_hello(String::new()).await.unwrap_err();
/// assert_eq!(refused.code(), Code::InvalidArgument);
///
/// let calls = mock.calls();
/// assert_eq!(calls.len(), 2);
/// assert_eq!(calls[0].method.path, "/hello.Greeter/SayHello");
/// assert_eq!(calls[0].request::<String>().unwrap(), "Ada");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct MockChannel {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    scripts: BTreeMap<String, Script>,
    calls: Vec<RecordedCall>,
}

impl MockChannel {
    /// A mock without scripts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says how the method at `path`, `/package.Service/Method`, answers one request with one
    /// response. A second script for a method takes the place of the first.
    pub fn on_unary<Req, Resp, F, Fut>(&self, path: &str, handler: F)
    where
        Req: Message + 'static,
        Resp: Message + 'static,
        F: Fn(Request<Req>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        let forms = DynForms { request: one_request, response: one_response };
        self.add(path, Script::new(CallKind::Unary, forms, handler));
    }

    /// As [`MockChannel::on_unary`], for a method that answers with a stream.
    pub fn on_server_streaming<Req, S, Resp, F, Fut>(&self, path: &str, handler: F)
    where
        Req: Message + 'static,
        Resp: Message + 'static,
        S: Stream<Item = Result<Resp, Status>> + Send + 'static,
        F: Fn(Request<Req>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    {
        let handler = move |request| {
            let answer = handler(request);
            async move { answer.await.map(boxed) }
        };
        let forms = DynForms { request: one_request, response: many_responses };
        self.add(path, Script::new(CallKind::ServerStreaming, forms, handler));
    }

    /// As [`MockChannel::on_unary`], for a method that is sent a stream, which the script reads.
    pub fn on_client_streaming<Req, Resp, F, Fut>(&self, path: &str, handler: F)
    where
        Req: Message + 'static,
        Resp: Message + 'static,
        F: Fn(Request<BoxStream<'static, Req>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        let forms = DynForms { request: many_requests, response: one_response };
        self.add(path, Script::new(CallKind::ClientStreaming, forms, handler));
    }

    /// As [`MockChannel::on_unary`], for a method with a stream each way.
    pub fn on_streaming<Req, S, Resp, F, Fut>(&self, path: &str, handler: F)
    where
        Req: Message + 'static,
        Resp: Message + 'static,
        S: Stream<Item = Result<Resp, Status>> + Send + 'static,
        F: Fn(Request<BoxStream<'static, Req>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    {
        let handler = move |request| {
            let answer = handler(request);
            async move { answer.await.map(boxed) }
        };
        let forms = DynForms { request: many_requests, response: many_responses };
        self.add(path, Script::new(CallKind::Streaming, forms, handler));
    }

    /// The calls so far, in their order; those that nothing was scripted for are among them.
    #[must_use]
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.state().calls.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is a single one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, path: &str, script: Script) {
        self.state().scripts.insert(path.to_owned(), script);
    }

    /// Records a call and finds its script.
    fn script<T>(
        &self,
        method: &'static MethodDescriptor,
        request: &Request<T>,
        message: Option<Vec<u8>>,
    ) -> Result<Script, Status> {
        let explicit = request.extensions().get::<Deadline>().copied();
        let deadline = explicit.into_iter().chain(Deadline::current()).min();
        let (metadata, message) = (request.metadata().clone(), message.map(Into::into));
        let mut state = self.state();
        state.calls.push(RecordedCall { method, metadata, deadline, message });
        state.scripts.get(method.path).cloned().ok_or_else(|| {
            let scripted: Vec<_> = state.scripts.keys().collect();
            let path = method.path;
            Status::unimplemented(format!("the mock has no script for {path}, but {scripted:?}"))
        })
    }
}

impl Caller for MockChannel {
    async fn unary<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Req>,
    ) -> Result<Response<Resp>, Status>
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        let message = request.get_ref().encode_to_vec();
        let script = self.script(method, &request, Some(message))?;
        script.answer(CallKind::Unary, Box::new(request)).await
    }

    async fn server_streaming<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<Req>,
    ) -> Result<Response<Streaming<Resp>>, Status>
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        let message = request.get_ref().encode_to_vec();
        let script = self.script(method, &request, Some(message))?;
        Ok(script.answer(CallKind::ServerStreaming, Box::new(request)).await?.map(streaming))
    }

    async fn client_streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<S>,
    ) -> Result<Response<Resp>, Status>
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        let script = self.script(method, &request, None)?;
        script.answer(CallKind::ClientStreaming, erased_requests(request)).await
    }

    async fn streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        request: Request<S>,
    ) -> Result<Response<Streaming<Resp>>, Status>
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        let script = self.script(method, &request, None)?;
        Ok(script.answer(CallKind::Streaming, erased_requests(request)).await?.map(streaming))
    }
}

/// The stream that a caller reads.
fn streaming<M: Message + 'static>(
    messages: BoxStream<'static, Result<M, Status>>,
) -> Streaming<M> {
    scripted_response(messages.map_ok(Scripted::Message).boxed())
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
