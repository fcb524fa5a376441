//! How a mocked method answers, its message types erased.

use std::any::{Any, type_name};
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use prost::Message;
use tonic::{Request, Response, Status};

use crate::CallKind;
use crate::client::ClientReply;
use crate::client::call::{ReplyBody, TypeName};
use crate::stream::StreamPart;

/// What a call sends: one message or a stream of messages, of any type.
pub(super) type AnyBody = Box<dyn Any + Send>;

type Answer = BoxFuture<'static, Result<ClientReply, Status>>;

/// How a method answers.
#[derive(Clone)]
pub(super) struct Script {
    kind: CallKind,
    /// What it takes, for error messages.
    request: &'static str,
    /// The type of each message that it answers with.
    response: TypeName,
    answer: Arc<dyn Fn(Request<AnyBody>) -> Answer + Send + Sync>,
}

/// The body of an answer that is one message.
pub(super) fn one_message<M: Message>(message: &M) -> ReplyBody {
    ReplyBody::Message(message.encode_to_vec().into())
}

/// The body of an answer that is a stream.
pub(super) fn many_messages<M, S>(messages: S) -> ReplyBody
where
    M: Message,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    let encode = |message: Result<M, _>| {
        message.map(|message| StreamPart::Message(message.encode_to_vec().into()))
    };
    ReplyBody::Scripted(messages.map(encode).boxed())
}

impl Script {
    /// A script that takes a `Request<In>` and answers with a `Response<Out>`, whose messages are
    /// of the type `M`; `body` encodes them.
    pub(super) fn new<In, Out, M, F, Fut>(
        kind: CallKind,
        body: fn(Out) -> ReplyBody,
        handler: F,
    ) -> Self
    where
        In: Send + 'static,
        Out: 'static,
        M: 'static,
        F: Fn(Request<In>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Out>, Status>> + Send + 'static,
    {
        let reply = move |response: Response<Out>| {
            let (metadata, message, extensions) = response.into_parts();
            ClientReply::new(metadata, extensions, body(message))
        };
        let answer = move |request: Request<AnyBody>| -> Answer {
            let (metadata, extensions, message) = request.into_parts();
            let Ok(message) = message.downcast() else {
                let expected = type_name::<In>();
                let words = format!("the script takes {expected}, and the call has another type");
                return futures::future::ready(Err(Status::internal(words))).boxed();
            };
            let request = Request::from_parts(metadata, extensions, *message);
            handler(request).map(move |answer| answer.map(reply)).boxed()
        };
        let (request, response) = (type_name::<In>(), TypeName::of::<M>());
        Self { kind, request, response, answer: Arc::new(answer) }
    }

    /// Answers a call of that kind, whose responses are of that type.
    pub(super) async fn answer(
        &self,
        kind: CallKind,
        request: Request<AnyBody>,
        response: TypeName,
    ) -> Result<ClientReply, Status> {
        if kind != self.kind {
            let words = format!("the script is of kind {:?}, and the call is {kind:?}", self.kind);
            return Err(Status::internal(words));
        }
        let reply = (self.answer)(request).await?;
        if response != self.response {
            let (found, expected) = (self.response.name, response.name);
            let words = format!("the script answers with {found} instead of {expected}");
            return Err(Status::internal(words));
        }
        Ok(reply)
    }
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {} -> {}", self.kind, self.request, self.response.name)
    }
}
