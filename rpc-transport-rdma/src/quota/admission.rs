//! Admission: the clients' handshakes that one device works for at a time.
//!
//! A handshake makes queue pairs, which are firmware commands, and firmware carries out one after
//! the other. With hundreds of clients at once, each would hold a place and receive slots while it
//! waits for the commands of all others, and most would come to the end of their time with nothing
//! done. So a few are admitted at a time. What cannot be admitted soon is declined: its client is
//! on another path, and tries again.
//!
//! Addresses take turns, each with its handshakes in the order of their arrival: a handshake gets
//! the round after the last one of its address, and rounds are admitted in order (start-time fair
//! queueing). An address that comes with a hundred handshakes delays the first of another by one.
//! No address has more than half of the places that are free in the line.
//!
//! Handshakes run on threads that may block, and wait here as such: the bound on those that wait in
//! the whole process leaves the application half of the threads that a tokio runtime has for that.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rpc_core::quota::PeerKey;

use crate::quota::half_open::HalfOpen;

/// Handshakes that are admitted at a time: enough to keep the firmware busy while some of them wait
/// for the system instead.
const ADMITTED_MAX: usize = 8;

/// Handshakes of the process that wait, of the 512 blocking threads of a tokio runtime.
const WAITING_MAX: u64 = 256;

/// Time that a handshake waits. It has to come to its end within the client's time for an upgrade
/// after that.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Handshakes that wait, for any device.
static WAITING: AtomicU64 = AtomicU64::new(0);

/// The handshakes of one device.
#[derive(Debug)]
pub(crate) struct Admission {
    state: Mutex<State>,
    /// The places in line, by address.
    line: HalfOpen,
    /// Handshakes of clients and of this side that wait or work.
    under_way: AtomicU64,
}

/// A place in line: its round, and its number among all.
type Ticket = (u64, u64);

#[derive(Debug, Default)]
struct State {
    admitted: usize,
    /// Those that wait, each with its address and what wakes it.
    waiting: BTreeMap<Ticket, (PeerKey, Arc<Condvar>)>,
    /// The rounds of the last handshakes of the addresses that wait.
    last_rounds: HashMap<PeerKey, u64>,
    /// The round that was admitted last.
    round: u64,
    last_number: u64,
}

/// An admitted handshake, until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<Admission>);

/// A handshake that waits or works, until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Admission>);

/// Too many handshakes wait, or one has waited for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowded;

/// A handshake's part of the process's line.
struct Place;

impl Place {
    fn take() -> Result<Self, Crowded> {
        // Counted before it is compared: of two that come together at most too few get one.
        let place = Self;
        let before = WAITING.fetch_add(1, Ordering::Relaxed);
        if before < WAITING_MAX { Ok(place) } else { Err(Crowded) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Admission {
    fn default() -> Self {
        Self { state: Mutex::default(), line: HalfOpen::new(), under_way: AtomicU64::new(0) }
    }
}

impl Admission {
    /// Counts a handshake that is about to give commands to the firmware, or to wait for its turn,
    /// until the value is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(Arc::clone(self))
    }

    /// Returns true if no handshake is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
    }

    /// Admits a handshake of the client at `peer`, in its turn. Blocks the thread.
    ///
    /// # Errors
    ///
    /// Returns [`Crowded`] at once if too many wait, or after the longest wait.
    pub(crate) fn admit(self: &Arc<Self>, peer: PeerKey) -> Result<Admitted, Crowded> {
        self.admit_within(peer, WAIT_MAX)
    }

    fn admit_within(
        self: &Arc<Self>,
        peer: PeerKey,
        wait_max: Duration,
    ) -> Result<Admitted, Crowded> {
        let _place = Place::take()?;
        let taken = self.line.count() as u64;
        let share = self.line.try_take(peer, taken, WAITING_MAX.saturating_sub(taken));
        let _share = share.map_err(|_| Crowded)?;
        let end = Instant::now() + wait_max;
        let mut state = self.state();
        let (ticket, turn) = state.enter(peer);
        loop {
            if state.admits(ticket) {
                state.leave(ticket);
                state.admitted += 1;
                state.round = state.round.max(ticket.0);
                state.wake_first();
                return Ok(Admitted(Arc::clone(self)));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.leave(ticket);
                // It may have been the first.
                state.wake_first();
                return Err(Crowded);
            }
            turn.wait_for(&mut state, left);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn enter(&mut self, peer: PeerKey) -> (Ticket, Arc<Condvar>) {
        let last = self.last_rounds.get(&peer).copied().unwrap_or(self.round);
        let round = last.max(self.round) + 1;
        self.last_rounds.insert(peer, round);
        self.last_number += 1;
        let (ticket, turn) = ((round, self.last_number), Arc::<Condvar>::default());
        self.waiting.insert(ticket, (peer, Arc::clone(&turn)));
        (ticket, turn)
    }

    fn leave(&mut self, ticket: Ticket) {
        let Some((peer, _)) = self.waiting.remove(&ticket) else { return };
        // An address that waits no longer is forgotten, so that no number of addresses adds up.
        if !self.waiting.values().any(|(other, _)| *other == peer) {
            self.last_rounds.remove(&peer);
        }
    }

    fn admits(&self, ticket: Ticket) -> bool {
        let first = self.waiting.first_key_value().map(|(first, _)| *first);
        first == Some(ticket) && self.admitted < ADMITTED_MAX
    }

    fn wake_first(&self) {
        if let Some((_, (_, turn))) = self.waiting.first_key_value() {
            turn.notify_one();
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.admitted -= 1;
        state.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, JoinHandle};

    use super::*;

    /// Far longer than anything here takes.
    const LIMIT: Duration = Duration::from_secs(30);

    fn peer(host: u8) -> PeerKey {
        PeerKey::V4([10, 0, 0, host])
    }

    fn fill(admission: &Arc<Admission>) -> Vec<Admitted> {
        (0..ADMITTED_MAX).map(|_| admission.admit(PeerKey::Local).unwrap()).collect()
    }

    /// Handshakes that wait in line, and say the number of their address when they are admitted.
    struct Line {
        admission: Arc<Admission>,
        sender: mpsc::Sender<u8>,
        order: mpsc::Receiver<u8>,
        threads: Vec<JoinHandle<()>>,
    }

    impl Line {
        fn new(admission: &Arc<Admission>) -> Self {
            let (sender, order) = mpsc::channel();
            Self { admission: Arc::clone(admission), sender, order, threads: Vec::new() }
        }

        fn join(&mut self, host: u8) {
            let (admission, sender) = (Arc::clone(&self.admission), self.sender.clone());
            let waiting = thread::spawn(move || {
                let admitted = admission.admit_within(peer(host), LIMIT).unwrap();
                sender.send(host).unwrap();
                drop(admitted);
            });
            self.threads.push(waiting);
            while self.admission.state().waiting.len() != self.threads.len() {
                thread::yield_now();
            }
        }

        /// Lets them in, one at a time.
        fn admit(self, mut admitted: Vec<Admitted>) -> Vec<u8> {
            drop(admitted.pop());
            self.threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(self.admission.state().admitted, ADMITTED_MAX - 1);
            assert!(self.admission.state().last_rounds.is_empty());
            self.order.try_iter().collect()
        }
    }

    #[test]
    fn addresses_take_turns() {
        let admission = Arc::new(Admission::default());
        let admitted = fill(&admission);
        let mut line = Line::new(&admission);
        [1, 1, 1, 1, 2, 3, 2].into_iter().for_each(|host| line.join(host));
        assert_eq!(line.admit(admitted), [1, 2, 3, 1, 2, 1, 1]);
        // One that comes later is not behind in rounds.
        let admitted = fill(&admission);
        let mut line = Line::new(&admission);
        [1, 1, 4].into_iter().for_each(|host| line.join(host));
        assert_eq!(line.admit(admitted), [1, 4, 1]);
    }

    #[test]
    fn a_handshake_that_waits_for_too_long_keeps_out_no_other() {
        let admission = Arc::new(Admission::default());
        let mut admitted = fill(&admission);
        assert!(admission.admit_within(peer(1), Duration::ZERO).is_err());
        drop(admitted.pop());
        drop(admission.admit_within(peer(2), Duration::ZERO).unwrap());
    }

    #[test]
    fn no_address_takes_the_whole_line() {
        let admission = Arc::new(Admission::default());
        let admitted = fill(&admission);
        let mut line = Line::new(&admission);
        // Half of what is left each time: of 256, and of the 128 then.
        let places = usize::try_from(WAITING_MAX / 2).unwrap();
        (0..places).for_each(|_| line.join(1));
        assert!(admission.admit_within(peer(1), LIMIT).is_err(), "it has its share");
        line.join(2);
        let order = line.admit(admitted);
        assert_eq!(order.iter().position(|host| *host == 2), Some(1));
    }
}
