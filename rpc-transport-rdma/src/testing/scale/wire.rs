//! What is on its way: each message arrives [`DELAY`] ticks after it was sent, in order.

use super::plan::DELAY;

/// Messages on their way in one direction, between all ends at once.
#[derive(Debug)]
pub(super) struct Wire<T> {
    /// By the tick in which they arrive, modulo the delay.
    due: [Vec<T>; DELAY],
}

impl<T> Wire<T> {
    pub(super) fn new() -> Self {
        Self { due: std::array::from_fn(|_| Vec::new()) }
    }

    /// Sends in the tick `now`, after [`arrive`](Self::arrive) of the same tick.
    pub(super) fn send(&mut self, now: u64, item: T) {
        self.due[bucket(now)].push(item);
    }

    /// Takes what arrives in the tick `now`, with `emptied` as memory for what is sent in it.
    pub(super) fn arrive(&mut self, now: u64, emptied: Vec<T>) -> Vec<T> {
        std::mem::replace(&mut self.due[bucket(now)], emptied)
    }
}

fn bucket(now: u64) -> usize {
    usize::try_from(now % DELAY as u64).unwrap_or(0)
}
