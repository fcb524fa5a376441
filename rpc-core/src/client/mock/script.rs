//! How a method answers, the types of its messages forgotten.

use std::any::{Any, type_name};
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::CallKind;

/// A request or a response of any type.
type Erased = Box<dyn Any + Send>;

/// How a method answers.
#[derive(Clone)]
pub(super) struct Script {
    kind: CallKind,
    /// The types of request and response, for whoever mixes them up.
    types: [&'static str; 2],
    answer: Arc<dyn Fn(Erased) -> BoxFuture<'static, Result<Erased, Status>> + Send + Sync>,
}

impl Script {
    /// A script that takes a `Request<In>` and answers with a `Response<Out>`.
    pub(super) fn new<In, Out, F, Fut>(kind: CallKind, handler: F) -> Self
    where
        In: Send + 'static,
        Out: Send + 'static,
        F: Fn(Request<In>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Out>, Status>> + Send + 'static,
    {
        let answer = move |request: Erased| match request.downcast::<Request<In>>() {
            Ok(request) => {
                let answer = handler(*request);
                answer.map(|answer| answer.map(|out| Box::new(out) as Erased)).boxed()
            }
            Err(_) => {
                let expected = type_name::<In>();
                let words = format!("the script takes {expected}, and the call has another type");
                futures::future::ready(Err(Status::internal(words))).boxed()
            }
        };
        Self { kind, types: [type_name::<In>(), type_name::<Out>()], answer: Arc::new(answer) }
    }

    /// Answers a call of that kind.
    pub(super) async fn answer<In, Out>(
        &self,
        kind: CallKind,
        request: Request<In>,
    ) -> Result<Response<Out>, Status>
    where
        In: Send + 'static,
        Out: Send + 'static,
    {
        if kind != self.kind {
            let words = format!("the script is of kind {:?}, and the call is {kind:?}", self.kind);
            return Err(Status::internal(words));
        }
        let answer = (self.answer)(Box::new(request)).await?;
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
