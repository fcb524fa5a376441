//! The driver: the life cycle of a connection, and the state that one task at a time owns.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rpc_core::handoff::Resume;
use rpc_core::transport::{CloseReason, Handler};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::codec::decoder::Decoder;
use crate::connection::shared::ConnectionShared;
use crate::connection::socket::Socket;

/// Maximum time for a closing connection to write its queued frames.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why reading has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The connection has ended.
    Closed(CloseReason),
    /// A handler blocked, and another task has taken the connection over.
    TakenOver,
}

impl<R: Into<CloseReason>> From<R> for Ended {
    fn from(reason: R) -> Self {
        Self::Closed(reason.into())
    }
}

/// The state of the connection's task. If a handler blocks the task, another one takes it over.
pub(crate) struct ConnectionDriver<S> {
    shared: Arc<ConnectionShared<S>>,
    handler: Arc<dyn Handler>,
    is_on_several_threads: bool,
    can_be_replaced: bool,
    runtime: Handle,
    pub(crate) decoder: Decoder,
}

/// Ends the connection if its task is dropped, as a runtime does at its end. Callers on other
/// runtimes would otherwise wait for replies that no task reads.
struct Ending<S: Socket> {
    shared: Arc<ConnectionShared<S>>,
    /// Taken once the end is reported, or if another task will report it.
    handler: Option<Arc<dyn Handler>>,
}

impl<S: Socket> Ending<S> {
    /// Ends the connection and notifies the handler, once.
    fn end(&mut self, reason: CloseReason) {
        let Some(handler) = self.handler.take() else { return };
        // The order matters: a handler that sends from `handle_closed` must already find the queue
        // closed.
        self.shared.fail(reason);
        self.shared.socket.end();
        handler.handle_closed(self.shared.close_reason());
    }
}

impl<S: Socket> Drop for Ending<S> {
    fn drop(&mut self) {
        self.end(rpc_core::transport::task_dropped());
    }
}

impl<S: Socket> ConnectionDriver<S> {
    /// Creates a driver for a task of the current runtime.
    pub(crate) fn new(shared: Arc<ConnectionShared<S>>, handler: Arc<dyn Handler>) -> Box<Self> {
        let decoder = Decoder::new(shared.pool.clone());
        let runtime = Handle::current();
        let is_on_several_threads = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let can_be_replaced = is_on_several_threads && handler.runs_user_code();
        Box::new(Self { shared, handler, is_on_several_threads, can_be_replaced, runtime, decoder })
    }

    /// Returns true if another task can go on with it where user code blocks a delivery.
    pub(crate) fn can_be_replaced(&self) -> bool {
        self.can_be_replaced
    }

    /// Returns true if other threads may run the tasks that a delivery wakes.
    pub(crate) fn is_on_several_threads(&self) -> bool {
        self.is_on_several_threads
    }

    /// Reads, and writes frames that senders leave behind, until the connection ends.
    pub(crate) fn run(self: Box<Self>) -> impl Future<Output = ()> + Send {
        // Created here, not inside the future: a runtime that has ended drops the future without
        // polling it.
        let (shared, handler) = (Arc::clone(&self.shared), Some(Arc::clone(&self.handler)));
        self.run_to_end(Ending { shared, handler })
    }

    async fn run_to_end(self: Box<Self>, mut ending: Ending<S>) {
        let (shared, handler) = (Arc::clone(&self.shared), Arc::clone(&self.handler));
        // Biased: a close wins over bytes that are ready to be read.
        let ended = tokio::select! {
            biased;
            () = shared.close.notified() => CloseReason::Local.into(),
            ended = shared.read(self, &*handler) => ended,
            // The queue knows the actual reason.
            () = shared.drive_writes() => CloseReason::Local.into(),
        };
        // Another task reports the end. Ending here would report it twice.
        let Ended::Closed(reason) = ended else {
            ending.handler = None;
            return;
        };
        if reason == CloseReason::Local {
            // Reading may have stopped while the queue was corked.
            shared.uncork();
            // Sent frames still go out. The queue takes no new ones.
            let _ = tokio::time::timeout(FLUSH_TIMEOUT, shared.drive_writes()).await;
            // After a failed write there is no peer to wait for.
            let is_draining = shared.queue().is_draining();
            if is_draining {
                shared.linger().await;
            }
        }
        ending.end(reason);
    }
}

impl<S: Socket> Resume for ConnectionDriver<S> {
    fn runtime(&self) -> &Handle {
        &self.runtime
    }

    fn resume(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.run().boxed()
    }
}
