//! The proof of a whole path, each way: a message that fills a slot, and a READ of several packets
//! on each queue pair.
//!
//! ```text
//!   client: probe ──answered──> message ──acknowledged──> the peer's READs ──released──┐
//!                                                                                      v
//!                done <──checked── READs <──arrived── the peer's message <─────────────┘
//! ```
//! A probe fits one packet of any size. Where both ports have an MTU that the path between them
//! lacks, small messages pass, and the first full slot or READ ends the connection. So a path that
//! was answered a probe is not used before it has carried both.
//!
//! The server sends its message when it has read what the client's names. What is offered is an
//! offer like others, with a window where those have one, and its release says what became of it:
//! read and whole, refused for want of memory, or stopped because the bytes were wrong.

use rpc_core::transport::CloseReason;
use rpc_core::wire::ProtocolError;
use rpc_core::{Deadline, Reason};
use tokio::time::Instant;

use super::{Action, Buffers, ConnectionState};
use crate::proto::connection::deadlines::Timer;
use crate::proto::connection::path_proof::{
    PROOF_HEAD_LEN, PROOF_MEMORY_TIMEOUT, ProofStage, TheirProof,
};
use crate::proto::rndv::get::GetRequest;
use crate::proto::wire::{AtsStatus, MessageKind, Rts};

/// The longest part of a proof that one queue pair reads: more than three packets.
const PROOF_READ_LEN_MAX: u64 = 4 * 4096;

impl<B: Buffers> ConnectionState<B> {
    /// Returns what the path has not carried yet.
    pub(crate) fn proof_stage(&self) -> ProofStage {
        self.proof.stage
    }

    /// Goes on after the answer to our probe.
    pub(super) fn handle_answered(&mut self) {
        // A peer of an earlier version takes kind 10 for a violation.
        if !self.rules.proves_fully {
            self.proof.stage = ProofStage::Done;
            self.actions.push_back(Action::Proven);
            return;
        }
        self.proof.stage = ProofStage::Message;
        self.offer_proof();
    }

    /// Asks the owner for our part, once.
    fn offer_proof(&mut self) {
        if !std::mem::replace(&mut self.proof.is_offered, true) {
            self.actions.push_back(Action::OfferProof);
        }
    }

    /// Takes the peer's part, and reads what it names.
    ///
    /// # Errors
    ///
    /// Returns `Invalid` for a proof that was not agreed on, that came twice or before the probe,
    /// or that no peer writes.
    pub(super) fn handle_proof(
        &mut self,
        transfer: u32,
        offer: Rts,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        let invalid = |what, value| Err(ProtocolError::Invalid { what, value });
        // The probe and its answer carry the TLS binding; what comes before them may be anyone's.
        let is_bound = self.is_probed || self.is_proven;
        if !self.rules.proves_fully || !is_bound || self.proof.theirs.is_some() {
            return invalid("proof of an RDMA path that is not due", transfer.into());
        }
        // What a peer says is long would take memory of that length.
        let len = offer.segments[0].len;
        // Each is READ on a queue pair of its own, and compared with the same bytes.
        let is_even = offer.segments.iter().all(|segment| segment.len == len);
        if !is_even || len > PROOF_READ_LEN_MAX || offer.head.len() < PROOF_HEAD_LEN {
            return invalid("length of the proof of an RDMA path", offer.frame_len());
        }
        self.note_peer_key(transfer, &offer);
        let shape = Some((offer.head.len(), offer.segments.len()));
        self.proof.theirs = Some(TheirProof { transfer, shape, is_checked: false });
        self.proof.stage = ProofStage::Reads;
        // The client must hear of a refusal before its own time for the proof is over.
        let timeout = self.rules.timeouts.memory().min(PROOF_MEMORY_TIMEOUT);
        let memory_by = Deadline::after(now, timeout);
        let prefix = offer.prefix();
        let Rts { head, segments } = offer;
        let (call, deadline, segments) = (0, None, segments.into());
        let wanted = GetRequest { call, prefix, head, deadline, memory_by, segments };
        self.rndv_get.accept_spread(transfer, wanted)?;
        self.timers.arm(Timer::Memory, memory_by.0);
        self.take_memory();
        Ok(())
    }

    /// Gives up our part, for want of memory.
    ///
    /// # Errors
    ///
    /// Returns `reason` if this side judges the path, of which it has learned nothing.
    pub(super) fn handle_no_proof(&mut self, reason: Reason) -> Result<(), CloseReason> {
        self.proof.stage = ProofStage::NoMemory;
        if self.is_proven {
            return Err(CloseReason::Failed(reason));
        }
        tracing::debug!(target: "farcall::rdma", %reason, "a path is not proven to its client");
        // The client judges. It would take silence, or an end, for a lost message.
        self.control.push_back(MessageKind::Cancel { transfer: 0 });
        Ok(())
    }

    /// Takes a cancel that came where the peer's part is due: there will be none.
    ///
    /// # Errors
    ///
    /// Returns the reason to end the connection if the peer's part is due.
    pub(super) fn handle_proof_cancelled(&mut self) -> Result<(), CloseReason> {
        if !self.is_proven || self.proof.stage != ProofStage::PeerMessage {
            return Ok(());
        }
        self.proof.stage = ProofStage::NoMemory;
        Err(CloseReason::Failed("the peer has no memory for its part of the proof".into()))
    }

    /// Goes on after the check of what was read.
    ///
    /// # Errors
    ///
    /// Returns the reason to end the connection if this side judges the path and the bytes are
    /// wrong.
    pub(super) fn handle_proof_checked(&mut self, is_good: bool) -> Result<(), CloseReason> {
        let Some(theirs) = &mut self.proof.theirs else { return Ok(()) };
        theirs.is_checked = is_good;
        let transfer = theirs.transfer;
        if is_good {
            // Released before our own part goes out: the release takes the only credit there may
            // be, and the proof needs none.
            self.push_release(transfer, AtsStatus::Read);
            self.offer_proof();
            self.end_proof();
            return Ok(());
        }
        self.proof.stage = ProofStage::WrongBytes;
        if self.is_proven {
            return Err(CloseReason::Failed("a READ brought wrong bytes".into()));
        }
        // The client judges, and learns it by this release: an end at once would lose that.
        self.push_release(transfer, AtsStatus::Stopped);
        Ok(())
    }

    /// Goes on after a release, if it is that of our part.
    ///
    /// # Errors
    ///
    /// Returns the reason to end the connection if the peer has not read it, or reads wrong bytes.
    pub(super) fn handle_proof_released(
        &mut self,
        transfer: u32,
        outcome: AtsStatus,
    ) -> Result<(), CloseReason> {
        // Any other release is of a frame.
        if self.proof.ours != Some(transfer) || self.proof.is_released {
            return Ok(());
        }
        let (stage, message) = match outcome {
            AtsStatus::Read => {
                self.proof.is_released = true;
                // The peer's part may have come first where messages and completions are told of
                // apart.
                if self.proof.theirs.is_none() {
                    self.proof.stage = ProofStage::PeerMessage;
                }
                self.end_proof();
                return Ok(());
            }
            AtsStatus::Refused => (ProofStage::NoMemory, "the peer has no memory for the proof"),
            AtsStatus::Stopped => (ProofStage::WrongBytes, "a READ of the peer got wrong bytes"),
        };
        self.proof.stage = stage;
        Err(CloseReason::Failed(message.into()))
    }

    fn end_proof(&mut self) {
        // Both halves in either order; the server ends here, too, and nothing waits for it.
        let is_checked = self.proof.theirs.as_ref().is_some_and(|theirs| theirs.is_checked);
        if is_checked && self.proof.is_released && self.proof.stage != ProofStage::Done {
            self.proof.stage = ProofStage::Done;
            self.actions.push_back(Action::Proven);
        }
    }
}
