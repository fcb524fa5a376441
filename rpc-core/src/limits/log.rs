//! Rate limits on log lines that a peer can cause.
//!
//! The rules are those of [`LineLimit`]; here are its clock, its timer and the log. A line's kind
//! is its text, so that what is remembered is bounded by the lines that the code has, and by
//! nothing that a peer sends. `limited_log!` is how such a line is written, and the test `tidy`
//! holds that other lines of WARN and above stand where no peer causes them.

use std::sync::{Arc, LazyLock, Weak};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tracing::Level;

use crate::long_wait::wait_until;
use crate::policy::line_limit::LineLimit;

/// Decides which lines are written, for one server, one channel or one process. Clones share it.
///
/// Its timer is a task that exists while a count is left to be said. When the last clone or the
/// runtime goes, what is left is said at once. The limit of the process belongs to no runtime and
/// has no timer: there a count is said with the next line of any kind that comes when it is due.
#[derive(Debug, Clone, Default)]
pub struct LogLimit {
    shared: Arc<Shared>,
}

/// Number of suppressed lines of a kind before one that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut(u64);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kinds: Vec<Kind>,
    timing: Timing,
}

/// Flushes suppressed-line counts when no line of their kind follows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Timing {
    /// A task, from the next line that is left out.
    #[default]
    Due,
    /// A task that waits for the next count that is due.
    Task,
    /// Lines of other kinds.
    Lines,
}

#[derive(Debug)]
struct Kind {
    line: &'static str,
    level: Level,
    limit: LineLimit,
}

/// A count that is to be said by itself.
struct Count {
    line: &'static str,
    level: Level,
    left_out: u64,
}

/// The limit of a timer's task: says what is left when the task is dropped with its runtime.
struct Timer(Weak<Shared>);

impl LeftOut {
    /// The count as a field of a line; a line before which none was left out has no such field.
    #[must_use]
    pub fn field(self) -> Option<u64> {
        Some(self.0).filter(|count| *count > 0)
    }
}

impl LogLimit {
    /// The limit of lines about what all servers and channels of the process share, as a device.
    #[must_use]
    pub fn process_wide() -> &'static Self {
        static OF_PROCESS: LazyLock<LogLimit> = LazyLock::new(|| {
            let limit = LogLimit::default();
            limit.shared.state().timing = Timing::Lines;
            limit
        });
        &OF_PROCESS
    }

    /// A line of the kind `line` is to be written: `Some` when it may be.
    #[must_use]
    pub fn admit(&self, level: Level, line: &'static str) -> Option<LeftOut> {
        let now = now();
        let (left_out, counts) = {
            let mut state = self.shared.state();
            let left_out = state.kind(level, line).handle_line(now);
            // A timer needs a runtime. Without one, later lines or the end of the limit say the
            // count.
            if left_out.is_none()
                && state.timing == Timing::Due
                && let Ok(runtime) = Handle::try_current()
            {
                state.timing = Timing::Task;
                runtime.spawn(keep_time(Timer(Arc::downgrade(&self.shared))));
            }
            (left_out, state.counts(|limit| limit.handle_due(now)))
        };
        counts.into_iter().for_each(Count::log);
        left_out.map(LeftOut)
    }
}

impl State {
    fn kind(&mut self, level: Level, line: &'static str) -> &mut LineLimit {
        let known = self.kinds.iter().position(|kind| kind.line == line);
        let at = known.unwrap_or_else(|| {
            self.kinds.push(Kind { line, level, limit: LineLimit::default() });
            self.kinds.len() - 1
        });
        &mut self.kinds[at].limit
    }

    fn counts(&mut self, take: impl Fn(&mut LineLimit) -> Option<u64>) -> Vec<Count> {
        let count = |Kind { line, level, limit }: &mut Kind| {
            take(limit).map(|left_out| Count { line, level: *level, left_out })
        };
        self.kinds.iter_mut().filter_map(count).collect()
    }

    fn due(&self) -> Option<Instant> {
        self.kinds.iter().filter_map(|kind| kind.limit.due()).min()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Says what is due; gives when to look again, if ever. The task ends then, under the lock
    /// under which the next one would be begun.
    fn look(&self) -> Option<Instant> {
        let now = now();
        let (counts, due) = {
            let mut state = self.state();
            let counts = state.counts(|limit| limit.handle_due(now));
            let due = state.due();
            if due.is_none() {
                state.timing = Timing::Due;
            }
            (counts, due)
        };
        counts.into_iter().for_each(Count::log);
        due
    }

    /// Says what is left.
    fn close(&self) {
        let counts = self.state().counts(LineLimit::close);
        counts.into_iter().for_each(Count::log);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else { return };
        shared.state().timing = Timing::Due;
        shared.close();
    }
}

impl Count {
    /// Not under a lock, since a subscriber may cause lines itself.
    fn log(self) {
        let Self { line, level, left_out } = self;
        if level == Level::INFO {
            tracing::info!(target: "farcall::log", line, left_out, "suppressed repeated lines");
        } else {
            tracing::warn!(target: "farcall::log", line, left_out, "suppressed repeated lines");
        }
    }
}

async fn keep_time(mut timer: Timer) {
    loop {
        // The strong reference is dropped before the wait: held across it, the limit would outlive
        // its last clone, and its counts would be late.
        let Some(due) = timer.0.upgrade().and_then(|shared| shared.look()) else {
            // The next timer may be there already, and what is left is its.
            timer.0 = Weak::new();
            return;
        };
        wait_until(due).await;
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Writes a line that a peer can cause, unless there were many of its kind: its target; a limit, or
/// `process_wide` for that of the process; a level; the line, which is its kind; and its fields.
#[doc(hidden)]
#[macro_export]
macro_rules! limited_log {
    (target: $target:literal, process_wide, $($line:tt)+) => {
        $crate::limited_log!(
            target: $target, $crate::limits::log::LogLimit::process_wide(), $($line)+
        )
    };
    (target: $target:literal, $limit:expr, $level:ident, $line:literal, $($fields:tt)+) => {
        if let Some(left_out) = $limit.admit(tracing::Level::$level, $line) {
            tracing::event!(
                target: $target,
                tracing::Level::$level,
                $($fields)+,
                left_out = left_out.field(),
                $line
            );
        }
    };
}

#[cfg(test)]
pub(crate) mod captured {
    //! Captures the log of a test, for tests that count lines.
    //!
    //! One subscriber for the whole process hands each line to the log of the thread that said it.
    //! A subscriber for each test would not do: whether a subscriber listens to a line is
    //! remembered for the whole process, so that a test which begins or ends would make another's
    //! lines unheard.

    use std::cell::RefCell;
    use std::io;
    use std::marker::PhantomData;
    use std::sync::Once;

    use tracing::level_filters::LevelFilter;

    thread_local! {
        static CURRENT: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    }

    /// Captures what this thread logs while it lives. On a current-thread runtime that is
    /// everything.
    pub(crate) struct CapturedLog(PhantomData<*const ()>);

    impl CapturedLog {
        /// Begins.
        pub(crate) fn start() -> Self {
            static LISTENING: Once = Once::new();
            LISTENING.call_once(|| {
                let subscriber = tracing_subscriber::fmt()
                    .with_max_level(LevelFilter::TRACE)
                    .with_ansi(false)
                    .with_writer(|| ThreadWriter)
                    .finish();
                tracing::subscriber::set_global_default(subscriber).expect("there is no other");
            });
            CURRENT.set(Some(Vec::new()));
            Self(PhantomData)
        }

        /// The lines so far, which then are forgotten.
        pub(crate) fn take_lines(&self) -> Vec<String> {
            let bytes = CURRENT.replace(Some(Vec::new())).unwrap_or_default();
            String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
        }
    }

    impl Drop for CapturedLog {
        fn drop(&mut self) {
            CURRENT.set(None);
        }
    }

    /// Writes to the log of the thread it is used on, or nowhere.
    struct ThreadWriter;

    impl io::Write for ThreadWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            CURRENT
                .with_borrow_mut(|log| log.iter_mut().for_each(|log| log.extend_from_slice(bytes)));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limits::log::captured::CapturedLog;
    use crate::policy::line_limit::{BURST, INTERVAL};

    const EXCESS: u64 = 990;

    fn flood(limit: &LogLimit) {
        for number in 0..u64::from(BURST) + EXCESS {
            limited_log!(target: "farcall::log", limit, WARN, "a flood", number);
        }
    }

    fn is_count(line: &str) -> bool {
        let parts = ["suppressed repeated lines", "line=\"a flood\"", "left_out=990"];
        parts.iter().all(|part| line.contains(part))
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_line_says_how_many_were_left_out() {
        let (log, limit) = (CapturedLog::start(), LogLimit::default());
        flood(&limit);
        let lines = log.take_lines();
        assert_eq!(lines.len(), 10, "{lines:?}");
        assert!(lines.iter().all(|line| !line.contains("left_out")), "{lines:?}");
        tokio::time::sleep(INTERVAL).await;
        limited_log!(target: "farcall::log", limit, WARN, "a flood", number = 1);
        limited_log!(target: "farcall::log", limit, INFO, "another kind", number = 2);
        let lines = log.take_lines();
        assert!(lines[0].contains("left_out=990") && lines[0].contains("number=1"), "{lines:?}");
        assert_eq!(lines.len(), 2, "kinds are counted apart: {lines:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_count_is_said_when_no_line_follows() {
        let (log, limit) = (CapturedLog::start(), LogLimit::default());
        for _ in 0..3 {
            flood(&limit);
            assert_eq!(log.take_lines().len(), 10);
            tokio::time::sleep(2 * INTERVAL - Duration::from_secs(1)).await;
            assert_eq!(log.take_lines(), [""; 0]);
            tokio::time::sleep(Duration::from_secs(2)).await;
            let lines = log.take_lines();
            assert!(lines.len() == 1 && is_count(&lines[0]), "{lines:?}");
            assert_eq!(limit.shared.state().timing, Timing::Due, "the timer's task has ended");
            tokio::time::sleep(INTERVAL * BURST).await;
        }
    }

    #[test]
    fn the_count_is_said_when_the_server_or_the_runtime_goes() {
        let (log, limit) = (CapturedLog::start(), LogLimit::default());
        flood(&limit);
        drop(limit);
        let lines = log.take_lines();
        assert!(lines.len() == 11 && is_count(&lines[10]), "without a runtime: {lines:?}");

        let limit = LogLimit::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            flood(&limit);
            tokio::task::yield_now().await;
        });
        drop(runtime);
        let lines = log.take_lines();
        assert!(lines.len() == 11 && is_count(&lines[10]), "with its runtime: {lines:?}");
        assert_eq!(limit.shared.state().timing, Timing::Due, "another runtime may have a timer");
    }

    #[tokio::test(start_paused = true)]
    async fn the_process_limit_reports_counts_with_other_lines() {
        let (log, limit) = (CapturedLog::start(), LogLimit::process_wide());
        flood(limit);
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
        tokio::time::sleep(INTERVAL).await;
        limited_log!(target: "farcall::log", process_wide, WARN, "another kind", number = 1);
        tokio::time::sleep(INTERVAL).await;
        limited_log!(target: "farcall::log", process_wide, WARN, "another kind", number = 2);
        let lines = log.take_lines();
        assert_eq!(lines.len(), 13, "{lines:#?}");
        assert!(is_count(&lines[11]) && lines[12].contains("number=2"), "{lines:#?}");
    }
}
