//! The mock of a channel.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::Stream;
use futures::stream::BoxStream;
use prost::Message;
use tonic::{Request, Response, Status};

use super::RecordedCall;
use super::script::{Script, many_messages, one_message};
use crate::client::{Call, Caller, ClientReply};
use crate::{CallKind, Deadline, Method};

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
/// #         farcall::client::unary(&self.0, &SAY_HELLO, Request::new(name)).await
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
/// assert_eq!(calls[0].method.path(), "/hello.Greeter/SayHello");
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
        let body = |message| one_message::<Resp>(&message);
        self.add(path, Script::new::<_, _, Resp, _, _>(CallKind::Unary, body, handler));
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
        let (kind, body) = (CallKind::ServerStreaming, many_messages);
        self.add(path, Script::new::<_, _, Resp, _, _>(kind, body, handler));
    }

    /// As [`MockChannel::on_unary`], for a method that is sent a stream, which the script reads.
    pub fn on_client_streaming<Req, Resp, F, Fut>(&self, path: &str, handler: F)
    where
        Req: Message + 'static,
        Resp: Message + 'static,
        F: Fn(Request<BoxStream<'static, Req>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        let (kind, body) = (CallKind::ClientStreaming, |message| one_message::<Resp>(&message));
        self.add(path, Script::new::<_, _, Resp, _, _>(kind, body, handler));
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
        let (kind, body) = (CallKind::Streaming, many_messages);
        self.add(path, Script::new::<_, _, Resp, _, _>(kind, body, handler));
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
        method: &Method,
        request: &Request<T>,
        message: Option<Vec<u8>>,
    ) -> Result<Script, Status> {
        let explicit = request.extensions().get::<Deadline>().copied();
        let deadline = explicit.into_iter().chain(Deadline::current()).min();
        let (metadata, message) = (request.metadata().clone(), message.map(Into::into));
        let mut state = self.state();
        state.calls.push(RecordedCall { method: method.clone(), metadata, deadline, message });
        state.scripts.get(method.path()).cloned().ok_or_else(|| {
            let scripted: Vec<_> = state.scripts.keys().collect();
            let path = method.path();
            Status::unimplemented(format!("the mock has no script for {path}, but {scripted:?}"))
        })
    }
}

impl Caller for MockChannel {
    async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
        let (method, response) = (call.method().clone(), (call.response)());
        let (metadata, extensions, body) = call.into_parts();
        let (body, message) = body.into_any();
        let request = Request::from_parts(metadata, extensions, body);
        let script = self.script(&method, &request, message)?;
        script.answer(method.kind(), request, response).await
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
