//! The driver: the life of a connection, and the state that one task at a time owns.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rpc_core::handoff::Resume;
use rpc_core::transport::{CloseReason, Handler};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::codec::decoder::Decoder;
use crate::connection::shared::Shared;
use crate::connection::socket::Socket;

/// How long a closing connection may take to write what it was given.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Why reading is over.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The connection is over.
    Closed(CloseReason),
    /// A handler blocked, and another task goes on with the connection.
    TakenOver,
}

impl<R: Into<CloseReason>> From<R> for Ended {
    fn from(reason: R) -> Self {
        Self::Closed(reason.into())
    }
}

/// What the connection's task owns, and another task goes on with when a handler blocks this one.
pub(crate) struct Driver<S> {
    shared: Arc<Shared<S>>,
    handler: Arc<dyn Handler>,
    runtime: Handle,
    pub(crate) decoder: Decoder,
}

/// Ends the connection if its task is dropped, as a runtime that ends drops its tasks. Callers on
/// other runtimes would otherwise wait for answers that no task reads.
struct Ending<S: Socket> {
    shared: Arc<Shared<S>>,
    /// Absent once the end was reported, or another task reports it.
    handler: Option<Arc<dyn Handler>>,
}

impl<S: Socket> Ending<S> {
    /// Ends the connection and tells the handler, once.
    fn end(&mut self, reason: CloseReason) {
        let Some(handler) = self.handler.take() else { return };
        self.shared.fail(reason);
        self.shared.socket.end();
        handler.handle_closed(self.shared.close_reason());
    }
}

impl<S: Socket> Drop for Ending<S> {
    fn drop(&mut self) {
        self.end(CloseReason::task_dropped());
    }
}

impl<S: Socket> Driver<S> {
    /// For a task of the current runtime.
    pub(crate) fn new(shared: Arc<Shared<S>>, handler: Arc<dyn Handler>) -> Box<Self> {
        let decoder = Decoder::new(shared.pool.clone());
        Box::new(Self { shared, handler, runtime: Handle::current(), decoder })
    }

    /// Returns true if the tasks that a delivery wakes may run on other threads than this task.
    pub(crate) fn is_on_several_threads(&self) -> bool {
        self.runtime.runtime_flavor() == RuntimeFlavor::MultiThread
    }

    /// Reads, and writes what senders leave, until the connection has ended.
    pub(crate) fn run(self: Box<Self>) -> impl Future<Output = ()> + Send {
        // Here and not in the future: a runtime that has ended drops the future unpolled.
        let (shared, handler) = (Arc::clone(&self.shared), Some(Arc::clone(&self.handler)));
        self.run_to_end(Ending { shared, handler })
    }

    async fn run_to_end(self: Box<Self>, mut ending: Ending<S>) {
        let (shared, handler) = (Arc::clone(&self.shared), Arc::clone(&self.handler));
        // If a handler blocks the task before this one, that task may still be the first in line
        // for a notification, and would keep it as long as the handler blocks.
        shared.driver_wakeup.notify_one();
        let ended = tokio::select! {
            biased;
            () = shared.close.cancelled() => CloseReason::Local.into(),
            ended = shared.read(self, &*handler) => ended,
            // The queue knows the reason.
            () = shared.drive_writes() => CloseReason::Local.into(),
        };
        let Ended::Closed(reason) = ended else {
            ending.handler = None;
            return;
        };
        if reason == CloseReason::Local {
            // The reading half may have been stopped while frames gathered.
            shared.uncork();
            // What was sent before closing still goes out, while nothing more is taken.
            let _ = tokio::time::timeout(FLUSH_TIMEOUT, shared.drive_writes()).await;
            // A peer to which nothing can be written is not waited for.
            let is_draining = shared.queue().is_draining();
            if is_draining {
                shared.linger().await;
            }
        }
        ending.end(reason);
    }
}

impl<S: Socket> Resume for Driver<S> {
    fn runtime(&self) -> &Handle {
        &self.runtime
    }

    fn resume(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.run().boxed()
    }
}
