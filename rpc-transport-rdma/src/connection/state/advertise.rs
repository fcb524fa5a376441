//! Advertised keys: memory windows are bound with offers, and their keys die with releases. The
//! other way round, our releases take away the keys of what the peer offers.

use rpc_core::wire::ProtocolError;
use tokio::time::Instant;

use super::{Action, ConnectionState};
use crate::connection::memory_windows::Exposed;
use crate::connection::rndv_payload::RndvPayload;
use crate::proto::rndv::send::AckTimeouts;
use crate::proto::wire::{AtsStatus, MessageKind, Rts};
use crate::verbs::{RemoteKey, RemoteMemory, VerbsError, Work};

/// Transfers that were revoked and whose releases may still come. More of them means that the peer
/// answers nothing.
const REVOKED_MAX: usize = 64;

impl ConnectionState {
    /// Makes sure that there is a window at all, where offers need them.
    pub(crate) fn allocate_first_window(&mut self) -> Result<(), VerbsError> {
        if self.windows.is_used() { self.windows.allocate(&mut self.queue_pair) } else { Ok(()) }
    }

    /// Whether an offer can go out now as far as windows are concerned.
    pub(super) fn has_window(&mut self) -> bool {
        !self.windows.is_used() || self.windows.prepare(&mut self.queue_pair)
    }

    /// Opens memory to the peer with everything that goes out after this.
    pub(super) fn expose(&mut self, buffer: RndvPayload) -> (Exposed<RndvPayload>, RemoteMemory) {
        let Some(window) = self.windows.take() else {
            let memory = buffer.remote();
            return (Exposed { buffer, key: None }, memory);
        };
        let binding = buffer.bind(window);
        let memory = binding.remote();
        self.batch.push_back(Work::Bind(binding));
        (Exposed { buffer, key: Some(memory.key) }, memory)
    }

    /// Invalidates the key of something that was released without taking it away.
    pub(super) fn fill_invalidation(&mut self) -> bool {
        let binding = self.windows.next_to_kill();
        let is_some = binding.is_some();
        self.batch.extend(binding.map(Work::Invalidate));
        is_some
    }

    /// Checks that a message takes no other key away than that of what it releases. A key that is
    /// none of ours has failed the queue pair, or is none.
    pub(super) fn check_taken_key(
        &self,
        kind: MessageKind,
        taken_key: Option<RemoteKey>,
    ) -> Result<(), ProtocolError> {
        let Some(key) = taken_key.filter(|key| self.windows.is_live(*key)) else { return Ok(()) };
        let (of, value) = match kind {
            MessageKind::Ats { transfer, .. } => (self.offered.get(transfer), transfer),
            _ => (None, 0),
        };
        if of.is_some_and(|exposed| exposed.key == Some(key)) {
            return Ok(());
        }
        let what = "key that an RDMA message took away";
        Err(ProtocolError::Invalid { what, value: value.into() })
    }

    pub(super) fn handle_release(
        &mut self,
        transfer: u32,
        outcome: AtsStatus,
        taken_key: Option<RemoteKey>,
    ) -> Result<(), ProtocolError> {
        if self.revoked.remove(&transfer) {
            return Ok(());
        }
        let released = self.offered.release(transfer)?;
        if released.was_quarantined {
            self.cancellations.count_answer(outcome);
        }
        let exposed = released.buffer;
        let is_taken = taken_key.is_some() && taken_key == exposed.key;
        let memory = self.windows.release(exposed, is_taken);
        self.free(memory);
        Ok(())
    }

    /// Takes the peer's access to everything away that it did not release in time after it was
    /// taken back; false when that cannot be, and the connection has to end instead.
    pub(super) fn revoke_overdue(&mut self, timeouts: AckTimeouts, now: Instant) -> bool {
        for transfer in self.offered.overdue(timeouts, now) {
            let key = self.offered.get(transfer).and_then(|exposed| exposed.key);
            let is_revoked = self.revoked.len() < REVOKED_MAX
                && key.is_some_and(|key| self.windows.revoke(&mut self.queue_pair, key));
            let Some(released) = is_revoked.then(|| self.offered.release(transfer).ok()).flatten()
            else {
                return false;
            };
            self.actions.push(Action::Free(released.buffer.buffer));
            self.revoked.insert(transfer);
            self.cancellations.revoked.add(1);
        }
        true
    }

    /// Remembers the key of an offer, if its release is to take it away.
    pub(super) fn note_peer_key(&mut self, transfer: u32, offer: &Rts) {
        // A message takes one key away.
        if let ([segment], true) = (&offer.segments[..], self.rules.takes_keys_away) {
            self.peer_keys.insert(transfer, segment.memory.key);
        }
    }

    /// The key that a message takes away.
    pub(super) fn key_to_take(&mut self, kind: MessageKind) -> Option<RemoteKey> {
        match kind {
            MessageKind::Ats { transfer, .. } => self.peer_keys.remove(&transfer),
            _ => None,
        }
    }
}
