//! The firmware commands of one opening of a device, and the threads that wait for them.
//!
//! On hardware a command is a request to firmware, which serves the whole host. It takes tens of
//! microseconds, as long as the commands of all other processes before it, and up to 60 s when the
//! firmware hangs. A lane, its timers and its device's watch must not wait for it: they carry the
//! failover that such a device needs. They push commands here, and the results come back as events.
//!
//! There are two queues. The urgent one has what the end of a connection waits for, and nothing
//! else, so that a failed path is not held up by a registration. Each queue is served in order by a
//! thread of its own, which is started with the first command and joined when the device closes.
//! The queues hold at most what their producers have outstanding, and those are bounded: a few
//! commands for each connection, and as many registrations as a pool has tasks that wait for it.
//!
//! A handshake waits for its commands itself, on a thread that may. They are only noted here
//! ([`Commands::await_firmware`]), so that the device counts as stuck with them as with the others.
//!
//! A simulated device has no firmware. Its commands take time on the runtime's clock
//! ([`CommandClock`]), and a task serves them, so that a paused clock and a seed decide the run.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex, MutexGuard};
use slab::Slab;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Age of a command after which the device counts as stuck. Firmware that works halts a queue pair
/// within a millisecond.
const URGENT_MAX: Duration = Duration::from_millis(100);

/// The same for commands that may take long: registering gigabytes, destroying a queue pair.
const BULK_MAX: Duration = Duration::from_secs(1);

/// Time from which an answered command counts as slow.
const SLOW_MIN: Duration = Duration::from_millis(100);

/// A kind of command that a device's firmware carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FirmwareCommand {
    /// Allocates a memory window.
    AllocateWindow,
    /// Deallocates a memory window.
    DeallocateWindow,
    /// Makes a queue pair.
    CreateQueuePair,
    /// Changes the state of a queue pair: connects or halts it.
    ModifyQueuePair,
    /// Destroys a queue pair.
    DestroyQueuePair,
    /// Sets the limit of a shared receive queue.
    ModifyReceiveQueue,
    /// Registers memory.
    RegisterMemory,
    /// Deregisters memory.
    DeregisterMemory,
    /// Queries a port or the table of GIDs.
    Query,
    /// Makes a completion queue or a shared receive queue.
    CreateQueue,
    /// Destroys a completion queue or a shared receive queue.
    DestroyQueue,
}

/// The time that a simulated device takes for its commands.
pub trait CommandClock: Debug + Send + Sync {
    /// Waits for as long as a command takes. Returns false if the firmware does not answer it.
    fn wait(&self, command: FirmwareCommand) -> BoxFuture<'static, bool>;
}

/// The place of a thread's work, as far as firmware commands are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "sim"), allow(dead_code))]
pub(crate) enum Place {
    /// A thread that may wait.
    Elsewhere,
    /// A lane, its timers, its device's watch, or a sender with a connection's lock.
    Lane,
    /// The server of a queue, which has waited for the command already.
    Server { has_answer: bool },
}

#[cfg(feature = "sim")]
thread_local! {
    static PLACE: std::cell::Cell<Place> = const { std::cell::Cell::new(Place::Elsewhere) };
}

/// Restores a thread's place when it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct PlaceGuard {
    #[cfg(feature = "sim")]
    before: Place,
}

/// Marks the thread's work as a lane's until the guard is dropped. Costs nothing where no simulated
/// device is built in.
#[inline]
pub(crate) fn on_lane() -> PlaceGuard {
    enter(Place::Lane)
}

#[inline]
fn enter(place: Place) -> PlaceGuard {
    #[cfg(feature = "sim")]
    return PlaceGuard { before: PLACE.replace(place) };
    #[cfg(not(feature = "sim"))]
    {
        let _ = place;
        PlaceGuard {}
    }
}

#[cfg(feature = "sim")]
impl Drop for PlaceGuard {
    fn drop(&mut self) {
        PLACE.set(self.before);
    }
}

/// Returns the place of the work that this thread does now.
#[cfg(feature = "sim")]
pub(crate) fn place() -> Place {
    PLACE.get()
}

/// The commands of one opening of a device.
#[derive(Debug)]
pub(crate) struct Commands {
    /// Halts of queue pairs.
    pub(crate) urgent: CommandQueue,
    /// Everything else.
    pub(crate) bulk: CommandQueue,
    /// Those that threads wait for themselves.
    awaited: Mutex<Slab<Running>>,
    slowest: Arc<Slowest>,
}

/// The longest command of a device so far.
#[derive(Debug)]
struct Slowest {
    device: String,
    micros: AtomicU64,
}

impl Slowest {
    /// Notes a command that has ended, if it took long.
    fn note(&self, running: Running) {
        let took = Instant::now().saturating_duration_since(running.since);
        if took < SLOW_MIN {
            return;
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_max(micros, Ordering::Relaxed);
        rpc_core::limited_log!(
            target: "farcall::rdma",
            process_wide, INFO, "the firmware of a device was slow",
            device = %self.device, command = ?running.command, ?took
        );
    }
}

/// A command that is being carried out, and the time when that began.
#[derive(Debug, Clone, Copy)]
struct Running {
    command: FirmwareCommand,
    since: Instant,
}

/// A command that a thread waits for, until this is dropped.
#[derive(Debug)]
#[must_use = "dropped, it notes nothing"]
pub(crate) struct Awaited<'a> {
    commands: &'a Commands,
    key: usize,
}

/// A command that the firmware has not answered for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StuckCommand {
    pub(crate) command: FirmwareCommand,
    pub(crate) age: Duration,
}

impl Commands {
    pub(crate) fn new(device: &str, clock: Option<&Arc<dyn CommandClock>>) -> Self {
        let slowest = Arc::new(Slowest { device: device.to_owned(), micros: AtomicU64::new(0) });
        let queue = |name: &str, stuck_after| CommandQueue {
            shared: Arc::new(QueueShared {
                slowest: Arc::clone(&slowest),
                thread_name: format!("farcall-{name}-{device}"),
                stuck_after,
                clock: clock.cloned(),
                state: Mutex::default(),
                pushed: Condvar::new(),
            }),
        };
        let (urgent, bulk) = (queue("halt", URGENT_MAX), queue("cmd", BULK_MAX));
        Self { urgent, bulk, awaited: Mutex::default(), slowest }
    }

    /// Notes a command that the caller carries out itself, until the result is dropped.
    pub(crate) fn await_firmware(&self, command: FirmwareCommand) -> Awaited<'_> {
        Awaited { commands: self, key: self.awaited().insert(Running::new(command)) }
    }

    fn awaited(&self) -> MutexGuard<'_, Slab<Running>> {
        self.awaited.lock()
    }

    /// Drops `what` where that may run code of the application, which must not hold commands up.
    /// For commands.
    pub(crate) fn release(&self, runtime: &Handle, what: impl Send + 'static) {
        // On the simulation's clock, and in its order, where there is no firmware to hold up.
        if self.bulk.shared.clock.is_some() {
            return drop(what);
        }
        // A runtime that goes away drops it here.
        drop(runtime.spawn_blocking(move || drop(what)));
    }

    /// Returns the number of commands that wait or are carried out.
    pub(crate) fn pending(&self) -> usize {
        [&self.urgent, &self.bulk].into_iter().map(|queue| queue.shared.state().pending()).sum()
    }

    /// Returns the time of the longest command; zero while none was slow.
    pub(crate) fn slowest(&self) -> Duration {
        Duration::from_micros(self.slowest.micros.load(Ordering::Relaxed))
    }

    /// Returns the command that the device is stuck with, if it is.
    pub(crate) fn stuck(&self) -> Option<StuckCommand> {
        let queued = self.urgent.shared.stuck().or_else(|| self.bulk.shared.stuck());
        queued.or_else(|| {
            let awaited = self.awaited();
            let stuck = awaited.iter().filter_map(|(_, running)| running.stuck(BULK_MAX));
            stuck.max_by_key(|stuck| stuck.age)
        })
    }
}

impl Running {
    fn new(command: FirmwareCommand) -> Self {
        Self { command, since: Instant::now() }
    }

    fn stuck(self, after: Duration) -> Option<StuckCommand> {
        let age = Instant::now().saturating_duration_since(self.since);
        (age >= after).then_some(StuckCommand { command: self.command, age })
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let ended = self.commands.awaited().remove(self.key);
        self.commands.slowest.note(ended);
    }
}

/// Commands that are carried out one after the other, in the order of [`push`](Self::push). Those
/// that allocate windows come first: calls wait for them.
pub(crate) struct CommandQueue {
    shared: Arc<QueueShared>,
}

struct QueueShared {
    slowest: Arc<Slowest>,
    thread_name: String,
    stuck_after: Duration,
    clock: Option<Arc<dyn CommandClock>>,
    state: Mutex<QueueState>,
    pushed: Condvar,
}

#[derive(Default)]
struct QueueState {
    commands: VecDeque<Command>,
    running: Option<Running>,
    /// Set while a thread or a task takes commands from here.
    is_served: bool,
    is_closed: bool,
    thread: Option<JoinHandle<()>>,
}

impl QueueState {
    fn pending(&self) -> usize {
        self.commands.len() + usize::from(self.running.is_some())
    }
}

struct Command {
    kind: FirmwareCommand,
    run: Box<dyn FnOnce() + Send>,
}

impl CommandQueue {
    /// Adds a command, which is carried out once the queue is [served](Self::serve). The caller may
    /// hold locks that the command takes. It must keep the device open, or own what does.
    pub(crate) fn push(&self, kind: FirmwareCommand, run: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state();
        let commands = &mut state.commands;
        let is_first = |command: &Command| command.kind == FirmwareCommand::AllocateWindow;
        let place = match kind {
            FirmwareCommand::AllocateWindow => {
                commands.iter().take_while(|it| is_first(it)).count()
            }
            _ => commands.len(),
        };
        commands.insert(place, Command { kind, run: Box::new(run) });
        drop(state);
        self.shared.pushed.notify_one();
    }

    /// Adds a command and [serves](Self::serve) it from any thread. A simulated device's is carried
    /// out at once where there is no runtime.
    pub(crate) fn carry_out_soon(
        &self,
        kind: FirmwareCommand,
        run: impl FnOnce() + Send + 'static,
    ) {
        self.push(kind, run);
        self.start(Handle::try_current().ok().as_ref());
    }

    /// Sees to it that what was pushed is carried out. `runtime` is where commands of a simulated
    /// device run. The caller holds no lock that a command takes: where neither a thread nor a task
    /// can be had, the commands are carried out here.
    pub(crate) fn serve(&self, runtime: &Handle) {
        self.start(Some(runtime));
    }

    fn start(&self, runtime: Option<&Handle>) {
        let must_start = {
            let mut state = self.shared.state();
            let must_start = !state.is_served && !state.commands.is_empty();
            state.is_served |= must_start;
            must_start
        };
        if !must_start {
            return;
        }
        let server = Server { shared: Arc::clone(&self.shared), current: None };
        if self.shared.clock.is_some() {
            // Without a runtime, the server is dropped, which carries out what there is.
            drop(runtime.map(|runtime| runtime.spawn(server.run_as_task())));
            return;
        }
        let name = self.shared.thread_name.clone();
        match thread::Builder::new().name(name).spawn(move || server.run_as_thread()) {
            Ok(thread) => self.shared.state().thread = Some(thread),
            // Dropped with the closure, the server has carried out what there was.
            Err(error) => rpc_core::limited_log!(
                target: "farcall::rdma",
                process_wide, WARN, "cannot start a thread for a device's commands", %error
            ),
        }
    }
}

/// The commands hold the device, so that none is left when its last handle goes.
impl Drop for CommandQueue {
    fn drop(&mut self) {
        let thread = {
            let mut state = self.shared.state();
            state.is_closed = true;
            state.thread.take()
        };
        self.shared.pushed.notify_all();
        // The last command may have owned the last handle.
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id()) {
            // Commands that panic do not end it.
            let _ = thread.join();
        }
    }
}

impl QueueShared {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    fn stuck(&self) -> Option<StuckCommand> {
        let running = self.state().running?;
        running.stuck(self.stuck_after)
    }
}

/// The thread or the task that takes commands from a queue. Dropped in the middle, as a task of a
/// runtime that goes away is, it carries out what is left: commands own queue pairs and memory.
struct Server {
    shared: Arc<QueueShared>,
    /// The command whose turn it is, until it runs.
    current: Option<Command>,
}

impl Server {
    fn run_as_thread(mut self) {
        loop {
            let mut state = self.shared.state();
            while state.commands.is_empty() && !state.is_closed {
                self.shared.pushed.wait(&mut state);
            }
            drop(state);
            if self.next().is_none() {
                return;
            }
            self.carry_out(true);
        }
    }

    async fn run_as_task(mut self) {
        while let Some(kind) = self.next() {
            let has_answer = match self.shared.clock.clone() {
                Some(clock) => clock.wait(kind).await,
                None => true,
            };
            self.carry_out(has_answer);
        }
    }

    /// Takes the next command; without one the queue is no longer served.
    fn next(&mut self) -> Option<FirmwareCommand> {
        let mut state = self.shared.state();
        self.current = state.commands.pop_front();
        let kind = self.current.as_ref().map(|command| command.kind);
        state.is_served = kind.is_some();
        state.running = kind.map(Running::new);
        kind
    }

    fn carry_out(&mut self, has_answer: bool) {
        let Some(command) = self.current.take() else { return };
        let _place = enter(Place::Server { has_answer });
        // The commands behind it own queue pairs of other connections.
        let ended = catch_unwind(AssertUnwindSafe(command.run));
        let running = self.shared.state().running.take();
        if let Some(running) = running {
            self.shared.slowest.note(running);
        }
        if ended.is_err() {
            rpc_core::limited_log!(
                target: "farcall::rdma",
                process_wide, ERROR, "a device's command panicked", command = ?command.kind
            );
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.carry_out(true);
        while self.next().is_some() {
            self.carry_out(true);
        }
    }
}

impl Debug for CommandQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        f.debug_struct("CommandQueue")
            .field("waiting", &state.commands.len())
            .field("running", &state.running)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "commands_tests.rs"]
mod tests;
