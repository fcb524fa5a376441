//! Handles the peer's messages.

use rpc_core::pool::copy_short;
use rpc_core::transport::CloseReason;
use rpc_core::wire::ProtocolError;

use super::{Arrival, Buffers, ConnectionState, Phase};
use crate::proto::clock::Clock;
use crate::proto::remote_memory::RemoteKey;
use crate::proto::wire::{MessageHeader, MessageKind, Rts};

/// The most control messages that wait. A release answers an offer, which costs its sender a
/// credit; far more means that the peer takes without ever granting.
const CONTROL_MAX: usize = 16 << 10;

/// The most frames that wait. Those with a body have slots, of which there are few; the others
/// give up calls, of which a client has at most `max_calls`, and grant windows to streams. Far more
/// means that the peer goes on with its streams without ever granting.
const OUTGOING_MAX: usize = 256 << 10;

impl<B: Buffers> ConnectionState<B> {
    /// Opens the connection, and delivers what arrived before.
    pub(super) fn open(&mut self) -> Result<(), ProtocolError> {
        let early = match std::mem::replace(&mut self.phase, Phase::Open) {
            Phase::Proving(early) => early,
            other => {
                self.phase = other;
                return Ok(());
            }
        };
        for arrival in early {
            self.flow.handle_message()?;
            self.deliveries.push_back(arrival);
        }
        Ok(())
    }

    /// Takes a message. A frame is copied here, since its slot goes back at once.
    pub(super) fn handle_message(
        &mut self,
        message: &[u8],
        taken_key: Option<RemoteKey>,
        clock: &mut Clock,
    ) -> Result<(), CloseReason> {
        let (header, body) = MessageHeader::parse(message)?;
        self.counters.received_bytes.add(message.len() as u64);
        // Before the grant is read: a message of an earlier path would grant credit that this path
        // never had.
        if header.epoch != self.rules.our_epoch {
            return Ok(self.handle_stale(header.epoch)?);
        }
        self.flow.handle_grant(header.grant)?;
        self.check_backlog()?;
        // A device invalidates whatever key the message names. A key that is not the released one
        // would end some other offer, so the connection ends instead.
        self.check_taken_key(header.kind, taken_key)?;
        let arrival = match header.kind {
            MessageKind::Frame => {
                self.counters.small_received.add(1);
                self.counters.copied_bytes.add(body.len() as u64);
                // Copied, because the slot is posted again before anything else happens.
                Arrival::Small(copy_short(body))
            }
            MessageKind::Rts { transfer } => {
                let offer = Rts::parse(body)?;
                self.note_peer_key(transfer, &offer);
                Arrival::Rts { transfer, offer }
            }
            MessageKind::Cancel { transfer } => {
                // Its release may come so late that the peer has revoked the key itself.
                self.peer_keys.remove(&transfer);
                self.flow.handle_control(header.kind)?;
                self.deliveries.push_back(Arrival::Cancelled { transfer });
                return self.handle_proof_cancelled();
            }
            MessageKind::Proof { transfer } => {
                self.handle_proof(transfer, Rts::parse(body)?, clock.now())?;
                return Ok(self.flow.handle_control(header.kind)?);
            }
            kind => {
                self.check_proof(kind, body)?;
                self.handle_control(kind, taken_key)?;
                return Ok(self.flow.handle_control(kind)?);
            }
        };
        let Phase::Proving(early) = &mut self.phase else {
            self.flow.handle_message()?;
            self.deliveries.push_back(arrival);
            return Ok(());
        };
        // Counted when the connection opens, so until then nothing of what was promised is renewed;
        // it may have grown, because the peer wanted more.
        if early.len() >= self.flow.outstanding() as usize {
            let value = early.len() as u64;
            let what = "messages before the path opens";
            return Err(ProtocolError::Invalid { what, value }.into());
        }
        early.push(arrival);
        Ok(())
    }

    /// Checks what a probe or an answer carries. A peer without the proof is not the one that the
    /// path was agreed on with, whatever it knows of the queue pair.
    fn check_proof(&self, kind: MessageKind, body: &[u8]) -> Result<(), ProtocolError> {
        let is_probe = matches!(kind, MessageKind::Probe | MessageKind::ProbeAnswer);
        match &self.binding {
            Some(binding) if is_probe && !binding.is_theirs(body) => {
                let value = body.len() as u64;
                Err(ProtocolError::Invalid { what: "proof of an RDMA probe", value })
            }
            _ => Ok(()),
        }
    }

    /// Ignores a message to an earlier queue pair that had the same number: its completion was
    /// still queued when that one was gone. There were at most as many as it had been promised.
    fn handle_stale(&mut self, epoch: u32) -> Result<(), ProtocolError> {
        self.stale_count += 1;
        if self.stale_count > self.rules.stale_max {
            let value = epoch.into();
            return Err(ProtocolError::Invalid { what: "epoch of an RDMA message", value });
        }
        tracing::debug!(target: "farcall::rdma", epoch, "ignored a message of an earlier path");
        Ok(())
    }

    fn handle_control(
        &mut self,
        kind: MessageKind,
        taken_key: Option<RemoteKey>,
    ) -> Result<(), CloseReason> {
        match kind {
            MessageKind::Ats { transfer, outcome } => {
                self.handle_release(transfer, outcome, taken_key)?;
                self.handle_proof_released(transfer, outcome)?;
            }
            MessageKind::Probe => {
                self.is_probed = true;
                self.control.push_back(MessageKind::ProbeAnswer);
            }
            MessageKind::ProbeAnswer => {
                // A second answer is harmless, but proving twice would open the connection twice.
                if !std::mem::replace(&mut self.is_proven, true) {
                    self.handle_answered();
                }
            }
            MessageKind::Reclaim { keep } => self.flow.handle_reclaim(keep),
            MessageKind::Return { .. }
            | MessageKind::Grant
            | MessageKind::Cancel { .. }
            | MessageKind::Proof { .. }
            | MessageKind::Frame
            | MessageKind::Rts { .. } => {}
        }
        Ok(())
    }

    /// Checks that no more waits for the peer's credit than may. A peer that asks for answers and
    /// grants no credit for them would fill this side's queues.
    fn check_backlog(&self) -> Result<(), ProtocolError> {
        let backlogs = [
            ("control messages that wait for credit", self.control.len(), CONTROL_MAX),
            ("frames that wait for credit", self.outgoing.len(), OUTGOING_MAX),
        ];
        for (what, len, max) in backlogs {
            if len > max {
                return Err(ProtocolError::Invalid { what, value: len as u64 });
            }
        }
        Ok(())
    }
}
