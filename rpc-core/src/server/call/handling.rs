//! A handler from its start to its end: by itself, by the call's deadline, or in a panic.
//!
//! A unary handler is polled once where its call was decoded, and most have ended by then: their
//! message is answered from where it lies, and nothing is kept for a later poll. The futures of the
//! others are written by hand. An `async` block keeps room for what it awaits beside what it was
//! made of, and each layer of them doubles the size of the box and moves what is in it once more.

use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use futures::future::BoxFuture;
use pin_project_lite::pin_project;
use prost::Message;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::{Request, Response, Status};

use crate::Deadline;
use crate::call::metadata::discard;
use crate::call::options::MessageLimits;
use crate::payload::tail_field::Detacher;
use crate::server::call::context::{CallScope, CancelOnDrop, Entered, Scoped, time_exceeded};
use crate::server::call::reply::{PendingReply, Responder};

/// The future of a call's handler, answer included.
pub type HandlerFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a handler, and answers its call with the message, or the status, that it returns. The
/// handler is called and polled here. The returned future does the rest, and is polled next.
///
/// Request and response are long. They lie where they are made, as far as that is possible, and are
/// not passed through several functions.
pub(in crate::server) fn answer_unary<Req, M, F>(
    mut responder: Responder,
    running: CallScope,
    limits: MessageLimits,
    (request, handler): (&mut Option<Request<Req>>, impl FnOnce(Request<Req>) -> F),
) -> BoxFuture<'static, ()>
where
    M: Message + 'static,
    F: Future<Output = Result<Response<M>, Status>> + Send + 'static,
{
    let (deadline, detacher) = (running.deadline(), running.method().detach.response);
    let mut scope = Some(running);
    let entered = Entered::new(&mut scope);
    let cancel_on_drop = CancelOnDrop::new();
    let mut polled = Polled::Panicked;
    // The service is shared by calls that run at the same time, so that it has to stand a panic in
    // one of them as it has to stand any other early end.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let Some(request) = request.take() else { return };
        let mut future = Box::pin(handler(request));
        let ended = future.as_mut().poll(&mut Context::from_waker(NO_WAKER));
        if ended.is_pending() {
            polled = Polled::Waits(future);
            return;
        }
        // What the handler holds is free before its client can know.
        drop(future);
        match ended {
            Poll::Ready(Ok(response)) if responder.try_reply(&response, detacher, limits) => {
                discard(response.into_parts().0);
                polled = Polled::Answered;
            }
            Poll::Ready(result) => polled = Polled::Ended(result),
            Poll::Pending => {}
        }
    }));
    // A panic is named also after the deadline, as where the handler has waited before.
    let result = match polled {
        Polled::Waits(future) => {
            let handling = Handling::waiting(deadline, future, cancel_on_drop);
            drop(entered);
            let responding = RespondingHandler::new(handling, responder, detacher, limits);
            return Box::pin(Scoped::new(scope, responding));
        }
        Polled::Answered => {
            cancel_on_drop.finish();
            return Box::pin(Answered);
        }
        Polled::Ended(result) => {
            cancel_on_drop.finish();
            in_time(result, deadline)
        }
        Polled::Panicked => {
            drop(cancel_on_drop);
            Err(panicked())
        }
    };
    let reply = responder.reply(result, detacher, limits);
    drop(entered);
    Box::pin(Scoped::new(scope, reply))
}

/// The outcome of a unary handler's first poll.
enum Polled<F, M> {
    Panicked,
    Waits(Pin<Box<F>>),
    /// Its message is sent.
    Answered,
    Ended(Result<Response<M>, Status>),
}

/// The future of a call that is answered. It has no size, so that its box is no memory.
struct Answered;

impl Future for Answered {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// The status of a call whose handler has panicked.
fn panicked() -> Status {
    Status::internal("the handler panicked: see the server's stderr")
}

/// The result of a handler that ended by itself. A failure after the deadline is the deadline's:
/// what the handler waited for has the same one, and a timer of its own. Which of the two is first
/// does not matter to the caller.
fn in_time<T>(result: Result<T, Status>, deadline: Option<Deadline>) -> Result<T, Status> {
    match (&result, deadline) {
        (Err(_), Some(deadline)) if deadline.has_passed(Instant::now()) => Err(time_exceeded()),
        _ => result,
    }
}

/// The waker of a poll that only finds out whether a handler waits at all. One value, since
/// `will_wake` compares addresses, and each use of `Waker::noop` may have its own.
pub(in crate::server) static NO_WAKER: &Waker = Waker::noop();

pin_project! {
    #[project = StageProjected]
    #[derive(Debug)]
    enum Stage<H, F> {
        Waiting { handler: Option<H> },
        Running { #[pin] future: F },
        Ended,
    }
}

pin_project! {
    /// Runs a handler, or the stream that it returned, until the call's deadline. A panic ends its
    /// own call and nothing else.
    ///
    /// The handler is called with the first poll, and dropped with the last.
    #[must_use]
    pub(in crate::server) struct Handling<H, F> {
        #[pin]
        stage: Stage<H, F>,
        // Dropped as it is, it tells the handler's helpers that the call was given up.
        cancel_on_drop: Option<CancelOnDrop>,
        deadline: Option<Deadline>,
        // Made when a handler is not done at once: most are.
        #[pin]
        timer: Option<Sleep>,
        // True if the last poll was without a waker, so that another one like it changes nothing.
        is_polled: bool,
    }
}

impl<F> Handling<fn() -> F, F> {
    /// A handler that was polled without a waker, and waits.
    fn waiting(deadline: Option<Deadline>, future: F, cancel_on_drop: CancelOnDrop) -> Self {
        let (stage, cancel_on_drop) = (Stage::Running { future }, Some(cancel_on_drop));
        Self { stage, cancel_on_drop, deadline, timer: None, is_polled: true }
    }
}

impl<H, F, T> Handling<H, F>
where
    H: FnOnce() -> F,
    F: Future<Output = Result<T, Status>>,
{
    pub(in crate::server) fn new(deadline: Option<Deadline>, handler: H) -> Self {
        let stage = Stage::Waiting { handler: Some(handler) };
        let cancel_on_drop = Some(CancelOnDrop::new());
        Self { stage, cancel_on_drop, deadline, timer: None, is_polled: false }
    }

    /// Calls the handler if it was not, and polls it.
    fn poll_handler(
        mut stage: Pin<&mut Stage<H, F>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<T, Status>> {
        if let StageProjected::Waiting { handler } = stage.as_mut().project()
            && let Some(handler) = handler.take()
        {
            stage.set(Stage::Running { future: handler() });
        }
        match stage.project() {
            StageProjected::Running { future } => future.poll(context),
            // Polled after its end.
            StageProjected::Waiting { .. } | StageProjected::Ended => Poll::Pending,
        }
    }
}

impl<H, F, T> Future for Handling<H, F>
where
    H: FnOnce() -> F,
    F: Future<Output = Result<T, Status>>,
{
    type Output = Result<T, Status>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // The session polls each handler once before it makes a task of it.
        if mem::take(this.is_polled) && context.waker().will_wake(NO_WAKER) {
            return Poll::Pending;
        }
        // As in `answer_unary`.
        let handler = AssertUnwindSafe(|| Self::poll_handler(this.stage.as_mut(), context));
        let result = match catch_unwind(handler) {
            Ok(Poll::Ready(result)) => {
                if let Some(cancel_on_drop) = this.cancel_on_drop.take() {
                    cancel_on_drop.finish();
                }
                in_time(result, *this.deadline)
            }
            Ok(Poll::Pending) => {
                let Some(Deadline(instant)) = *this.deadline else { return Poll::Pending };
                if this.timer.is_none() {
                    this.timer.set(Some(sleep_until(instant)));
                }
                if let Some(timer) = this.timer.as_mut().as_pin_mut() {
                    // Also when the handler has spent all of its task's turn: it may always do so.
                    ready!(pin!(unconstrained(timer)).poll(context));
                }
                Err(time_exceeded())
            }
            Err(_) => Err(panicked()),
        };
        // The handler is dropped here: the future around this one lives on while the answer waits.
        // Then the guard fires the token, unless the handler has ended by itself.
        this.stage.set(Stage::Ended);
        *this.cancel_on_drop = None;
        Poll::Ready(result)
    }
}

pin_project! {
    /// Runs a handler and sends the message, or the status, that it returns.
    pub(in crate::server) struct RespondingHandler<H, F, M> {
        #[pin]
        handling: Handling<H, F>,
        responder: Option<Responder>,
        detacher: Option<Detacher>,
        limits: MessageLimits,
        pending_reply: PendingReply,
        message: PhantomData<fn() -> M>,
    }
}

impl<H, F, M> RespondingHandler<H, F, M> {
    pub(in crate::server) fn new(
        handling: Handling<H, F>,
        responder: Responder,
        detacher: Option<Detacher>,
        limits: MessageLimits,
    ) -> Self {
        let (responder, pending_reply) = (Some(responder), PendingReply::DONE);
        Self { handling, responder, detacher, limits, pending_reply, message: PhantomData }
    }
}

impl<H, F, M> Future for RespondingHandler<H, F, M>
where
    H: FnOnce() -> F,
    F: Future<Output = Result<Response<M>, Status>>,
    M: Message + 'static,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.responder.is_some() {
            let result = ready!(this.handling.poll(context));
            if let Some(responder) = this.responder.take() {
                *this.pending_reply = responder.reply(result, *this.detacher, *this.limits);
            }
        }
        Pin::new(this.pending_reply).poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::consume_budget;
    use tokio::time::timeout;
    use tonic::Code;

    use super::*;

    /// A handler that always finds something to do spends all of its task's turn, and leaves
    /// nothing of it to a task that reads the clock after it.
    #[tokio::test]
    async fn a_handler_that_never_waits_has_a_deadline_too() {
        let busy = || async {
            loop {
                consume_budget().await;
            }
        };
        let handling: Handling<_, _> = Handling::new(Some(Deadline(Instant::now())), busy);
        let ended: Result<Result<(), _>, _> = timeout(Duration::from_secs(10), handling).await;
        let status = ended.expect("the deadline ends it").unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    }

    #[tokio::test(start_paused = true)]
    async fn error_at_the_deadline_is_the_deadlines() {
        for (millis, code) in [(999, Code::Internal), (1000, Code::DeadlineExceeded)] {
            let deadline = Deadline(Instant::now() + Duration::from_millis(1000));
            let handler = || async move {
                tokio::time::advance(Duration::from_millis(millis)).await;
                Err::<(), _>(Status::internal("an inner call failed"))
            };
            let handling = Handling::new(Some(deadline), handler);
            assert_eq!(handling.await.unwrap_err().code(), code);
        }
    }

    #[test]
    fn waiting_handler_is_polled_once_without_a_waker() {
        let mut polls = 0;
        let handler = std::future::poll_fn(|_| {
            polls += 1;
            Poll::<Result<(), Status>>::Pending
        });
        {
            let mut handling = pin!(Handling::waiting(None, handler, CancelOnDrop::new()));
            let mut context = Context::from_waker(NO_WAKER);
            // The first of these was made before it waited.
            for _ in 0..3 {
                assert!(handling.as_mut().poll(&mut context).is_pending());
            }
        }
        assert_eq!(polls, 2);
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let panics = || async { panic!("on purpose") };
        let handling = Handling::new(None, panics);
        let result: Result<(), _> = handling.await;
        assert_eq!(result.unwrap_err().code(), Code::Internal);
    }
}
