//! The deadlines of one connection.
//!
//! The owner asks for the next one and tells of it when it has passed. An entry of the table is a
//! lower bound: what it waits for may be over by then, or may have become due later, so that
//! nothing has to be done here when something ends in time. What has passed is looked at, and armed
//! again where something is left to wait for.
//!
//! A peer grants as messages arrive, whatever its application does. A long wait for credit means
//! that the peer is stuck or one of both has a fault: it is logged once, with the state of the
//! window. Keepalive and the bootstrap find a peer that is gone; one that is there and never grants
//! keeps slots and memory that other connections need, for no longer than `release_timeout`.
//!
//! READs are answered by the peer's device. A device, or software in its place, that answers just
//! in time before the queue pair's retries are used up could hold this peer's share of READs and of
//! memory for as long as its frames are long. So each READ has `read_timeout` from the moment when
//! it is the next to be answered on its queue pair. Frames that the peer offered, and that have no
//! memory in time, are refused.
//!
//! Memory that the peer was offered is free once its key is dead or the queue pair is gone, and
//! never by time alone: what the peer does not release in time costs it the key, or the connection.

use std::time::Duration;

use rpc_core::transport::{CloseReason, Withheld};
use tokio::time::Instant;

use super::deadlines::{Timer, after};
use super::{Action, Buffers, ConnectionState, Look, Phase};
use crate::proto::rndv::send::AckTimeouts;

/// A wait for credit that is logged: far longer than a healthy peer takes, retries of lost packets
/// included, and shorter than keepalive's default bound of 40 s.
pub(crate) const STALL_AFTER: Duration = Duration::from_secs(5);

/// After how long a peer is judged again whose words may lie unread: half of what makes the worker
/// late, so that it is found to have caught up soon, and rarely enough to cost nothing.
const UNREAD_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// After how long a post is tried again that the device took only a part of: a few round trips,
/// in which what it took has left its queue.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Maximum time for the device to halt queue pairs. Then the connection's handler learns of the end
/// without the halt. Working firmware takes less than a millisecond; over hung firmware, a call
/// that has a second keeps most of it for another connection.
const HALT_TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum time for which an end waits for the device's last-WQE-reached event: far longer than a
/// device takes, and short enough for one that never sends it.
const LAST_RECEIVE_TIMEOUT: Duration = Duration::from_secs(1);

impl<B: Buffers> ConnectionState<B> {
    /// Returns the time at which the owner must send the [next timeout](super::Event::Timeout).
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        if matches!(self.phase, Phase::Halting(_)) {
            // Waits of a connection that ends have no deadlines but that of its end.
            return self.timers.next();
        }
        // A wait that is not reported yet may be due before what an earlier one left in the table.
        if let Some(since) = self.flow.waits_since()
            && !(self.timers.is_armed(Timer::Credit) && self.flow.is_stall_reported())
        {
            self.timers.arm(Timer::Credit, since + STALL_AFTER);
        }
        if let Some(since) = self.read_throttle.waits_since()
            && !self.timers.is_armed(Timer::Read)
        {
            self.timers.arm(Timer::Read, after(since, self.rules.timeouts.read));
        }
        self.timers.next()
    }

    /// Schedules another attempt to post.
    pub(super) fn retry_post(&mut self, now: Instant) {
        self.timers.arm(Timer::RetryPost, now + RETRY_AFTER);
    }

    /// Does what is due.
    ///
    /// # Errors
    ///
    /// Returns the [`CloseReason`] if the connection has to end.
    pub(super) fn handle_timeout(&mut self, look: Look) -> Result<(), CloseReason> {
        // Each is armed for later, or gone, when it has been handled.
        // Collected first: a handler may arm its own timer again.
        let mut passed = Vec::new();
        while let Some(timer) = self.timers.take_passed(look.now) {
            passed.push(timer);
        }
        for timer in passed {
            match timer {
                // Posting follows every event.
                Timer::RetryPost => {}
                Timer::Credit => self.handle_credit_timeout(look)?,
                Timer::Read => self.handle_read_timeout(look)?,
                Timer::Memory => self.refuse_late(look.now),
                Timer::Release => self.handle_release_timeout(look)?,
                Timer::Close => self.handle_close_timeout()?,
                Timer::Halt => self.actions.push_back(Action::TellEnd),
                Timer::LastReceive => self.handle_last_receive_timeout(),
                Timer::Drain => self.actions.push_back(Action::Destroy),
            }
        }
        Ok(())
    }

    /// Returns the time at which to judge a peer again whose messages may not have been read.
    /// `None` if it can be judged now.
    fn postponed(look: Look) -> Option<Instant> {
        match look {
            Look { has_unread: true, now, .. } => Some(now + UNREAD_LOOK_INTERVAL),
            // What came while this process stood still may not have been looked at.
            Look { late_by, now, .. } if late_by >= STALL_AFTER => Some(now + STALL_AFTER),
            Look { .. } => None,
        }
    }

    fn handle_credit_timeout(&mut self, look: Look) -> Result<(), CloseReason> {
        let Some(since) = self.flow.waits_since() else { return Ok(()) };
        let timeout = self.rules.timeouts.release.max(STALL_AFTER);
        let ends_at = after(since, timeout);
        if let Some(text) = self.flow.stall(look.now, STALL_AFTER) {
            self.actions.push_back(Action::LogStall(text));
        }
        let at = if ends_at <= look.now {
            let Some(later) = Self::postponed(look) else {
                let message =
                    format!("the peer granted no credit within {timeout:?} (rdma.release_timeout)");
                return Err(CloseReason::Failed(message.into()));
            };
            later
        } else if self.flow.is_stall_reported() {
            ends_at
        } else {
            since + STALL_AFTER
        };
        self.timers.arm(Timer::Credit, at);
        Ok(())
    }

    fn handle_read_timeout(&mut self, look: Look) -> Result<(), CloseReason> {
        let timeout = self.rules.timeouts.read;
        let Some(since) = self.read_throttle.waits_since() else { return Ok(()) };
        let ends_at = after(since, timeout);
        let look_at = match ends_at <= look.now {
            true => Self::postponed(look),
            false => Some(ends_at),
        };
        let Some(at) = look_at else {
            let message =
                format!("the peer did not answer a READ within {timeout:?} (rdma.read_timeout)");
            return Err(CloseReason::Failed(message.into()));
        };
        self.timers.arm(Timer::Read, at);
        Ok(())
    }

    fn handle_release_timeout(&mut self, look: Look) -> Result<(), CloseReason> {
        let timeouts = self.rules.timeouts.acks();
        while let Some((at, is_withdrawn)) = self.offered.overdue_at(timeouts) {
            if at > look.now {
                self.timers.arm(Timer::Release, at);
                return Ok(());
            }
            if look.has_unread {
                // What it says may have come, and user code keep the worker from reading it.
                self.timers.arm(Timer::Release, look.now + UNREAD_LOOK_INTERVAL);
                return Ok(());
            }
            // Only a withdrawn offer may cost just its key. One that the peer still reads would
            // fail in the middle, and the peer would see a broken path anyway.
            if !is_withdrawn || !self.revoke_overdue(timeouts, look.now) {
                return Err(self.unreleased(timeouts, is_withdrawn));
            }
        }
        Ok(())
    }

    fn unreleased(&self, timeouts: AckTimeouts, is_withdrawn: bool) -> CloseReason {
        let message = if is_withdrawn {
            self.cancellations.overdue.add(1);
            let timeout = timeouts.cancel;
            format!(
                "the peer did not release a cancelled offer within {timeout:?} \
                 (RdmaConfig::cancel_timeout)"
            )
        } else {
            let timeout = timeouts.release;
            format!(
                "the peer did not release an offer within {timeout:?} \
                 (rdma.release_timeout)"
            )
        };
        CloseReason::Failed(message.into())
    }

    /// Takes nothing new; what was taken goes out, within bounds.
    pub(super) fn close(&mut self, now: Instant) {
        if self.is_open() {
            self.phase = Phase::Closing;
            self.timers.arm(Timer::Close, after(now, self.rules.timeouts.close));
        }
    }

    fn handle_close_timeout(&self) -> Result<(), CloseReason> {
        match self.phase {
            Phase::Closing => Err(CloseReason::Local),
            _ => Ok(()),
        }
    }

    /// Replaces the timers by that of a connection whose queue pairs are about to be halted.
    pub(super) fn arm_halt(&mut self, now: Instant) {
        // A halted queue pair answers nothing, so every other deadline would pass and end the
        // connection with a wrong reason.
        self.timers.clear();
        self.timers.arm(Timer::Halt, now + HALT_TIMEOUT);
    }

    /// Replaces the timers by those of a halted connection.
    pub(super) fn arm_drain(&mut self, now: Instant) {
        self.timers.clear();
        let timeout = self.rules.timeouts.close;
        self.timers.arm(Timer::LastReceive, now + LAST_RECEIVE_TIMEOUT.min(timeout));
        self.timers.arm(Timer::Drain, after(now, timeout));
    }

    fn handle_last_receive_timeout(&mut self) {
        self.actions.push_back(Action::GiveUpLastReceives);
    }

    /// Refuses the transfers that have no memory in time.
    fn refuse_late(&mut self, now: Instant) {
        for due in self.rndv_get.late(now) {
            let why = match due.deadline.filter(|deadline| *deadline <= due.memory_by) {
                Some(_) => Withheld::Expired,
                None => {
                    let (len, timeout) = (due.len, self.rules.timeouts.memory());
                    let text = format!("no memory for {len} bytes within {timeout:?}");
                    Withheld::NoMemory(format!("{text} (rdma.max_sink_bytes)"))
                }
            };
            self.withhold(due.transfer, why);
        }
        if let Some(at) = self.rndv_get.late_at() {
            self.timers.arm(Timer::Memory, at);
        }
    }
}
