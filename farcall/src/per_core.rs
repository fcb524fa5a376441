//! Threads that each have a tokio runtime of their own.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rpc_core::handoff::set_core;
use tokio::runtime::Builder;
use tokio::sync::watch;

/// Time for blocking tasks of a core to end, after its future. Those that take longer go on as
/// threads of the process.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why a core has ended all others.
enum Failure<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

/// Runs `run(core)` on `cores` threads, each with a current-thread runtime of its own, and returns
/// their outputs in the order of the cores, which begins with 0.
///
/// It is for programs whose work divides by core: each core makes its own calls, and the tasks that
/// it spawns stay there. With [`ChannelBuilder::per_runtime`](crate::ChannelBuilder::per_runtime)
/// the cores share a channel and have a connection each, so that no call crosses from one thread to
/// another. The futures need not be `Send`. The function does not bind threads to processors.
///
/// It blocks its thread until all cores have ended. Call it from `main`, or from
/// `tokio::task::spawn_blocking`.
///
/// A core ends with its future. Tasks that it has spawned are dropped then, and blocking tasks
/// have another second. The first core that fails ends all others: their futures are dropped where
/// they wait. A future that blocks its thread ends when it waits next. To shut down in good order,
/// let the futures return by a signal that all of them look at.
///
/// # Errors
///
/// Returns the error of the core that failed first. That is an `io::Error` where the operating
/// system gives no thread or no runtime.
///
/// # Panics
///
/// Panics if `cores` is 0, and goes on with the panic of a core after it has ended the others.
///
/// # Examples
///
/// ```no_run
/// use std::error::Error;
///
/// use farcall::{Channel, per_core};
///
/// fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
///     let channel = Channel::builder("tcp://10.0.0.1:7000")?.per_runtime(true).connect_lazy();
///     let answered = per_core(4, |core| {
///         let channel = channel.clone();
///         async move { work(core, channel).await }
///     })?;
///     println!("{} calls", answered.iter().sum::<u64>());
///     Ok(())
/// }
/// # async fn work(_: usize, _: Channel) -> Result<u64, Box<dyn Error + Send + Sync>> { Ok(0) }
/// ```
#[track_caller]
pub fn per_core<T, E, F>(cores: usize, run: impl Fn(usize) -> F + Sync) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
    T: Send,
    E: From<io::Error> + Send,
{
    assert!(cores > 0, "per_core needs at least one core");
    let first_failure = Mutex::new(None);
    let stop = watch::Sender::new(false);
    let run_core = |core| match run_on_core(cores, || run(core), stop.subscribe()) {
        Ok(output) => output,
        Err(failure) => {
            let mut first = first_failure.lock();
            first.get_or_insert(failure);
            stop.send_replace(true);
            None
        }
    };
    let run_core = &run_core;
    // Scoped, so that `run` may borrow. No thread of it panics: `run_on_core` catches that.
    let outputs = thread::scope(|scope| {
        let start = |core| {
            let thread = thread::Builder::new().name(format!("core-{core}"));
            thread.spawn_scoped(scope, move || run_core(core))
        };
        let threads: Vec<_> = (0..cores).map(start).collect();
        if threads.iter().any(Result::is_err) {
            // Before the wait for those that have started.
            stop.send_replace(true);
        }
        let join = |thread: io::Result<thread::ScopedJoinHandle<'_, Option<T>>>| {
            Ok(thread?.join().unwrap_or(None))
        };
        threads.into_iter().map(join).collect::<io::Result<Vec<_>>>()
    });
    match first_failure.into_inner() {
        None => Ok(outputs?.into_iter().flatten().collect()),
        Some(Failure::Error(error)) => Err(error),
        Some(Failure::Panic(payload)) => resume_unwind(payload),
    }
}

/// Runs a future on a runtime of this thread, one of `count` cores, until it has ended, or until
/// `stopped`: then there is no output.
fn run_on_core<T, E, F>(
    count: usize,
    run: impl FnOnce() -> F,
    mut stopped: watch::Receiver<bool>,
) -> Result<Option<T>, Failure<E>>
where
    F: Future<Output = Result<T, E>>,
    E: From<io::Error>,
{
    set_core(count, None);
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Error(E::from(error)))?;
    // What unwinds is dropped here. What `run` shares with other cores ends with them.
    let ended = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            tokio::select! {
                ended = run() => ended.map(Some),
                _ = stopped.wait_for(|is_stopped| *is_stopped) => Ok(None),
            }
        })
    }));
    runtime.shutdown_timeout(BLOCKING_TIMEOUT);
    ended.map_err(Failure::Panic)?.map_err(Failure::Error)
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::future::pending;
    use std::panic::AssertUnwindSafe;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::runtime::{self, Handle, RuntimeFlavor};

    use super::*;

    type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

    #[test]
    fn each_core_has_a_runtime_of_one_thread() {
        let all = Barrier::new(3);
        let cores: Outcome<Vec<_>> = per_core(3, |core| {
            // All at once, so that no two runtimes have the same id one after another.
            all.wait();
            async move {
                let runtime = Handle::current();
                let spawned = tokio::spawn(async { thread::current().id() }).await?;
                assert_eq!(spawned, thread::current().id());
                Ok((core, runtime.id(), runtime.runtime_flavor()))
            }
        });
        let cores = cores.unwrap();
        let is_other = |pair: &[(usize, runtime::Id, RuntimeFlavor)]| pair[0].1 != pair[1].1;
        assert!(cores.windows(2).all(is_other), "{cores:?}");
        assert!(cores.iter().map(|core| core.0).eq(0..3), "{cores:?}");
        assert!(cores.iter().all(|core| core.2 == RuntimeFlavor::CurrentThread), "{cores:?}");
    }

    /// Counts when it is dropped.
    struct Counted<'a>(&'a AtomicUsize);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn first_error_ends_the_other_cores() {
        let dropped = AtomicUsize::new(0);
        let ended: Outcome<Vec<()>> = per_core(3, |core| {
            let counted = Counted(&dropped);
            async move {
                if core == 1 {
                    return Err("out of paper".into());
                }
                pending::<()>().await;
                drop(counted);
                Ok(())
            }
        });
        assert_eq!(ended.unwrap_err().to_string(), "out of paper");
        assert_eq!(dropped.into_inner(), 3);
    }

    #[test]
    fn panic_of_a_core_goes_on_after_the_others_ended() {
        let dropped = AtomicUsize::new(0);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            per_core(2, |core| {
                let counted = Counted(&dropped);
                async move {
                    assert_eq!(core, 0, "on purpose");
                    pending::<()>().await;
                    drop(counted);
                    Ok::<_, io::Error>(())
                }
            })
        }));
        let payload = ended.unwrap_err();
        assert!(payload.downcast_ref::<String>().unwrap().contains("on purpose"));
        assert_eq!(dropped.into_inner(), 2);
    }
}
