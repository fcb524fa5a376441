//! The calls that run on all connections of a server together.
//!
//! Beyond the limit a call is refused at once: a queue without bound would only move the moment at
//! which everybody waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The count of running calls, shared by connections.
#[derive(Debug)]
pub struct Load {
    running: AtomicUsize,
    running_max: usize,
}

/// A running call's place. Dropped, it is free again.
#[derive(Debug)]
pub struct LoadPermit {
    load: Arc<Load>,
}

impl Load {
    /// A count of at most `running_max`.
    #[must_use]
    pub fn new(running_max: usize) -> Arc<Self> {
        Arc::new(Self { running: AtomicUsize::new(0), running_max })
    }

    /// The most calls that may run.
    #[must_use]
    pub fn running_max(&self) -> usize {
        self.running_max
    }

    /// Whether there is no place now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.running.load(Ordering::Relaxed) >= self.running_max
    }

    /// Takes a place; `None` when there is none.
    #[must_use]
    pub fn try_start(self: &Arc<Self>) -> Option<LoadPermit> {
        // A count guards no other memory, so no order is asked for.
        let before = self.running.fetch_add(1, Ordering::Relaxed);
        if before < self.running_max {
            return Some(LoadPermit { load: Arc::clone(self) });
        }
        self.running.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for LoadPermit {
    fn drop(&mut self) {
        self.load.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back() {
        let load = Load::new(2);
        let one = load.try_start().unwrap();
        let two = load.try_start().unwrap();
        assert!(load.is_full() && load.try_start().is_none());
        drop(one);
        let three = load.try_start().unwrap();
        assert!(load.try_start().is_none());
        drop((two, three));
        assert!(!load.is_full());
    }
}
