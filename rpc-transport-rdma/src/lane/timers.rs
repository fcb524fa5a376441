//! One timer for all connections of a worker.
//!
//! Connections tell of their next deadlines, and one task sleeps until the first of them. It is not
//! the worker's own: user code may keep that from running, and a deadline may be about just this.
//! Most connections have no deadline most of the time, and those of large frames are seconds away,
//! so that the task is rarely woken.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The deadlines of a worker's connections.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Each with the tag of its connection. One that is no longer of interest stays until it has
    /// passed, and is ignored then.
    deadlines: Mutex<BTreeSet<(Instant, u32)>>,
    /// There is one before all others.
    sooner: Notify,
}

impl Timers {
    /// Arms the timer of the connection with this tag. The caller may hold that connection's lock.
    pub(crate) fn arm(&self, at: Instant, tag: u32) {
        let is_first = {
            let mut deadlines = self.deadlines();
            deadlines.insert((at, tag));
            deadlines.first() == Some(&(at, tag))
        };
        if is_first {
            self.sooner.notify_one();
        }
    }

    /// Forgets a deadline of a connection that is gone.
    pub(crate) fn disarm(&self, at: Instant, tag: u32) {
        self.deadlines().remove(&(at, tag));
    }

    /// Takes the first deadline if it has passed; gives when it will if not.
    fn take_passed(&self, now: Instant) -> Result<(Instant, u32), Option<Instant>> {
        let mut deadlines = self.deadlines();
        match deadlines.first() {
            Some((at, _)) if *at <= now => deadlines.pop_first().ok_or(None),
            Some((at, _)) => Err(Some(*at)),
            None => Err(None),
        }
    }

    fn deadlines(&self) -> MutexGuard<'_, BTreeSet<(Instant, u32)>> {
        self.deadlines.lock()
    }
}

/// Calls for each deadline that has passed, with the tag of its connection, until the worker has
/// ended.
pub(crate) async fn run(timers: Arc<Timers>, stop: CancellationToken, call: impl Fn(u32, Instant)) {
    loop {
        let next = match timers.take_passed(Instant::now()) {
            Ok((at, tag)) => {
                call(tag, at);
                continue;
            }
            Err(next) => next,
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = timers.sooner.notified() => {}
            () = sleep_until(next) => {}
        }
    }
}

/// Sleeps for ever where there is no deadline.
async fn sleep_until(next: Option<Instant>) {
    match next {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn deadlines_pass_in_order_and_ended_connections_have_none() {
        let (timers, now) = (Timers::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(timers.take_passed(now), Err(None));
        for (seconds, tag) in [(3, 1), (1, 2), (1, 1), (2, 3)] {
            timers.arm(at(seconds), tag);
        }
        timers.disarm(at(2), 3);
        assert_eq!(timers.take_passed(now), Err(Some(at(1))));
        let passed: Vec<_> = std::iter::from_fn(|| timers.take_passed(at(1)).ok()).collect();
        assert_eq!(passed, [(at(1), 1), (at(1), 2)]);
        assert_eq!(timers.take_passed(at(2)), Err(Some(at(3))));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_sooner_deadline_wakes_the_task() {
        use futures::FutureExt;

        let (timers, now) = (Timers::default(), Instant::now());
        timers.arm(now + Duration::from_secs(2), 1);
        timers.sooner.notified().await;
        timers.arm(now + Duration::from_secs(3), 1);
        assert_eq!(timers.sooner.notified().now_or_never(), None);
        timers.arm(now + Duration::from_secs(1), 2);
        timers.sooner.notified().await;
    }
}
