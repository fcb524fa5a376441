//! Memory pressure: who holds memory, word of a refusal, and the connections that end for it.
//!
//! The holders of a budget raise [`Pressure`] when little is free, and [`Relief`] chooses the
//! connections that end.
//!
//! A threshold binds a holder when it takes, and never afterwards. A holder that came first may
//! keep half for as long as it likes: its peers only have to read nothing. So what a holder has
//! beyond its fair share, `1 / (n + 1)` of what can be lent to `n` holders, is its own only while
//! it moves:
//!
//! - a holder that was refused within its fair share gets room;
//! - and a part stays free, so that holders that come next need not be refused first.
//!
//! The room comes from connections that take next to nothing of what waits for them, or send
//! nothing more of a frame that they began: first from those of the holder that has most. Others
//! stay, though their holder has more than its share. A refused connection whose own address has
//! taken the share gets room from the largest such connection of that address.
//!
//! Time is an argument, and nothing here ends anything.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limits::quota::PeerKey;
use crate::policy::progress::{Flow, Flows};

/// The time in which a connection has to move something, or enough: longer than a link between
/// continents takes to deliver again what it lost, and short enough for the reserve to last.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// The time in which a peer has to be able to take what it makes this side hold. Slower ones give
/// way when memory is short: a peer that reads a byte now and then would be never found otherwise.
const DRAIN_SECONDS: u64 = 30;

/// The time for which a refusal is remembered: two looks that end connections. Until then the
/// refused holder counts as one, even if it has nothing.
const WANTED_FOR: Duration = Duration::from_secs(2);

/// The part of what can be lent that is little: with less than a quarter free, holders that take
/// nothing give way.
const LITTLE_PART: u64 = 4;

/// A holder of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MemoryHolder {
    /// All connections of an address, those in their handshake included.
    Peer(PeerKey),
    /// A connection whose peer has no address. Such peers have nothing in common by which one of
    /// them could be told from the others.
    Connection(u64),
}

impl MemoryHolder {
    /// The holder that connection `number` of `peer` belongs to.
    pub(crate) fn new(peer: PeerKey, number: u64) -> Self {
        match peer {
            PeerKey::Local => Self::Connection(number),
            PeerKey::V4(_) | PeerKey::V6(_) => Self::Peer(peer),
        }
    }
}

impl fmt::Display for MemoryHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(peer) => peer.fmt(f),
            Self::Connection(_) => write!(f, "a connection of {}", PeerKey::Local),
        }
    }
}

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
            let mut kept = self.want.lock();
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
        self.want.lock().take()
    }
}

/// A connection that holds memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holding {
    /// Its number, which no later connection has.
    pub(crate) number: u64,
    pub(crate) holder: MemoryHolder,
    /// Bytes.
    pub(crate) held: u64,
    pub(crate) flows: Flows,
}

/// A budget as it is at a look.
#[derive(Debug)]
pub(crate) struct Usage {
    /// Bytes that holders beyond their floor share.
    pub(crate) lendable: u64,
    /// Bytes that all holders have.
    pub(crate) total: u64,
    /// Bytes of each holder that has any.
    pub(crate) holders: HashMap<MemoryHolder, u64>,
}

/// The looks at a budget of which little is free.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    watched: HashMap<u64, Watched>,
    want: Option<(Want, Instant)>,
}

/// A connection, as it was seen so far.
#[derive(Debug, Default)]
struct Watched {
    sending: Pace,
    receiving: Pace,
    /// Set when it was chosen: its memory counts as free, though it may not be yet.
    is_ended: bool,
}

/// The pace of one direction.
#[derive(Debug, Default)]
struct Pace {
    moved_bytes: u64,
    /// The beginning of the time in which too little has moved.
    since: Option<Instant>,
}

impl Pace {
    /// Returns true if less than `least` bytes have moved per second, for [`STALLED_AFTER`].
    fn is_slow(&mut self, now: Instant, flow: Flow, least: u64) -> bool {
        let since = self.since.filter(|_| flow.is_waiting);
        let elapsed = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let moved = flow.moved_bytes.saturating_sub(self.moved_bytes);
        // Any movement is enough at once, if it is as much as the whole time asks for.
        let millis = u64::try_from(STALLED_AFTER.max(elapsed).as_millis()).unwrap_or(u64::MAX);
        let is_enough = moved > 0 && moved >= least.saturating_mul(millis) / 1000;
        if since.is_none() || is_enough {
            (self.moved_bytes, self.since) = (flow.moved_bytes, flow.is_waiting.then_some(now));
            return false;
        }
        elapsed >= STALLED_AFTER
    }
}

impl Watched {
    fn is_slow(&mut self, now: Instant, holding: &Holding) -> bool {
        let Flows { sending, receiving } = holding.flows;
        let sends_slowly = self.sending.is_slow(now, sending, holding.held / DRAIN_SECONDS);
        // What is received is counted in units that only show that something moved.
        self.receiving.is_slow(now, receiving, 0) || sends_slowly
    }
}

impl Relief {
    /// Looks at the connections that hold something, and returns the numbers of those that have to
    /// end. `want` is a refusal since the last look.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        mut usage: Usage,
        holdings: &[Holding],
        want: Option<Want>,
    ) -> Vec<u64> {
        let mut slow = self.watch(now, &mut usage, holdings);
        self.note(now, want);
        let want = self.want.map(|(want, _)| want);
        let is_new = want.is_some_and(|want| !usage.holders.contains_key(&want.holder));
        let holder_count = usage.holders.len() as u64 + u64::from(is_new);
        let fair = usage.lendable / (holder_count + 1);
        let mut ended = Vec::new();
        let mut end = |usage: &mut Usage, holding: Holding| {
            usage.give_back(&holding);
            self.watched.entry(holding.number).or_default().is_ended = true;
            ended.push(holding.number);
        };
        let due = want.filter(|want| want.held.saturating_add(want.amount) <= fair);
        while usage.is_short(due) {
            let is_over = |holding: &Holding| usage.held_by(holding.holder) > fair;
            let rank = |holding: &Holding| (usage.held_by(holding.holder), holding.held);
            let candidates = (0..slow.len()).filter(|at| is_over(&slow[*at]));
            let Some(at) = candidates.max_by_key(|at| rank(&slow[*at])) else { break };
            end(&mut usage, slow.swap_remove(at));
        }
        // The refused connection's own address has its share: one of its connections may be in the
        // others' way.
        if let Some(want) = want
            && due.is_none()
        {
            let candidates = slow.iter().filter(|holding| holding.holder == want.holder);
            let largest = candidates.max_by_key(|holding| holding.held).copied();
            let least = want.connection_held.saturating_add(want.amount);
            if let Some(holding) = largest.filter(|holding| holding.held > least) {
                end(&mut usage, holding);
            }
        }
        if due.is_none_or(|_| !usage.is_short(due)) {
            self.want = None;
        }
        ended
    }

    /// Returns true if another look is due.
    pub(crate) fn is_needed(&self, usage: &Usage) -> bool {
        self.want.is_some() || usage.is_short(None)
    }

    /// Remembers a refusal, unless one of a holder with less is remembered.
    fn note(&mut self, now: Instant, want: Option<Want>) {
        let is_current = |since: &Instant| now.saturating_duration_since(*since) < WANTED_FOR;
        let kept = self.want.filter(|(_, since)| is_current(since));
        let newer = want.map(|want| (want, now));
        let all = kept.into_iter().chain(newer);
        self.want = all.min_by_key(|(want, _)| (want.held, want.connection_held));
    }

    /// Sees how each connection moves, and returns the slow ones. Those that were chosen before,
    /// and have not given back all yet, count as if they had.
    fn watch(&mut self, now: Instant, usage: &mut Usage, holdings: &[Holding]) -> Vec<Holding> {
        let mut before = std::mem::take(&mut self.watched);
        let mut slow = Vec::new();
        for holding in holdings {
            let mut watched = before.remove(&holding.number).unwrap_or_default();
            if watched.is_ended {
                usage.give_back(holding);
            } else if watched.is_slow(now, holding) {
                slow.push(*holding);
            }
            self.watched.insert(holding.number, watched);
        }
        slow
    }
}

impl Usage {
    fn held_by(&self, holder: MemoryHolder) -> u64 {
        self.holders.get(&holder).copied().unwrap_or(0)
    }

    /// Counts as free what a connection holds.
    fn give_back(&mut self, holding: &Holding) {
        self.total = self.total.saturating_sub(holding.held);
        let held = self.held_by(holding.holder).saturating_sub(holding.held);
        match held {
            0 => self.holders.remove(&holding.holder),
            held => self.holders.insert(holding.holder, held),
        };
    }

    /// Returns true if little is free, or not enough for `due`.
    fn is_short(&self, due: Option<Want>) -> bool {
        let free = self.lendable.saturating_sub(self.total);
        // As much has to be free as the holder then has.
        let needed = due.map_or(0, |want| want.held.saturating_add(want.amount.saturating_mul(2)));
        free < free_target(self.lendable).max(needed)
    }
}

/// The bytes that are to be free of a budget: with less, holders that take nothing give way.
pub(crate) fn free_target(lendable: u64) -> u64 {
    lendable / LITTLE_PART
}

#[cfg(test)]
#[path = "relief_tests.rs"]
mod tests;
