//! A fair semaphore: peers share its permits by a fair queue.
//!
//! The permits are bytes of a device's READs or units of its memory, which all connections of the
//! device have in common. [`FairQueue`] decides what a peer gets; here are the lock around it and
//! the tasks that wait. A peer is an address: one that opens many connections has one share.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rpc_core::quota::Bound;
use rpc_core::quota::PeerKey;
use tokio::sync::oneshot;

use crate::quota::queue::{Claim, FairQueue, Ticket};

/// Permits that peers share.
pub(crate) struct FairSemaphore(Mutex<SemaphoreState>);

struct SemaphoreState {
    queue: FairQueue<PeerKey>,
    /// The tasks that wait, by the numbers of their tickets.
    tasks: HashMap<u64, oneshot::Sender<FairPermit>>,
}

/// A peer's share of a semaphore.
#[derive(Debug, Clone)]
pub(crate) struct PeerShare {
    semaphore: Arc<FairSemaphore>,
    peer: PeerKey,
}

/// Permits of one peer. Dropped, they are given back.
#[must_use]
pub(crate) struct FairPermit {
    share: PeerShare,
    amount: u64,
}

/// More was asked for than there will ever be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMuch;

/// The place of a task in the line, until it is served or dropped.
struct Waiter<'a> {
    share: &'a PeerShare,
    ticket: Ticket<PeerKey>,
}

impl FairSemaphore {
    /// A semaphore of `max` permits.
    pub(crate) fn new(max: u64) -> Arc<Self> {
        let state = SemaphoreState { queue: FairQueue::new(max), tasks: HashMap::new() };
        Arc::new(Self(Mutex::new(state)))
    }

    /// Returns the amount that all peers have.
    pub(crate) fn total(&self) -> u64 {
        self.state().queue.total()
    }

    /// The share of a peer.
    pub(crate) fn share(self: &Arc<Self>, peer: PeerKey) -> PeerShare {
        PeerShare { semaphore: Arc::clone(self), peer }
    }

    fn state(&self) -> MutexGuard<'_, SemaphoreState> {
        self.0.lock()
    }

    /// Changes the queue and hands out what can be had after that.
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut SemaphoreState) -> R) -> R {
        let mut served = Vec::new();
        let result = {
            let mut state = self.state();
            let result = change(&mut state);
            while let Some((ticket, amount)) = state.queue.next() {
                // Without a task to take it the permit is dropped below, and so given back.
                let permit = FairPermit { share: self.share(ticket.holder), amount };
                served.push((state.tasks.remove(&ticket.number), permit));
            }
            result
        };
        // The lock is free: a permit whose task is gone comes back here, and takes it again.
        for (task, permit) in served {
            if let Some(task) = task {
                drop(task.send(permit));
            }
        }
        result
    }
}

impl PeerShare {
    /// Takes permits if they are there at once and no earlier claim waits for them.
    pub(crate) fn try_take(&self, amount: u64) -> Option<FairPermit> {
        let is_taken = self.semaphore.state().queue.try_take(self.claim(amount));
        is_taken.then(|| FairPermit { share: self.clone(), amount })
    }

    /// Takes permits, waiting for them in line.
    ///
    /// # Errors
    ///
    /// Returns [`TooMuch`] if the semaphore has never had as many.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up its place in the line and nothing else.
    pub(crate) async fn take(&self, amount: u64) -> Result<FairPermit, TooMuch> {
        let (task, served) = oneshot::channel();
        let ticket = self.semaphore.change(|state| {
            let ticket = state.queue.join(self.claim(amount))?;
            state.tasks.insert(ticket.number, task);
            Some(ticket)
        });
        let _waiter = Waiter { share: self, ticket: ticket.ok_or(TooMuch)? };
        // The sender is dropped unused only by the waiter, which is here.
        served.await.map_err(|_| TooMuch)
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> u64 {
        self.semaphore.state().queue.held(self.peer)
    }

    /// Returns the peer's amount, if that alone keeps it from `amount` now.
    pub(crate) fn held_if_full(&self, amount: u64) -> Option<u64> {
        let state = self.semaphore.state();
        let (held, has_room) = (state.queue.held(self.peer), state.queue.has_room(amount));
        (held > 0 && has_room).then_some(held)
    }

    fn claim(&self, amount: u64) -> Claim<PeerKey> {
        Claim { holder: self.peer, bound: bound_of(self.peer), amount }
    }
}

/// Returns the bound of a peer. This process itself and peers without a known address have only the
/// total: all such peers would be one.
fn bound_of(peer: PeerKey) -> Bound {
    match peer {
        PeerKey::Local => Bound::Fixed(u64::MAX),
        PeerKey::V4(_) | PeerKey::V6(_) => Bound::Dynamic { floor: 0 },
    }
}

impl FairPermit {
    /// Splits off `amount`; `None` when it is less than that.
    pub(crate) fn split(&mut self, amount: u64) -> Option<Self> {
        self.amount = self.amount.checked_sub(amount)?;
        Some(Self { share: self.share.clone(), amount })
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let Self { share, amount } = self;
        if *amount > 0 {
            share.semaphore.change(|state| state.queue.give_back(share.peer, *amount));
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let semaphore = &self.share.semaphore;
        // A ticket that was served is in the line no longer, and its permit is the task's.
        let task = {
            let mut state = semaphore.state();
            state.tasks.remove(&self.ticket.number)
        };
        if task.is_some() {
            semaphore.change(|state| state.queue.leave(self.ticket));
        }
    }
}

impl fmt::Debug for FairSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (max, total) = {
            let state = self.state();
            (state.queue.max(), state.queue.total())
        };
        f.debug_struct("FairSemaphore").field("max", &max).field("total", &total).finish()
    }
}

impl fmt::Debug for FairPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} permits of {}", self.amount, self.share.peer)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::poll_immediate;

    use super::*;

    const GREEDY: PeerKey = PeerKey::V4([10, 0, 0, 2]);
    const HONEST: PeerKey = PeerKey::V4([10, 0, 0, 3]);

    #[tokio::test]
    async fn a_peer_that_waits_for_its_own_share_delays_no_other() {
        let semaphore = FairSemaphore::new(16);
        let (greedy, honest) = (semaphore.share(GREEDY), semaphore.share(HONEST));
        let held = greedy.try_take(8).unwrap();
        assert!(greedy.try_take(1).is_none());
        let mut waiting = std::pin::pin!(greedy.take(1));
        assert!(poll_immediate(waiting.as_mut()).await.is_none());
        let second = honest.take(2).now_or_never().expect("at once").unwrap();
        assert_eq!((greedy.held(), honest.held(), semaphore.total()), (8, 2, 10));
        drop(held);
        let served = waiting.await.unwrap();
        drop((served, second));
        assert_eq!(semaphore.total(), 0);
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_gives_its_place_back() {
        let semaphore = FairSemaphore::new(16);
        let (one, other) = (semaphore.share(GREEDY), semaphore.share(HONEST));
        let held = one.try_take(8).unwrap();
        let mut long = Box::pin(other.take(16));
        assert!(poll_immediate(long.as_mut()).await.is_none());
        let third = semaphore.share(PeerKey::V4([10, 0, 0, 4]));
        let mut behind = std::pin::pin!(third.take(1));
        assert!(poll_immediate(behind.as_mut()).await.is_none());
        drop(long);
        let served = behind.now_or_never().expect("its way is free").unwrap();
        drop((held, served));
        assert_eq!((semaphore.total(), semaphore.state().tasks.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_permit_that_its_task_no_longer_waits_for_comes_back() {
        let semaphore = FairSemaphore::new(16);
        let (one, other) = (semaphore.share(GREEDY), semaphore.share(HONEST));
        let held = one.try_take(16).unwrap();
        let mut served = Box::pin(other.take(16));
        assert!(poll_immediate(served.as_mut()).await.is_none());
        drop(held);
        assert_eq!(other.held(), 16, "it is served, and has not looked");
        drop(served);
        assert_eq!(semaphore.total(), 0);
    }

    #[tokio::test]
    async fn more_than_there_is_is_refused_and_not_waited_for() {
        let share = FairSemaphore::new(16).share(HONEST);
        assert_eq!(share.take(17).await.err(), Some(TooMuch));
        let mut permit = share.take(16).await.unwrap();
        assert!(permit.split(17).is_none());
        drop(permit.split(6));
        assert_eq!(share.held(), 10);
    }

    /// Tasks of several threads take, wait, give up and give back.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_lost_between_threads() {
        let semaphore = FairSemaphore::new(16);
        let tasks = (0..16u8).map(|task| {
            let share = semaphore.share(PeerKey::V4([10, 0, 0, task % 5]));
            tokio::spawn(async move {
                for round in 0..500 {
                    let amount = 1 + (u64::from(task) + round) % 16;
                    let mut taking = Box::pin(share.take(amount));
                    let permit = match poll_immediate(taking.as_mut()).await {
                        Some(permit) => permit,
                        // It gives up, perhaps when it has just been served.
                        None if round % 3 == 0 => continue,
                        None => taking.await,
                    };
                    tokio::task::yield_now().await;
                    drop(permit.unwrap());
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let state = semaphore.state();
        assert_eq!((state.queue.total(), state.tasks.len()), (0, 0));
    }
}
