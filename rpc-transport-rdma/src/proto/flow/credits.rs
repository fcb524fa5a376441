//! Credits: who may still send, so that no message ever finds the peer's receive queue empty.
//!
//! Every message takes one receive slot of its receiver, whatever it is. A receiver promises a
//! *window* of slots to each connection, and besides it a *reserve* for control messages: pure
//! grants, probes and their answers. Both are counts of one path, whose epoch every message
//! carries, and both are cumulative, so that what is late or repeated changes nothing:
//!
//! - the *grant*: how many ordinary messages the receiver takes in all. It rides on every message;
//!   when none goes out, a pure one does once half a window more can be granted.
//! - the control messages *seen*: a sender may be ahead of it by the reserve.
//!
//! A window may change at any time. A larger one raises the next grant. A smaller one lowers
//! nothing that was granted: no grant is renewed until enough messages came in. An idle peer would
//! never get there, so it is *reclaimed*: it answers with a *return*, by which it counts credits as
//! spent that it did not use. It counts them when the return goes out and not before: what goes
//! out first would take the credit that the return needs, and a return that never goes out leaves
//! its sender without credit and its receiver without a reason to grant any.
//!
//! Why the reserve never runs dry when it matters: a pure grant raises the promise. A peer that has
//! used up all it was promised therefore sent something after it had seen the last grant, and that
//! message says so. Hence an end that is owed a grant and has nothing in flight can be sent one, in
//! windows of a single slot too. A grant, a probe and an answer never owe a grant themselves, so
//! that two idle ends do not keep each other awake.
//!
//! Pure: nothing is sent here, and no memory is named.

use rpc_core::wire::ProtocolError;

use crate::proto::wire::{Grant, MessageKind};
use crate::quota::slots::{RESERVE, WINDOW_MIN};

/// The smallest window of which a grant need not go out alone when two sides take turns: half of
/// it is more than one message, and the next message of ours takes the grant along.
const TURNS_WINDOW: u32 = 3;

/// The credit window of one connection, both directions.
#[derive(Debug)]
pub(crate) struct Credits {
    sending: Sending,
    receiving: Receiving,
}

/// The sending side: messages that we may send.
#[derive(Debug, Default)]
struct Sending {
    /// Messages sent, and credits returned.
    spent: u32,
    /// Total number of messages that the peer has granted.
    granted: u32,
    /// Number of returned credits.
    returned: u32,
    control_sent: u16,
    /// Number of these that the peer has seen.
    control_seen: u16,
    /// The peer asked for the credits beyond so many, and was not answered yet.
    keep: Option<u32>,
}

/// The receiving side: messages that the peer may send.
#[derive(Debug, Default)]
struct Receiving {
    /// Messages that came in, and credits that came back.
    spent: u32,
    /// Total number of messages that we have granted.
    promised: u32,
    /// Number of credits that the peer has returned.
    returned: u32,
    /// Maximum number of messages that the peer should have in flight.
    window: u32,
    control_received: u16,
    /// Number of these that we have acknowledged to the peer.
    control_announced: u16,
    /// The peer had more to send than credit.
    is_wanted: bool,
    reclaim: Reclaim,
}

/// The state of a request for unused credits. The peer is asked once until it sends something.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Reclaim {
    #[default]
    None,
    Due,
    Asked,
}

impl Credits {
    /// A credit window in which we promise the peer `window` slots and it promised us `granted`.
    pub(crate) fn new(window: u32, granted: u32) -> Self {
        let sending = Sending { granted, ..Sending::default() };
        let receiving = Receiving { promised: window, window, ..Receiving::default() };
        Self { sending, receiving }
    }

    /// Counts a message to be sent; false when the peer has no slot for it.
    #[must_use]
    pub(crate) fn try_take(&mut self) -> bool {
        // Unspent and never spent < granted: both counts wrap, and only their difference means
        // something.
        let may = self.unspent() > 0;
        self.sending.spent = self.sending.spent.wrapping_add(u32::from(may));
        may
    }

    /// Counts a pure grant, a probe or its answer, which use the reserve.
    #[must_use]
    pub(crate) fn try_take_reserved(&mut self) -> bool {
        let sending = &mut self.sending;
        // Sixteen bits are enough: at most RESERVE of them are ever unseen.
        let unseen = sending.control_sent.wrapping_sub(sending.control_seen);
        let may = u32::from(unseen) < RESERVE;
        sending.control_sent = sending.control_sent.wrapping_add(u16::from(may));
        may
    }

    /// Takes the grant that came with a message.
    ///
    /// # Errors
    ///
    /// Returns [`ProtocolError::Invalid`] if the peer takes back what it granted, grants more than
    /// it could mean, or has seen what was not sent.
    pub(crate) fn handle_grant(&mut self, grant: Grant) -> Result<(), ProtocolError> {
        let sending = &mut self.sending;
        let more = grant.count.wrapping_sub(sending.granted);
        // The path keeps order, so that no grant is overtaken and any step back is wrong.
        if more > u32::from(u16::MAX) {
            let value = grant.count.into();
            return Err(ProtocolError::Invalid { what: "credit grant", value });
        }
        // A peer that has seen what was never sent would raise the reserve without bound.
        let seen = grant.control_seen.wrapping_sub(sending.control_seen);
        if seen > sending.control_sent.wrapping_sub(sending.control_seen) {
            let value = grant.control_seen.into();
            return Err(ProtocolError::Invalid { what: "count of control messages", value });
        }
        // Only here, after both checks: a grant that is refused must leave no trace.
        sending.granted = grant.count;
        sending.control_seen = grant.control_seen;
        self.receiving.is_wanted |= grant.wants_more;
        Ok(())
    }

    /// Counts an ordinary message that came in.
    ///
    /// # Errors
    ///
    /// Returns [`ProtocolError::Invalid`] if the peer sent it without credit.
    pub(crate) fn handle_message(&mut self) -> Result<(), ProtocolError> {
        self.receiving.spend(1, "messages sent without credit")?;
        // A peer that sends is not idle, and may be asked again once it is.
        self.receiving.reclaim = Reclaim::None;
        Ok(())
    }

    /// Counts a pure grant, a probe or an answer that came in.
    ///
    /// # Errors
    ///
    /// Returns [`ProtocolError::Invalid`] if the peer sent it beyond the reserve.
    pub(crate) fn handle_reserved(&mut self) -> Result<(), ProtocolError> {
        let receiving = &mut self.receiving;
        receiving.control_received = receiving.control_received.wrapping_add(1);
        let ahead = receiving.control_received.wrapping_sub(receiving.control_announced);
        if u32::from(ahead) > RESERVE {
            let value = ahead.into();
            return Err(ProtocolError::Invalid { what: "control messages without credit", value });
        }
        Ok(())
    }

    /// The grant to send along with a message that goes out now, while `waiting_count` more wait.
    #[must_use]
    pub(crate) fn announce(&mut self, waiting_count: usize) -> Grant {
        // Before the promise is raised: the peer decides by this whether to enlarge our window.
        let wants_more = waiting_count > 0 && self.unspent() == 0;
        let receiving = &mut self.receiving;
        receiving.promised = receiving.promised.wrapping_add(receiving.grantable());
        // What is announced here is what a peer may use anew, so the two move together.
        receiving.control_announced = receiving.control_received;
        let control_seen = receiving.control_received;
        Grant { count: receiving.promised, control_seen, wants_more }
    }

    /// Returns true if a message about credit alone is due: a return, a reclaim or a grant.
    #[must_use]
    pub(crate) fn is_due(&self) -> bool {
        self.is_grant_due() || self.receiving.reclaim == Reclaim::Due || self.sending.keep.is_some()
    }

    /// Pays for the next message about credit alone, and returns its kind; the caller has to send
    /// it. A return comes before a reclaim, and both before a grant, because both carry the grant.
    /// `None` when no message is due, or the peer has no slot for it.
    #[must_use]
    pub(crate) fn take_due(&mut self) -> Option<MessageKind> {
        if let Some(returned) = self.take_return() {
            return Some(MessageKind::Return { returned });
        }
        if self.take_reclaim() {
            return Some(MessageKind::Reclaim { keep: WINDOW_MIN });
        }
        let grants = self.is_grant_due() && self.try_take_reserved();
        // In a window below `TURNS_WINDOW` each message that comes in is answered by a grant of its
        // own, which costs as much as a message. A larger window lets grants ride on answers.
        self.receiving.is_wanted |= grants && self.receiving.window < TURNS_WINDOW;
        grants.then_some(MessageKind::Grant)
    }

    /// Gives up what the peer asked for and is not used by now. Returns the count to tell it;
    /// `None` when there is nothing. The message that tells it is paid for.
    fn take_return(&mut self) -> Option<u32> {
        let keep = self.sending.keep.take()?;
        // Decided when it goes out and not when it was asked for: messages that went out meanwhile
        // have used some of the credits.
        let excess = self.unspent().checked_sub(keep).filter(|excess| *excess > 0)?;
        let sending = &mut self.sending;
        sending.spent = sending.spent.wrapping_add(excess);
        // One of them pays for the return itself.
        sending.returned = sending.returned.wrapping_add(excess - 1);
        Some(sending.returned)
    }

    /// Pays for a reclaim that is due; false when none is, or it has to wait.
    fn take_reclaim(&mut self) -> bool {
        let takes = self.receiving.reclaim == Reclaim::Due && self.try_take();
        if takes {
            self.receiving.reclaim = Reclaim::Asked;
        }
        takes
    }

    /// Returns true if a pure grant is due because no message carried one.
    fn is_grant_due(&self) -> bool {
        let receiving = &self.receiving;
        receiving.grantable() >= receiving.window.div_ceil(2).max(1)
    }

    /// Returns the maximum number of messages that the peer should have in flight.
    pub(crate) fn window(&self) -> u32 {
        self.receiving.window
    }

    /// Changes the window. What was promised stays promised.
    pub(crate) fn set_window(&mut self, window: u32) {
        self.receiving.window = window;
    }

    /// Returns the number of messages that the peer may still send, without the reserve.
    pub(crate) fn outstanding(&self) -> u32 {
        self.receiving.outstanding()
    }

    /// Returns the number of slots that the peer may fill now or after the next grant, without the
    /// reserve.
    pub(crate) fn claim(&self) -> u32 {
        self.receiving.outstanding().max(self.receiving.window)
    }

    /// Returns the number of ordinary messages received, returned credits included, modulo 2^32.
    pub(crate) fn received_count(&self) -> u32 {
        self.receiving.spent
    }

    /// Returns true if the peer had more to send than credit since the last call.
    pub(crate) fn take_wanted(&mut self) -> bool {
        std::mem::take(&mut self.receiving.is_wanted)
    }

    /// Lowers the window to the smallest, and asks the peer for what it holds beyond that.
    pub(crate) fn reclaim(&mut self) {
        let receiving = &mut self.receiving;
        receiving.window = receiving.window.min(WINDOW_MIN);
        if receiving.reclaim == Reclaim::None && receiving.outstanding() > WINDOW_MIN {
            receiving.reclaim = Reclaim::Due;
        }
    }

    /// Records that the peer asks for the credits beyond `keep`. [`Credits::take_due`] gives up
    /// those that this side has not used by then.
    pub(crate) fn handle_reclaim(&mut self, keep: u32) {
        // The last credit stays. Without one, neither end could ever speak again.
        self.sending.keep = Some(keep.max(1));
    }

    /// Takes back what the peer gave up; gives how many credits that are.
    ///
    /// # Errors
    ///
    /// Returns [`ProtocolError::Invalid`] if the peer gives up what it never had.
    pub(crate) fn handle_return(&mut self, returned: u32) -> Result<u32, ProtocolError> {
        let receiving = &mut self.receiving;
        let more = returned.wrapping_sub(receiving.returned);
        // As if they had been used: a credit given back twice would free a slot twice.
        receiving.spend(more, "returned credits")?;
        receiving.returned = returned;
        Ok(more)
    }

    /// Returns the number of messages that may be sent now.
    pub(crate) fn unspent(&self) -> u32 {
        self.sending.granted.wrapping_sub(self.sending.spent)
    }
}

impl Receiving {
    /// Returns the number of messages that the peer may still send.
    fn outstanding(&self) -> u32 {
        self.promised.wrapping_sub(self.spent)
    }

    /// Returns the number of messages that could be granted now.
    fn grantable(&self) -> u32 {
        self.window.saturating_sub(self.outstanding())
    }

    fn spend(&mut self, count: u32, what: &'static str) -> Result<(), ProtocolError> {
        if count > self.outstanding() {
            return Err(ProtocolError::Invalid { what, value: count.into() });
        }
        self.spent = self.spent.wrapping_add(count);
        Ok(())
    }
}

#[cfg(test)]
#[path = "credits_tests.rs"]
mod tests;
