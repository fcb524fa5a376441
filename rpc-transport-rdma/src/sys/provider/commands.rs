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
//! A simulated device has no firmware. Its commands take time on the runtime's clock
//! ([`CommandClock`]), and a task serves them, so that a paused clock and a seed decide the run.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Age of a command after which the device counts as stuck. Firmware that works halts a queue pair
/// within a millisecond.
const URGENT_MAX: Duration = Duration::from_millis(100);

/// The same for commands that may take long: registering gigabytes, destroying a queue pair.
const BULK_MAX: Duration = Duration::from_secs(1);

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
}

/// A command that the firmware has not answered for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StuckCommand {
    pub(crate) command: FirmwareCommand,
    pub(crate) age: Duration,
}

impl Commands {
    pub(crate) fn new(device: &str, clock: Option<&Arc<dyn CommandClock>>) -> Self {
        let queue = |name: &str, stuck_after| CommandQueue {
            shared: Arc::new(QueueShared {
                thread_name: format!("farcall-{name}-{device}"),
                stuck_after,
                clock: clock.cloned(),
                state: Mutex::default(),
                pushed: Condvar::new(),
            }),
        };
        Self { urgent: queue("halt", URGENT_MAX), bulk: queue("cmd", BULK_MAX) }
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

    /// Returns the command that the device is stuck with, if it is.
    pub(crate) fn stuck(&self) -> Option<StuckCommand> {
        self.urgent.shared.stuck().or_else(|| self.bulk.shared.stuck())
    }
}

/// Commands that are carried out one after the other, in the order of [`push`](Self::push). Those
/// that allocate windows come first: calls wait for them.
pub(crate) struct CommandQueue {
    shared: Arc<QueueShared>,
}

struct QueueShared {
    thread_name: String,
    stuck_after: Duration,
    clock: Option<Arc<dyn CommandClock>>,
    state: Mutex<QueueState>,
    pushed: Condvar,
}

#[derive(Default)]
struct QueueState {
    commands: VecDeque<Command>,
    /// The command that is being carried out, and since when.
    running: Option<(FirmwareCommand, Instant)>,
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

    /// Sees to it that what was pushed is carried out. `runtime` is where commands of a simulated
    /// device run. The caller holds no lock that a command takes: where neither a thread nor a task
    /// can be had, the commands are carried out here.
    pub(crate) fn serve(&self, runtime: &Handle) {
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
            drop(runtime.spawn(server.run_as_task()));
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
        // The state is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stuck(&self) -> Option<StuckCommand> {
        let (command, since) = self.state().running?;
        let age = Instant::now().saturating_duration_since(since);
        (age >= self.stuck_after).then_some(StuckCommand { command, age })
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
                state = self.shared.pushed.wait(state).unwrap_or_else(PoisonError::into_inner);
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
        state.running = kind.map(|kind| (kind, Instant::now()));
        kind
    }

    fn carry_out(&mut self, has_answer: bool) {
        let Some(command) = self.current.take() else { return };
        let _place = enter(Place::Server { has_answer });
        // The commands behind it own queue pairs of other connections.
        let ended = catch_unwind(AssertUnwindSafe(command.run));
        self.shared.state().running = None;
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
mod tests {
    use std::sync::mpsc;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    const KIND: FirmwareCommand = FirmwareCommand::RegisterMemory;

    /// Far longer than anything here takes.
    const LIMIT: Duration = Duration::from_secs(30);

    /// Commands take a second each.
    #[derive(Debug)]
    struct OneSecond;

    impl CommandClock for OneSecond {
        fn wait(&self, _: FirmwareCommand) -> BoxFuture<'static, bool> {
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                true
            })
        }
    }

    fn simulated() -> Commands {
        let clock: Arc<dyn CommandClock> = Arc::new(OneSecond);
        Commands::new("sim", Some(&clock))
    }

    #[test]
    fn a_thread_serves_a_queue_in_order_and_is_joined() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let commands = Commands::new("mlx5_0", None);
        let (sender, receiver) = mpsc::channel();
        for number in 0..100 {
            let sender = sender.clone();
            commands.bulk.push(KIND, move || {
                sender.send((number, thread::current().name().map(str::to_owned))).unwrap();
            });
            commands.bulk.serve(runtime.handle());
        }
        for expected in 0..100 {
            let (number, name) = receiver.recv_timeout(LIMIT).unwrap();
            assert_eq!((number, name.as_deref()), (expected, Some("farcall-cmd-mlx5_0")));
        }
    }

    /// A queue whose thread runs a command, which goes on and sends `done` when it may.
    fn held_up(runtime: &Runtime) -> (Commands, mpsc::Sender<()>, mpsc::Receiver<&'static str>) {
        let commands = Commands::new("mlx5_0", None);
        let (sender, receiver) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        commands.bulk.push(KIND, move || {
            sender.send("begun").unwrap();
            may_go_on.recv_timeout(LIMIT).unwrap();
            sender.send("done").unwrap();
        });
        commands.bulk.serve(runtime.handle());
        assert_eq!(receiver.recv_timeout(LIMIT), Ok("begun"));
        (commands, go_on, receiver)
    }

    #[test]
    fn the_last_handle_waits_for_the_command_that_runs() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let (commands, go_on, receiver) = held_up(&runtime);
        let shared = Arc::clone(&commands.bulk.shared);
        let dropping = thread::spawn(move || drop(commands));
        while !shared.state().is_closed {
            thread::yield_now();
        }
        assert!(!dropping.is_finished());
        go_on.send(()).unwrap();
        dropping.join().unwrap();
        assert_eq!(receiver.try_recv(), Ok("done"));
    }

    #[test]
    fn allocations_of_windows_come_before_what_waits() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let (commands, go_on, _receiver) = held_up(&runtime);
        let (sender, order) = mpsc::channel();
        let (window, other) = (FirmwareCommand::AllocateWindow, FirmwareCommand::DestroyQueuePair);
        for (number, kind) in [other, window, other, window].into_iter().enumerate() {
            let sender = sender.clone();
            commands.bulk.push(kind, move || sender.send(number).unwrap());
        }
        go_on.send(()).unwrap();
        drop(commands);
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [1, 3, 0, 2]);
    }

    #[test]
    fn a_command_that_panics_ends_no_other() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let commands = Commands::new("mlx5_0", None);
        let (sender, receiver) = mpsc::channel();
        let last = sender.clone();
        commands.bulk.push(KIND, || panic!("a command of the test"));
        commands.bulk.push(KIND, move || last.send(thread::current().id()).unwrap());
        commands.bulk.serve(runtime.handle());
        let thread = receiver.recv_timeout(LIMIT).unwrap();
        commands.bulk.push(KIND, move || sender.send(thread::current().id()).unwrap());
        commands.bulk.serve(runtime.handle());
        assert_eq!(receiver.recv_timeout(LIMIT), Ok(thread), "the same thread");
        while commands.bulk.shared.state().running.is_some() {
            thread::yield_now();
        }
        assert_eq!(commands.stuck(), None);
    }

    #[test]
    fn drops_of_the_application_hold_no_command_up() {
        /// Waits when it is dropped.
        struct Slow(mpsc::Receiver<()>, mpsc::Sender<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                self.0.recv_timeout(LIMIT).unwrap();
                self.1.send(()).unwrap();
            }
        }
        let runtime = Builder::new_current_thread().build().unwrap();
        let commands = Arc::new(Commands::new("mlx5_0", None));
        let (go_on, may_go_on) = mpsc::channel();
        let (dropped, is_dropped) = mpsc::channel();
        let (slow, its, handle) =
            (Slow(may_go_on, dropped), Arc::clone(&commands), runtime.handle().clone());
        commands.bulk.push(KIND, move || its.release(&handle, slow));
        let (sender, receiver) = mpsc::channel();
        commands.bulk.push(KIND, move || sender.send(()).unwrap());
        commands.bulk.serve(runtime.handle());
        receiver.recv_timeout(LIMIT).expect("the next command runs");
        go_on.send(()).unwrap();
        is_dropped.recv_timeout(LIMIT).unwrap();
    }

    #[test]
    fn a_command_may_drop_the_last_handle() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let commands = Arc::new(Commands::new("mlx5_0", None));
        let (sender, receiver) = mpsc::channel();
        let last = Arc::clone(&commands);
        let (go_on, may_go_on) = mpsc::channel();
        commands.urgent.push(KIND, move || {
            may_go_on.recv_timeout(LIMIT).unwrap();
            drop(last);
            sender.send(()).unwrap();
        });
        commands.urgent.serve(runtime.handle());
        drop(commands);
        go_on.send(()).unwrap();
        receiver.recv_timeout(LIMIT).expect("a thread does not join itself");
    }

    #[tokio::test(start_paused = true)]
    async fn commands_of_a_simulated_device_take_its_time() {
        let (commands, runtime) = (simulated(), Handle::current());
        let (sender, receiver) = mpsc::channel();
        let start = Instant::now();
        for number in 0..3 {
            let sender = sender.clone();
            commands.bulk.push(KIND, move || sender.send((number, start.elapsed())).unwrap());
            commands.bulk.serve(&runtime);
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(commands.stuck(), None, "the second has just begun");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let done: Vec<_> = receiver.try_iter().collect();
        assert_eq!(done, [1, 2, 3].map(|second| (second - 1, Duration::from_secs(second))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_without_an_answer_makes_the_device_stuck() {
        let (commands, runtime) = (simulated(), Handle::current());
        commands.urgent.push(FirmwareCommand::ModifyQueuePair, || {});
        commands.urgent.serve(&runtime);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(commands.pending(), 1);
        let stuck = commands.stuck().unwrap();
        assert_eq!(stuck.command, FirmwareCommand::ModifyQueuePair);
        assert!(stuck.age >= URGENT_MAX, "{stuck:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((commands.stuck(), commands.pending()), (None, 0));
    }

    #[test]
    fn a_runtime_that_goes_away_loses_no_command() {
        let commands = simulated();
        let (sender, receiver) = mpsc::channel();
        let push = |number| {
            let sender = sender.clone();
            commands.bulk.push(KIND, move || sender.send(number).unwrap());
        };
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let handle = runtime.handle().clone();
        (0..3).for_each(push);
        commands.bulk.serve(&handle);
        runtime.block_on(tokio::task::yield_now());
        drop(runtime);
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
        push(3);
        commands.bulk.serve(&handle);
        assert_eq!(receiver.try_recv(), Ok(3));
    }
}
