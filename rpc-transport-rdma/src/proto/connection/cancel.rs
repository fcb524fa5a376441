//! Cancellation: what happens on either side to the frames of a call that is given up.
//!
//! What this side offered is withdrawn: its memory is quarantined until the peer has released it.
//! What this side fetches is stopped between two READs. Nothing here frees memory that a device or
//! the peer may still use.

use rpc_core::transport::Withheld;

use super::{Action, Buffers, ConnectionState, Outgoing, ProofStage};
use crate::proto::clock::Clock;
use crate::proto::connection::deadlines::{Timer, after};
use crate::proto::rndv::get::{Ended, Outcome};
use crate::proto::wire::{AtsStatus, MessageKind};

impl<B: Buffers> ConnectionState<B> {
    /// Gives up what travels for a call, either way.
    pub(super) fn abandon(&mut self, call: u64, clock: &mut Clock) {
        for outgoing in &mut self.outgoing {
            if let Outgoing::Rts { call: of, is_given_up, .. } = outgoing {
                // A waiting offer still goes out. What follows it on the wire may name its
                // transfer, and the peer would take an unknown one for a violation.
                *is_given_up |= *of == call;
            }
        }
        self.withdraw(call, clock);
        // Stopped transfers answer once their READs have returned: until then the device writes
        // into the sink.
        self.rndv_get.stop_call(call, &Withheld::GivenUp);
        self.settle_stopped();
    }

    /// Stops fetching what the peer takes back.
    pub(super) fn handle_cancelled(&mut self, transfer: u32) {
        self.rndv_get.stop(transfer, Withheld::GivenUp);
        self.settle_stopped();
    }

    /// Asks the peer to release what was offered to it for a call.
    pub(super) fn withdraw(&mut self, call: u64, clock: &mut Clock) {
        if self.offered.is_empty() {
            return;
        }
        let now = clock.now();
        for transfer in self.offered.withdraw(call, now) {
            // Armed although the offer has a release timer: the peer has less time after a cancel.
            self.timers.arm(Timer::Release, after(now, self.rules.timeouts.cancel));
            self.cancellations.withdrawn.add(1);
            self.control.push_back(MessageKind::Cancel { transfer });
        }
    }

    /// Stops waiting for the memory of a transfer, for want of it or of time.
    pub(super) fn withhold(&mut self, transfer: u32, why: Withheld) {
        if self.rndv_get.is_waiting(transfer) {
            self.rndv_get.stop(transfer, why);
            self.settle_stopped();
        }
    }

    /// Answers for the transfers that were stopped and have no READ outstanding.
    pub(super) fn settle_stopped(&mut self) {
        for ended in self.rndv_get.take_ended() {
            self.settle(ended);
        }
        self.take_memory();
    }

    /// Releases a transfer that was stopped.
    pub(super) fn settle(&mut self, ended: Ended) {
        let (outcome, why) = match ended.outcome {
            // Released by `handle_read`, when its last READ completed.
            Outcome::Whole => return,
            Outcome::NotStarted(why) => (AtsStatus::Refused, why),
            Outcome::Stopped(why) => (AtsStatus::Stopped, why),
        };
        if self.proof.take_shape(ended.transfer).is_some() {
            // No handler was told of it.
            self.proof.stage = ProofStage::NoMemory;
            self.push_release(ended.transfer, outcome);
            return;
        }
        self.cancellations.pulls_stopped.add(1);
        self.push_release(ended.transfer, outcome);
        self.actions.push_back(Action::Withhold { prefix: ended.prefix, reason: why });
    }
}
