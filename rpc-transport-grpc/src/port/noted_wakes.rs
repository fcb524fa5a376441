//! Wake-up tracking for the task that drives an HTTP connection.
//!
//! Calls run in their own tasks and depend on the driver. Before rpc-core polls a handler, it makes
//! sure that the driver is not in the LIFO slot of a thread that the handler may block.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;
use rpc_core::handoff::{note_poll, note_wake};

/// The wakers of one driver task.
#[derive(Debug, Default)]
pub(super) struct NotedWakes(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted(AtomicWaker);

impl NotedWakes {
    /// Polls the connection and notes the poll.
    pub(super) fn poll<F: Future>(
        &self,
        connection: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<F::Output> {
        note_poll();
        self.0.0.register(cx.waker());
        // The connection gets this waker instead of the task's own, so that every wake-up is noted
        // first.
        let waker = Waker::from(Arc::clone(&self.0));
        connection.poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        note_wake();
        self.0.wake();
    }
}
