//! The places where connections are served: tasks of the runtime that serves, or cores.
//!
//! A core is a thread with a current-thread runtime. A connection stays on the core that it was
//! given to: its handshake, its session, its handlers and what they spawn run there, and no call
//! wakes another thread. The listeners of a server share its cores. The last one that ends stops
//! them.
//!
//! A handler that blocks its core holds up every connection of that core, and no other. The
//! services of [`blocking`] run elsewhere for that reason, on the runtime that serves.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::connect::Bootstrap;
use crate::handoff::{home, set_core};
use crate::layer::in_trace;
use crate::limits::log::LogLimit;
use crate::server::{HandlerFuture, ServerCall, Service};
use crate::{ServiceDescriptor, limited_log};

/// Time for the connections of cores to close, after the drain timeout. A transport takes 5 s at
/// most to flush what is left, and a handshake that crosses the drain 1 s.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// Time for blocking tasks of a core to end when it stops. Those that take longer go on as threads
/// of the process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The cores of a server while a listener serves.
#[derive(Debug, Default)]
pub(in crate::server) struct SharedCores(Mutex<Weak<Cores>>);

impl SharedCores {
    /// Returns the cores that other listeners use, or starts `count`. None for a count of 0.
    ///
    /// # Errors
    ///
    /// Returns `io::Error` if the operating system gives no thread or no runtime.
    async fn start(&self, count: u32) -> io::Result<Option<Arc<Cores>>> {
        if count == 0 {
            return Ok(None);
        }
        let mut shared = self.0.lock().await;
        if let Some(cores) = shared.upgrade() {
            return Ok(Some(cores));
        }
        let cores = Arc::new(Cores::start(count).await?);
        *shared = Arc::downgrade(&cores);
        Ok(Some(cores))
    }
}

/// Threads that serve connections. Dropped, they stop.
#[derive(Debug)]
struct Cores {
    cores: Vec<Core>,
    /// A token of each thread.
    threads: TaskTracker,
    stop: DropGuard,
}

#[derive(Debug)]
struct Core {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

/// A connection's count on its core.
#[derive(Debug)]
struct CoreCount(Arc<AtomicUsize>);

impl Drop for CoreCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Cores {
    async fn start(count: u32) -> io::Result<Self> {
        let (threads, stop) = (TaskTracker::new(), CancellationToken::new());
        threads.close();
        let mut this = Self { cores: Vec::new(), threads, stop: stop.clone().drop_guard() };
        for number in 0..count {
            let started = Core::start([number, count], this.threads.clone(), stop.clone()).await;
            let unstarted = |error: io::Error| {
                io::Error::new(error.kind(), format!("cannot start core {number}: {error}"))
            };
            this.cores.push(started.map_err(unstarted)?);
        }
        Ok(this)
    }

    /// Counts a connection on the core with the fewest.
    fn take(&self) -> Option<(&Handle, CoreCount)> {
        let count = |core: &&Core| core.connections.load(Ordering::Relaxed);
        // Two listeners may find the same core at the same time: it has one more than the others.
        let core = self.cores.iter().min_by_key(count)?;
        core.connections.fetch_add(1, Ordering::Relaxed);
        Some((&core.runtime, CoreCount(Arc::clone(&core.connections))))
    }

    /// Stops the cores, and waits for their threads.
    async fn stop(self, log: &LogLimit) {
        let Self { cores, threads, stop } = self;
        drop(stop);
        // A thread that a handler blocks ends with the handler, or with the process.
        if timeout(2 * SHUTDOWN_TIMEOUT, threads.wait()).await.is_err() {
            let (blocked, cores) = (threads.len(), cores.len());
            limited_log!(
                target: "farcall::server",
                log, WARN, "left cores behind that a handler blocks", blocked, cores
            );
        }
    }
}

impl Core {
    /// Starts a thread, one of `count`. Its runtime is made there, since an async task must not
    /// drop one.
    async fn start(
        [number, count]: [u32; 2],
        threads: TaskTracker,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        // A server on a core of another one has that one's home.
        let home = home().unwrap_or_else(Handle::current);
        let (report, started) = oneshot::channel();
        let token = threads.token();
        let run = move || {
            set_core(count as usize, Some(home));
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(report.send(Err(error))),
            };
            // A server that is gone has dropped what sets `stop`.
            let _ = report.send(Ok(runtime.handle().clone()));
            runtime.block_on(stop.cancelled());
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
            drop(token);
        };
        thread::Builder::new().name(format!("farcall-core-{number}")).spawn(run)?;
        // Dropped unsent by a panic alone: an error is sent.
        let started = started.await;
        let runtime = started.map_err(|_| io::Error::other("its thread panicked"))??;
        Ok(Self { runtime, connections: Arc::default() })
    }
}

/// The places of one listener's connections.
#[derive(Debug)]
pub(super) struct Places {
    tasks: TaskTracker,
    cores: Option<Arc<Cores>>,
}

impl Places {
    /// Returns places on the current runtime, or on `count` cores if that is not 0.
    ///
    /// # Errors
    ///
    /// Returns `io::Error` if a core cannot be started.
    pub(super) async fn new(shared: &SharedCores, count: u32) -> io::Result<Self> {
        Ok(Self { tasks: TaskTracker::new(), cores: shared.start(count).await? })
    }

    /// Serves a connection in a task of its place.
    pub(super) fn spawn<F>(
        &self,
        bootstrap: Box<dyn Bootstrap>,
        log: &LogLimit,
        serve: impl FnOnce(Box<dyn Bootstrap>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let core = self.cores.as_ref().and_then(|cores| cores.take());
        let Some((runtime, count)) = core else {
            self.tasks.spawn(serve(bootstrap));
            return;
        };
        let log = log.clone();
        let serving = async move {
            let addresses = bootstrap.addresses();
            // On the core, whose runtime the socket belongs to from here on.
            match bootstrap.reregister() {
                Ok(bootstrap) => serve(bootstrap).await,
                Err(error) => limited_log!(
                    target: "farcall::server",
                    log, WARN, "cannot serve a connection on its core", %addresses, %error
                ),
            }
            // Behind the connection, which is one of its core's until here.
            drop(count);
        };
        self.tasks.spawn_on(serving, runtime);
    }

    /// Waits until no connection is left. No more may come.
    pub(super) async fn closed(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Waits for the connections, which have been told to drain in that time, and stops the cores
    /// unless another listener uses them.
    ///
    /// A core that a handler blocks cannot keep to the time. Its connections are given up then.
    pub(super) async fn end(self, drain_timeout: Duration, log: &LogLimit) {
        let Some(cores) = self.cores.clone() else { return self.closed().await };
        let allowed = drain_timeout.saturating_add(CLOSE_TIMEOUT);
        if timeout(allowed, self.closed()).await.is_err() {
            let connections = self.tasks.len();
            let setting = "server.drain_timeout";
            limited_log!(
                target: "farcall::server",
                log, WARN, "gave up connections that did not drain in time", connections, setting
            );
        }
        drop(self);
        // The last of the server's listeners stops them.
        if let Some(cores) = Arc::into_inner(cores) {
            cores.stop(log).await;
        }
    }
}

/// A service whose handlers may block.
#[derive(Debug)]
struct BlockingService<S>(Arc<S>);

/// Returns `service` with handlers that run on the runtime that serves, and not on its cores.
///
/// On a server without cores it is `service`.
#[must_use]
pub fn blocking(service: impl Service) -> impl Service {
    BlockingService(Arc::new(service))
}

impl<S: Service> Service for BlockingService<S> {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        self.0.descriptor()
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let Some(home) = home() else { return self.0.call(method, call) };
        let service = Arc::clone(&self.0);
        let handling = home.spawn(in_trace(async move { service.call(method, call).await }));
        // Dropped where the call is cancelled, it ends the handler where that waits.
        let handling = AbortOnDropHandle::new(handling);
        Box::pin(async move {
            // A handler that panics answers its call itself.
            let _ = handling.await;
        })
    }
}
