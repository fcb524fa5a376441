//! Word from the holders of a memory budget to the task that makes room in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::holder::MemoryHolder;

/// A request that found no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    /// The holder that was refused.
    pub(crate) holder: MemoryHolder,
    /// Bytes that the holder has.
    pub(crate) held: u64,
    /// Bytes of `held` that the refused connection has.
    pub(crate) connection_held: u64,
    /// Bytes that it was refused.
    pub(crate) amount: u64,
}

/// A signal that memory is short. Raising it again before it is read costs one load.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    is_raised: AtomicBool,
    notify: Notify,
    want: Mutex<Option<Want>>,
}

impl Pressure {
    /// Records that little is free.
    pub(crate) fn raise(&self) {
        if !self.is_raised.load(Ordering::Relaxed) && !self.is_raised.swap(true, Ordering::Relaxed)
        {
            self.notify.notify_one();
        }
    }

    /// Records a refusal. Of several the one of the holder with least stays: room for it is due
    /// before room for any other, and a greedy holder cannot hide it by refusals of its own.
    pub(crate) fn refuse(&self, want: Want) {
        {
            let mut kept = self.want.lock().unwrap_or_else(PoisonError::into_inner);
            let rank = |want: &Want| (want.held, want.connection_held);
            if kept.as_ref().is_none_or(|kept| rank(&want) < rank(kept)) {
                *kept = Some(want);
            }
        }
        self.raise();
    }

    /// Waits until the signal is raised.
    ///
    /// # Cancel safety
    ///
    /// Cancelling loses no signal.
    pub(crate) async fn raised(&self) {
        self.notify.notified().await;
    }

    /// Lowers the signal, and returns the refusal since the last call.
    pub(crate) fn take(&self) -> Option<Want> {
        // Before the refusal is read: one that comes later raises the signal again.
        self.is_raised.store(false, Ordering::Relaxed);
        self.want.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn want(number: u64, held: u64) -> Want {
        let holder = MemoryHolder::Connection(number);
        Want { holder, held, connection_held: held, amount: 1 }
    }

    #[test]
    fn the_refusal_of_the_least_holder_stays() {
        let pressure = Pressure::default();
        [want(1, 50), want(2, 3), want(3, 70)].into_iter().for_each(|want| pressure.refuse(want));
        assert!(pressure.raised().now_or_never().is_some());
        assert_eq!(pressure.take(), Some(want(2, 3)));
        assert_eq!(pressure.take(), None);
    }

    #[test]
    fn a_signal_is_given_once_until_it_is_taken() {
        let pressure = Pressure::default();
        pressure.raise();
        pressure.raise();
        assert!(pressure.raised().now_or_never().is_some());
        assert!(pressure.raised().now_or_never().is_none());
        pressure.take();
        pressure.raise();
        assert!(pressure.raised().now_or_never().is_some());
    }
}
