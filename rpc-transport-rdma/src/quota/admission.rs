//! Admission: the clients' handshakes that one device works for at a time.
//!
//! A handshake makes and connects queue pairs, which are firmware commands, and firmware carries
//! out one after the other. With hundreds of clients at once, each would hold a place and receive
//! slots while it waits for the commands of all others, and most would come to the end of their
//! time with nothing done. So a few are admitted at a time, in the order of their arrival. What
//! cannot be admitted soon is declined: its client is on another path, and tries again.
//!
//! Handshakes run on threads that may block, and wait here as such: the bound on those that wait
//! leaves the application half of the threads that tokio has for that.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Handshakes that are admitted at a time: enough to keep the firmware busy while some of them wait
/// for the system instead.
const ADMITTED_MAX: usize = 8;

/// Handshakes that wait, of the 512 blocking threads of a tokio runtime.
const WAITING_MAX: usize = 256;

/// Time that a handshake waits. It has to come to its end within the client's time for an upgrade
/// after that.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The handshakes of one device.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    admitted: usize,
    /// The tickets of those that wait, the oldest first.
    waiting: VecDeque<u64>,
    last_ticket: u64,
}

/// An admitted handshake, until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<Admission>);

/// Too many handshakes are at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowded {
    /// Those that wait, without this one.
    pub(crate) waiting: usize,
}

impl Admission {
    /// Admits a handshake, after those that came before it. Blocks the thread.
    ///
    /// # Errors
    ///
    /// Returns [`Crowded`] at once if too many wait, or after the longest wait.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<Admitted, Crowded> {
        self.admit_within(WAIT_MAX)
    }

    fn admit_within(self: &Arc<Self>, wait_max: Duration) -> Result<Admitted, Crowded> {
        let mut state = self.state();
        let waiting = state.waiting.len();
        if waiting >= WAITING_MAX {
            return Err(Crowded { waiting });
        }
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.waiting.push_back(ticket);
        let end = Instant::now() + wait_max;
        loop {
            if state.waiting.front() == Some(&ticket) && state.admitted < ADMITTED_MAX {
                state.waiting.pop_front();
                state.admitted += 1;
                // Another may be admitted as well.
                self.changed.notify_all();
                return Ok(Admitted(Arc::clone(self)));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.waiting.retain(|other| *other != ticket);
                // It may have been the first.
                self.changed.notify_all();
                return Err(Crowded { waiting: state.waiting.len() });
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a statement or two, none of which panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.state().admitted -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Far longer than anything here takes.
    const LIMIT: Duration = Duration::from_secs(30);

    fn fill(admission: &Arc<Admission>) -> Vec<Admitted> {
        (0..ADMITTED_MAX).map(|_| admission.admit().unwrap()).collect()
    }

    /// Waits until that many wait.
    fn await_waiting(admission: &Admission, count: usize) {
        while admission.state().waiting.len() != count {
            thread::yield_now();
        }
    }

    #[test]
    fn handshakes_are_admitted_in_the_order_of_their_arrival() {
        let admission = Arc::new(Admission::default());
        let mut admitted = fill(&admission);
        let (sender, order) = mpsc::channel();
        let threads: Vec<_> = (0..20)
            .map(|number| {
                let (admission, sender) = (Arc::clone(&admission), sender.clone());
                let one = Arc::clone(&admission);
                let waiting = thread::spawn(move || {
                    let admitted = one.admit_within(LIMIT).unwrap();
                    sender.send(number).unwrap();
                    drop(admitted);
                });
                await_waiting(&admission, number + 1);
                waiting
            })
            .collect();
        // One at a time.
        drop(admitted.pop());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(order.try_iter().collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
        assert_eq!(admission.state().admitted, ADMITTED_MAX - 1);
    }

    #[test]
    fn a_handshake_that_waits_for_too_long_keeps_out_no_other() {
        let admission = Arc::new(Admission::default());
        let mut admitted = fill(&admission);
        let crowded = admission.admit_within(Duration::ZERO).unwrap_err();
        assert_eq!(crowded, Crowded { waiting: 0 });
        drop(admitted.pop());
        drop(admission.admit_within(Duration::ZERO).unwrap());
    }

    #[test]
    fn only_so_many_handshakes_wait() {
        let admission = Arc::new(Admission::default());
        let admitted = fill(&admission);
        let wait = |_| {
            let admission = Arc::clone(&admission);
            thread::spawn(move || drop(admission.admit_within(LIMIT).unwrap()))
        };
        let threads: Vec<_> = (0..WAITING_MAX).map(wait).collect();
        await_waiting(&admission, WAITING_MAX);
        assert_eq!(admission.admit().unwrap_err(), Crowded { waiting: WAITING_MAX });
        drop(admitted);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(admission.state().admitted, 0);
    }
}
