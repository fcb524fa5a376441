//! Captures the log of a test, for tests that count lines.
//!
//! One subscriber for the whole process hands each line to the log of the thread that said it. A
//! subscriber for each test would not do: whether a subscriber listens to a line is remembered for
//! the whole process, so that a test which begins or ends would make another's lines unheard.

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::Once;

use tracing::level_filters::LevelFilter;

thread_local! {
    static CURRENT: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Captures what this thread logs while it lives. On a current-thread runtime that is everything.
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
        CURRENT.with_borrow_mut(|log| log.iter_mut().for_each(|log| log.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
