//! The standard error of a child process.

use std::io::Read;
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum length of a kept log, in bytes. The rest is read and discarded, so that the process
/// never waits for its reader.
const LOG_LEN_MAX: usize = 16 << 20;

/// The standard error of a process so far.
#[derive(Debug, Clone, Default)]
pub struct ProcessLog {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl ProcessLog {
    /// Reads `pipe` to its end on a thread of its own.
    pub(super) fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let log = Self::default();
        let kept = log.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = pipe.read(&mut buffer) {
                kept.add(&buffer[..len]);
            }
        });
        log
    }

    /// Returns the log so far.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }

    fn add(&self, bytes: &[u8]) {
        let mut kept = self.bytes.lock();
        let room = LOG_LEN_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}
