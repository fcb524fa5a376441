//! The search for devices, one at a time.
//!
//! Handshakes that come together look once: one of them opens devices, and the others find what it
//! found. A search asks the firmware of every device, which may take a minute to say nothing. The
//! others do not wait that long, each on a thread that the runtime has few of.

use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::device::DeviceError;

/// Longest wait for another search. Firmware that works answers within milliseconds, but a host may
/// have many devices or be busy, and the clients of a server that has just started come during its
/// first search. Both sides may wait so long, and for admission and the proof of the path: less
/// together than the 10 s that a handshake has by default.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(2);

/// The search that is under way, if there is one, and what wakes those that wait for it.
#[derive(Debug, Default)]
pub(super) struct Searches {
    is_under_way: Mutex<bool>,
    ended: Condvar,
}

/// A search that is under way, until this is dropped.
#[derive(Debug)]
#[must_use = "dropped, it is over"]
pub(super) struct UnderWay<'a>(&'a Searches);

impl Searches {
    /// Begins a search when the one before it has ended. Blocks the thread.
    ///
    /// # Errors
    ///
    /// [`DeviceError::SearchPending`] if that takes longer than `wait_max`.
    pub(super) fn begin(&self, wait_max: Duration) -> Result<UnderWay<'_>, DeviceError> {
        let mut is_under_way = self.state();
        self.ended.wait_while_for(&mut is_under_way, |it| *it, wait_max);
        if *is_under_way {
            return Err(DeviceError::SearchPending { waited: wait_max });
        }
        *is_under_way = true;
        Ok(UnderWay(self))
    }

    fn state(&self) -> MutexGuard<'_, bool> {
        self.is_under_way.lock()
    }
}

/// A search that panics has left nothing behind, and is over like any other.
impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        *self.0.state() = false;
        self.0.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_search_that_does_not_end_is_waited_for_only_so_long() {
        let searches = Searches::default();
        let first = searches.begin(Duration::ZERO).unwrap();
        let refused = searches.begin(Duration::ZERO).unwrap_err().to_string();
        assert!(refused.contains("has not ended within 0ns"), "{refused}");
        thread::scope(|scope| {
            // Far longer than the first takes.
            let waiting = scope.spawn(|| searches.begin(Duration::from_secs(60)).map(drop));
            drop(first);
            assert!(waiting.join().unwrap().is_ok());
        });
        drop(searches.begin(Duration::ZERO).unwrap());
    }
}
