//! Captures the log of this thread, for tests that count its lines.
//!
//! One subscriber for the whole process hands each line to the log of the thread that said it. A
//! subscriber for each test would not do: whether anybody listens to a line is remembered for the
//! whole process, and a test that begins or ends at that moment can make another's line unheard.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;

thread_local! {
    static CURRENT: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// The lines of INFO and above. Tests count those of WARN and above.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    text: Arc<Mutex<Vec<u8>>>,
}

/// While it lives, what its thread logs is captured.
#[derive(Debug)]
pub(crate) struct Capturing(());

impl Drop for Capturing {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

impl Log {
    /// Captures what this thread logs while the guard lives. On a current-thread runtime that is
    /// everything.
    pub(crate) fn capture() -> (Self, Capturing) {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(|| {
            let subscriber = tracing_subscriber::fmt()
                .with_max_level(LevelFilter::INFO)
                .with_ansi(false)
                .with_writer(|| ThreadWriter);
            subscriber.init();
        });
        let log = Self::default();
        CURRENT.set(Some(log.clone()));
        (log, Capturing(()))
    }

    /// The lines of WARN and above so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = self.all_lines();
        // The time stands before the level.
        lines.retain(|line| line.split_whitespace().nth(1) != Some("INFO"));
        lines
    }

    /// The lines of INFO and above so far.
    pub(crate) fn all_lines(&self) -> Vec<String> {
        let text = self.text.lock();
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }

    /// The lines so far, which then are forgotten.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        let lines = self.lines();
        self.text.lock().clear();
        lines
    }
}

/// Writes to the log of the thread it is used on, or nowhere.
struct ThreadWriter;

impl io::Write for ThreadWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        CURRENT.with_borrow(|log| {
            if let Some(log) = log {
                let mut text = log.text.lock();
                text.extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
