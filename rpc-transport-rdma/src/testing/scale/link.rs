//! One connection: an end at the server, an end at its peer, what the peer does, and what is on its
//! way. Each message arrives [`DELAY`] ticks after it was sent, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::proto::flow::window::{FlowWindow, HeldQuota};
use crate::quota::slots::{Full, RESERVE, SharedQuota, SlotQuota};
use crate::stats::lane::ActivityCounters;
use crate::testing::scale::end::{ENDLESS, End, Message};
use crate::testing::scale::plan::{DELAY, Shape};

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) lane: u32,
    server: End,
    peer: End,
    is_greedy: bool,
    /// Messages on their way to the server or in its slots.
    toward_server: u32,
    /// Start times of the unanswered calls, if their latency is measured.
    requested: VecDeque<u64>,
    /// Requests that the server has taken.
    pub(super) received: u64,
    /// Answers that the peer has.
    pub(super) answered: u64,
}

impl Link {
    /// A connection to a lane with these shares. The peer is a client of its own, with a lane of
    /// the usual shape for itself.
    pub(super) fn connect(
        lane: u32,
        shares: &Arc<SharedQuota>,
        tallies: [&Arc<ActivityCounters>; 2],
    ) -> Result<Self, Full> {
        let usual = Shape::usual();
        let quota = SlotQuota::new(usual.slots, usual.connections_max, usual.credits_max);
        let own = Arc::new(SharedQuota::new(quota));
        let [server, peer] = [HeldQuota::take(shares)?, HeldQuota::take(&own)?];
        let (server_window, peer_window) = (server.window(), peer.window());
        let [server_tally, peer_tally] = tallies.map(Arc::clone);
        Ok(Self {
            lane,
            server: End::new(FlowWindow::new(server, peer_window, server_tally)),
            peer: End::new(FlowWindow::new(peer, server_window, peer_tally)),
            is_greedy: false,
            toward_server: 0,
            requested: VecDeque::new(),
            received: 0,
            answered: 0,
        })
    }

    /// Always has something to send from now on.
    pub(super) fn be_greedy(&mut self) {
        self.is_greedy = true;
        self.peer.add_frames(ENDLESS);
    }

    /// Sends nothing more of its own.
    pub(super) fn be_idle(&mut self) {
        self.is_greedy = false;
        self.peer.stop();
    }

    pub(super) fn is_greedy(&self) -> bool {
        self.is_greedy
    }

    /// Calls once, at `now`.
    pub(super) fn ask(&mut self, now: u64) {
        self.requested.push_back(now);
        self.peer.add_frames(1);
    }

    /// The window that the server promises, in messages.
    pub(super) fn window(&self) -> u32 {
        self.server.window().window()
    }

    /// The slots that the server holds for it.
    pub(super) fn held(&self) -> u32 {
        self.server.window().held() + RESERVE
    }

    /// Asks the peer for what it does not use.
    pub(super) fn reclaim(&mut self) {
        self.server.reclaim();
    }

    /// The server takes a message. A request is answered at once.
    pub(super) fn handle_at_server(&mut self, message: Message) {
        self.toward_server -= 1;
        if self.server.handle(message) {
            self.received += 1;
            self.server.add_frames(1);
        }
    }

    /// Returns the next message that the server may send now.
    pub(super) fn next_of_server(&mut self) -> Option<Message> {
        self.server.next()
    }

    /// The peer takes a message at `now`; gives how long the call took that it answers, if that is
    /// being measured.
    pub(super) fn handle_at_peer(&mut self, message: Message, now: u64) -> Option<u64> {
        if !self.peer.handle(message) {
            return None;
        }
        self.answered += 1;
        self.requested.pop_front().map(|requested| now - requested)
    }

    /// Returns the next message that the peer may send now.
    ///
    /// # Panics
    ///
    /// Panics if the peer has more in flight than the server holds slots for.
    pub(super) fn next_of_peer(&mut self) -> Option<Message> {
        let message = self.peer.next()?;
        self.toward_server += 1;
        let held = self.held();
        assert!(self.toward_server <= held, "{} on their way, {held} slots", self.toward_server);
        Some(message)
    }
}

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
