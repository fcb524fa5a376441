//! What is logged on this thread, for tests that count its lines.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// The lines of WARN and above.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    text: Arc<Mutex<Vec<u8>>>,
}

impl Log {
    /// Captures what this thread logs while the guard lives. On a current-thread runtime that is
    /// everything.
    pub(crate) fn capture() -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::WARN)
            .with_ansi(false)
            .with_writer(log.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }

    /// The lines so far, which then are forgotten.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        let lines = self.lines();
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clear();
        lines
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
