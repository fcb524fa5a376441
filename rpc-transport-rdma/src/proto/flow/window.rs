//! The flow-control window of a connection: its credits, and the receive slots that back them.
//!
//! [`Credits`] says what may be sent and what is promised, [`SharedQuota`] what can be promised;
//! here the window of the one follows what the other has. Slots go back when no message can fill
//! them any more: as messages come in that are not granted anew, and the rest when the window is
//! dropped, which has to be after the queue pair is gone.

use std::sync::Arc;
use std::time::Duration;

use rpc_core::wire::ProtocolError;
use tokio::time::Instant;

use crate::proto::clock::Clock;
use crate::proto::flow::credits::Credits;
use crate::proto::wire::{Grant, MessageKind};
use crate::quota::slots::{Full, SharedQuota, SlotQuota, WINDOW_MIN};
use crate::stats::lane::ActivityCounters;

/// Receive slots that a connection holds: the base, and what its window has grown by.
#[derive(Debug)]
pub(crate) struct HeldQuota {
    shares: Arc<SharedQuota>,
    extra: u32,
}

impl HeldQuota {
    /// Takes the base of a new connection.
    pub(crate) fn take(shares: &Arc<SharedQuota>) -> Result<Self, Full> {
        shares.change(SlotQuota::admit)?;
        Ok(Self { shares: Arc::clone(shares), extra: 0 })
    }

    /// The window that these slots are enough for.
    pub(crate) fn window(&self) -> u32 {
        WINDOW_MIN + self.extra
    }
}

impl Drop for HeldQuota {
    fn drop(&mut self) {
        // Only once the queue pairs are gone may another connection be promised these slots, which
        // is why the owner drops this behind them.
        self.shares.change(|quota| quota.leave(self.extra));
    }
}

/// The credits of one connection, and the slots behind them.
#[derive(Debug)]
pub(crate) struct FlowWindow {
    credits: Credits,
    holding: HeldQuota,
    activity: Arc<ActivityCounters>,
    /// Messages that had come in when idle connections were last looked for.
    received_before: u32,
    wait: Option<Wait>,
}

/// A message has nothing to be sent with.
#[derive(Debug)]
struct Wait {
    since: Instant,
    is_reported: bool,
}

impl FlowWindow {
    /// A window for a peer that promised us `granted`; we promise it what `holding` has.
    pub(crate) fn new(holding: HeldQuota, granted: u32, activity: Arc<ActivityCounters>) -> Self {
        let credits = Credits::new(holding.window(), granted);
        Self { credits, holding, activity, received_before: 0, wait: None }
    }

    /// Returns the worker's counters.
    pub(crate) fn activity(&self) -> &ActivityCounters {
        &self.activity
    }

    /// Returns the number of messages that may be sent now.
    pub(crate) fn credits(&self) -> u32 {
        self.credits.unspent()
    }

    /// Calls [`Credits::try_take`] for a message that waits until it can be sent.
    #[must_use]
    pub(crate) fn try_take(&mut self, clock: &mut Clock) -> bool {
        let may = self.credits.try_take();
        // A wait is one until the next message goes out, however often it is tried in between.
        if may {
            self.wait = None;
        } else if self.wait.is_none() {
            self.activity.credit_waits.add(1);
            self.wait = Some(Wait { since: clock.now(), is_reported: false });
        }
        may
    }

    /// Calls [`Credits::try_take_reserved`].
    #[must_use]
    pub(crate) fn try_take_reserved(&mut self) -> bool {
        self.credits.try_take_reserved()
    }

    /// Calls [`Credits::handle_grant`].
    pub(crate) fn handle_grant(&mut self, grant: Grant) -> Result<(), ProtocolError> {
        self.credits.handle_grant(grant)
    }

    /// Calls [`Credits::handle_message`].
    pub(crate) fn handle_message(&mut self) -> Result<(), ProtocolError> {
        self.credits.handle_message()
    }

    /// Returns [`Credits::outstanding`].
    pub(crate) fn outstanding(&self) -> u32 {
        self.credits.outstanding()
    }

    /// Returns [`Credits::window`].
    #[cfg(feature = "sim")]
    pub(crate) fn window(&self) -> u32 {
        self.credits.window()
    }

    /// The window that the slots which it holds are enough for.
    #[cfg(feature = "sim")]
    pub(crate) fn held(&self) -> u32 {
        self.holding.window()
    }

    /// Counts a message without a frame that came in.
    pub(crate) fn handle_control(&mut self, kind: MessageKind) -> Result<(), ProtocolError> {
        if kind.is_reserved() {
            return self.credits.handle_reserved();
        }
        if let MessageKind::Return { returned } = kind {
            let count = self.credits.handle_return(returned)?;
            self.activity.credits_returned.add(count.into());
        }
        self.credits.handle_message()
    }

    /// Calls [`Credits::handle_reclaim`].
    pub(crate) fn handle_reclaim(&mut self, keep: u32) {
        self.credits.handle_reclaim(keep);
    }

    /// Calls [`Credits::announce`] after fitting the window to the worker's free slots.
    #[must_use]
    pub(crate) fn announce(&mut self, waiting_count: usize) -> Grant {
        self.fit();
        self.credits.announce(waiting_count)
    }

    /// Returns [`Credits::is_due`] after fitting the window to the worker's free slots.
    #[must_use]
    pub(crate) fn is_due(&mut self) -> bool {
        self.fit();
        self.credits.is_due()
    }

    /// Returns [`Credits::take_due`].
    #[must_use]
    pub(crate) fn take_due(&mut self) -> Option<MessageKind> {
        let due = self.credits.take_due();
        match due {
            Some(MessageKind::Grant) => self.activity.grants_sent.add(1),
            Some(MessageKind::Reclaim { .. }) => self.activity.recalls_sent.add(1),
            _ => {}
        }
        due
    }

    /// Asks the peer for what it does not use, if it has sent nothing since the last time.
    pub(crate) fn reclaim(&mut self) {
        let received = self.credits.received_count();
        // Nothing since the last look. A busy peer gives its credits back by using them.
        let is_idle = std::mem::replace(&mut self.received_before, received) == received;
        if is_idle {
            self.credits.reclaim();
        }
    }

    /// Since when something waits for credit.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        self.wait.as_ref().map(|wait| wait.since)
    }

    /// Returns true if the wait was [reported](Self::stall).
    pub(crate) fn is_stall_reported(&self) -> bool {
        self.wait.as_ref().is_some_and(|wait| wait.is_reported)
    }

    /// Describes a wait that has lasted for `limit`. Returns the text once for each wait.
    pub(crate) fn stall(&mut self, now: Instant, limit: Duration) -> Option<String> {
        let wait = self.wait.as_mut()?;
        let waited = now.saturating_duration_since(wait.since);
        if wait.is_reported || waited < limit {
            return None;
        }
        wait.is_reported = true;
        self.activity.credit_stalls.add(1);
        let ms = waited.as_millis();
        Some(format!("no credit for {ms} ms: {:?}, {:?}", self.credits, self.holding))
    }

    /// Makes the window what it should be now, and gives back what it does not need.
    fn fit(&mut self) {
        let window = self.credits.window();
        let limit = self.holding.shares.limit();
        // The limit falls when others need slots. Then a wish for more is not even looked at.
        if window > limit {
            self.credits.set_window(limit);
        } else if self.credits.take_wanted() {
            self.grow(window);
        }
        // Slots that the peer may still fill stay, although the window is smaller by now.
        let excess = self.holding.window().saturating_sub(self.credits.claim());
        if excess > 0 {
            self.holding.extra -= excess;
            self.holding.shares.change(|quota| quota.give_back(excess));
        }
    }

    /// Doubles the window, or as much of that as there is.
    fn grow(&mut self, window: u32) {
        let shares = &self.holding.shares;
        let wanted = window.saturating_mul(2).min(shares.window_max());
        // What it held before it shrank may not have gone back yet.
        let held = self.holding.window().min(wanted).max(window);
        let more = match wanted - held.min(wanted) {
            0 => 0,
            missing => shares.change(|quota| quota.grow(held, missing)),
        };
        // Others are asked to shrink; this connection grows when its peer wants more the next time.
        if held + more < wanted {
            shares.press();
        }
        self.holding.extra += more;
        self.credits.set_window(held + more);
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
