//! Advertised keys: memory windows are bound with offers, and their keys die with releases. The
//! other way round, our releases take away the keys of what the peer offers.

use rpc_core::Reason;
use rpc_core::transport::CloseReason;
use rpc_core::wire::ProtocolError;
use tokio::time::Instant;

use super::{Action, Buffers, ConnectionState, MemoryWindowOf, Payload};
use crate::proto::remote_memory::{RemoteKey, RemoteMemory};
use crate::proto::rndv::memory_windows::Bind;
use crate::proto::rndv::send::{AckTimeouts, AckedFrame};
use crate::proto::wire::{AtsStatus, MessageKind, Rts};

/// Transfers that were revoked and whose releases may still come. More of them means that the peer
/// answers nothing.
const REVOKED_MAX: usize = 64;

impl<B: Buffers> ConnectionState<B> {
    /// Whether offers go out through windows, of which the first is best allocated with the
    /// connection.
    pub(crate) fn uses_memory_windows(&self) -> bool {
        self.memory_windows.is_used()
    }

    /// Takes a window, or why there is none.
    pub(super) fn handle_memory_window(
        &mut self,
        window: Result<MemoryWindowOf<B>, Reason>,
    ) -> Result<(), CloseReason> {
        self.memory_windows.handle_allocated(window).map_err(|reason| {
            let message = format!("no memory window for an offer: {reason}");
            CloseReason::Failed(reason.with_message(message))
        })
    }

    /// Opens memory to the peer, to everything that goes out after this: as the peer names it, and
    /// the window that opens it if one does.
    pub(super) fn expose(
        payload: &B::Payload,
        window: Option<MemoryWindowOf<B>>,
    ) -> (RemoteMemory, Option<B::Binding>) {
        let Some(window) = window else { return (payload.remote(), None) };
        let binding = payload.bind(window);
        (binding.remote(), Some(binding))
    }

    pub(super) fn handle_bound(&mut self, binding: B::Binding) {
        self.in_flight -= 1;
        let payload = self.memory_windows.handle_bound(binding);
        self.free(payload);
    }

    pub(super) fn handle_invalidated(&mut self, binding: B::Binding) {
        self.in_flight -= 1;
        let payload = self.memory_windows.handle_dead(binding);
        self.free(payload);
    }

    /// Checks that a message takes no other key away than that of what it releases. A key that is
    /// none of ours has failed the queue pair, or is none.
    pub(super) fn check_taken_key(
        &self,
        kind: MessageKind,
        taken_key: Option<RemoteKey>,
    ) -> Result<(), ProtocolError> {
        let Some(key) = taken_key.filter(|key| self.memory_windows.is_live(*key)) else {
            return Ok(());
        };
        let (of, value) = match kind {
            MessageKind::Ats { transfer, .. } => (self.offered.key(transfer), transfer),
            _ => (None, 0),
        };
        if of == Some(key) {
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
        let AckedFrame { buffer, key, was_quarantined } = self.offered.release(transfer)?;
        if was_quarantined {
            self.cancellations.count_answer(outcome);
        }
        let payload = match key {
            None => Some(buffer),
            Some(key) => self.memory_windows.release(buffer, key, taken_key == Some(key)),
        };
        self.free(payload);
        Ok(())
    }

    /// Takes the peer's access to everything away that it did not release in time after it was
    /// taken back; false when that cannot be, and the connection has to end instead.
    pub(super) fn revoke_overdue(&mut self, timeouts: AckTimeouts, now: Instant) -> bool {
        for transfer in self.offered.overdue(timeouts, now) {
            let has_place = self.revoked.len() < REVOKED_MAX;
            let key = self.offered.key(transfer).filter(|_| has_place);
            let binding = key.and_then(|key| self.memory_windows.revoke(key));
            let Some(binding) = binding else { return false };
            let Ok(released) = self.offered.release(transfer) else { return false };
            // In this order: the key is dead before the memory is free.
            self.actions.push_back(Action::Deallocate(binding));
            self.actions.push_back(Action::Free(released.buffer));
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
}
