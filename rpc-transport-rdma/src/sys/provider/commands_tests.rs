//! Queues that a thread or a task serves, what is carried out without either, and stuck commands.

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
async fn a_command_that_a_thread_waits_for_makes_the_device_stuck() {
    let commands = simulated();
    let first = commands.await_firmware(FirmwareCommand::CreateQueuePair);
    tokio::time::advance(BULK_MAX / 2).await;
    let second = commands.await_firmware(KIND);
    assert_eq!(commands.stuck(), None);
    tokio::time::advance(BULK_MAX / 2).await;
    let stuck = commands.stuck().unwrap();
    assert_eq!((stuck.command, stuck.age), (FirmwareCommand::CreateQueuePair, BULK_MAX));
    drop(first);
    assert_eq!(commands.stuck(), None);
    tokio::time::advance(BULK_MAX).await;
    assert_eq!(commands.stuck().map(|it| it.command), Some(KIND));
    drop(second);
    assert_eq!((commands.stuck(), commands.slowest()), (None, BULK_MAX * 3 / 2));
}

#[tokio::test(start_paused = true)]
async fn the_slowest_command_is_known_from_100_ms_on() {
    let commands = simulated();
    let awaited = commands.await_firmware(KIND);
    tokio::time::advance(SLOW_MIN - Duration::from_millis(1)).await;
    drop(awaited);
    assert_eq!(commands.slowest(), Duration::ZERO);
    commands.bulk.push(KIND, || ());
    commands.bulk.serve(&Handle::current());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(commands.slowest(), Duration::from_secs(1));
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
