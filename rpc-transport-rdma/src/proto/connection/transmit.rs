//! Chooses the outgoing work: messages as credits allow, READs as the peer allows, offers with
//! their keys.
//!
//! Memory windows are bound with offers, and their keys die with releases. The
//! other way round, our releases take away the keys of what the peer offers.

use rpc_core::Reason;
use rpc_core::transport::CloseReason;
use rpc_core::wire::ProtocolError;
use tokio::time::Instant;

use crate::proto::clock::Clock;
use crate::proto::connection::deadlines::{Timer, after};
use crate::proto::connection::{
    Action, Buffers, CONTROL_SLOT_LEN, ConnectionState, MemoryWindowOf, Outgoing, Payload, Transmit,
};
use crate::proto::remote_memory::{RemoteKey, RemoteMemory};
use crate::proto::rndv::memory_windows::Bind;
use crate::proto::rndv::send::{AckTimeouts, AckedFrame};
use crate::proto::wire::{AtsStatus, MESSAGE_HEADER_LEN, MessageHeader, MessageKind, Rts};

/// The memory window for the next offer.
enum NextMemoryWindow<W> {
    /// Offers go without.
    NotUsed,
    Free(W),
    /// One is being allocated, or a release gives one back.
    Awaited,
}

impl<B: Buffers> ConnectionState<B> {
    /// The next of what may go out now: invalidations, control messages, frames, READs, and then
    /// returns, reclaims and pure grants.
    pub(crate) fn poll_transmit(&mut self, clock: &mut Clock) -> Option<Transmit<B>> {
        if self.is_halting() {
            return None;
        }
        let transmit = self.next_transmit(clock);
        match &transmit {
            None => self.end_if_flushed(clock),
            // The bind and the offer behind it are two work requests of one post.
            Some(Transmit::Offer { binding: Some(_), .. }) => self.in_flight += 2,
            Some(Transmit::Read(_)) if !self.rules.reads_with_messages => {}
            Some(_) => self.in_flight += 1,
        }
        transmit
    }

    fn next_transmit(&mut self, clock: &mut Clock) -> Option<Transmit<B>> {
        let has_room = self.in_flight < self.rules.send_depth;
        if has_room {
            // Keys first: memory behind a key that should be dead is exposed until its invalidation
            // completes.
            if let Some(binding) = self.memory_windows.next_to_kill() {
                return Some(Transmit::Invalidate(binding));
            }
            // Control messages before frames. A peer that waits for a release may have no memory
            // left to receive anything else into.
            if let Some(message) = self.next_control(clock) {
                return Some(message);
            }
            if let Some(message) = self.next_outgoing(clock) {
                return Some(message);
            }
        }
        // A turn without a transfer would keep READ bytes from other connections.
        if self.rndv_get.transfer_count() == 0 {
            self.read_throttle.pass();
        } else if let Some(read) = self.next_read(has_room, clock) {
            return Some(read);
        }
        // What stopped a transfer has a release to send.
        let released = if has_room { self.next_control(clock) } else { None };
        released.or_else(|| if has_room { self.next_due() } else { None })
    }

    /// The next READ, and the releases of transfers that were stopped instead.
    fn next_read(&mut self, has_room: bool, clock: &mut Clock) -> Option<Transmit<B>> {
        // Queue pairs for READs have room for as many as may be outstanding.
        if !has_room && self.rules.reads_with_messages {
            return None;
        }
        let now = clock.now();
        let admit = |queue, len| self.read_throttle.try_admit(queue, len, now);
        let chunk = self.rndv_get.next_chunk(now, admit);
        self.settle_stopped();
        match chunk {
            Some(chunk) => Some(Transmit::Read(chunk)),
            None => {
                self.read_throttle.pass();
                if let Some(len) = self.read_throttle.take_wait() {
                    self.actions.push_back(Action::TakeTurn { len });
                }
                None
            }
        }
    }

    fn next_control(&mut self, clock: &mut Clock) -> Option<Transmit<B>> {
        let &kind = self.control.front()?;
        // Before a credit is taken, which could not be returned.
        if self.control_slots.is_empty() {
            return None;
        }
        let may = match kind.is_reserved() {
            true => self.flow.try_take_reserved(),
            false => self.flow.try_take(clock),
        };
        if !may {
            return None;
        }
        let mut slot = self.control_slots.pop()?;
        self.control.pop_front();
        let len = self.write_proof(kind, &mut slot);
        Some(self.message(kind, slot, len, None))
    }

    fn next_outgoing(&mut self, clock: &mut Clock) -> Option<Transmit<B>> {
        let window = match self.outgoing.front()? {
            Outgoing::Rts { .. } => match self.next_memory_window() {
                NextMemoryWindow::Awaited => return None,
                NextMemoryWindow::NotUsed => None,
                NextMemoryWindow::Free(window) => Some(window),
            },
            // A completion gives a slot back, and everything is tried again.
            Outgoing::Control(_) if self.control_slots.is_empty() => return None,
            Outgoing::Control(_) | Outgoing::Frame { .. } => None,
        };
        // A proof takes the reserve: until the path opens no credit is renewed.
        let front = self.outgoing.front();
        let is_proof = matches!(front, Some(Outgoing::Rts { payload, .. }) if payload.is_proof());
        let may = match is_proof {
            true => self.flow.try_take_reserved(),
            false => self.flow.try_take(clock),
        };
        if !may {
            self.memory_windows.give_back(window);
            return None;
        }
        match self.outgoing.pop_front()? {
            Outgoing::Control(header) => {
                let mut slot = self.control_slots.pop()?;
                slot[MESSAGE_HEADER_LEN..CONTROL_SLOT_LEN].copy_from_slice(&header);
                Some(self.message(MessageKind::Frame, slot, CONTROL_SLOT_LEN, None))
            }
            Outgoing::Frame { slot, len, permit } => {
                self.counters.small_sent.add(1);
                self.counters.written_bytes.add(len as u64);
                let len = MESSAGE_HEADER_LEN + len;
                Some(self.message(MessageKind::Frame, slot, len, Some(permit)))
            }
            Outgoing::Rts { payload, mut slot, permit, call, is_given_up } => {
                if !is_proof {
                    self.counters.large_sent.add(1);
                    self.counters.written_bytes.add(payload.written_len() as u64);
                }
                let (memory, binding) = Self::expose(&payload, window);
                let offer = payload.describe(&slot, memory);
                let len = MESSAGE_HEADER_LEN + offer.write(&mut slot[MESSAGE_HEADER_LEN..]);
                let now = clock.now();
                let key = binding.as_ref().map(|_| memory.key);
                let transfer = self.offered.insert(call, payload, key, now);
                self.timers.arm(Timer::Release, after(now, self.rules.timeouts.release));
                let kind = match is_proof {
                    true => MessageKind::Proof { transfer },
                    false => MessageKind::Rts { transfer },
                };
                if is_proof {
                    self.proof.handle_offered(transfer);
                }
                let len = self.write_header(kind, &mut slot, len);
                if is_given_up {
                    self.withdraw(call, clock);
                }
                Some(Transmit::Offer { binding, slot, len, permit })
            }
        }
    }

    /// The window for the next offer. Asks for one more where there may be more.
    fn next_memory_window(
        &mut self,
    ) -> NextMemoryWindow<crate::proto::connection::MemoryWindowOf<B>> {
        if !self.memory_windows.is_used() {
            return NextMemoryWindow::NotUsed;
        }
        match self.memory_windows.take() {
            Some(window) => NextMemoryWindow::Free(window),
            None => {
                if let Some(count) = self.memory_windows.ask() {
                    self.actions.push_back(Action::AllocateMemoryWindows { count });
                }
                NextMemoryWindow::Awaited
            }
        }
    }

    /// The next return, reclaim or pure grant.
    fn next_due(&mut self) -> Option<Transmit<B>> {
        if !self.flow.is_due() || self.control_slots.is_empty() {
            return None;
        }
        let kind = self.flow.take_due()?;
        let slot = self.control_slots.pop()?;
        Some(self.message(kind, slot, MESSAGE_HEADER_LEN, None))
    }

    fn message(
        &mut self,
        kind: MessageKind,
        mut slot: B::Slot,
        len: usize,
        permit: Option<B::Permit>,
    ) -> Transmit<B> {
        let len = self.write_header(kind, &mut slot, len);
        Transmit::Message { slot, len, takes_key: self.key_to_take(kind), permit }
    }

    /// Writes what a message carries behind its header, and gives its length: a probe and an answer
    /// have this side's proof, where the path is bound to a TLS session.
    fn write_proof(&self, kind: MessageKind, slot: &mut [u8]) -> usize {
        let is_probe = matches!(kind, MessageKind::Probe | MessageKind::ProbeAnswer);
        let Some(binding) = self.binding.as_ref().filter(|_| is_probe) else {
            return MESSAGE_HEADER_LEN;
        };
        slot[MESSAGE_HEADER_LEN..CONTROL_SLOT_LEN].copy_from_slice(binding.ours());
        CONTROL_SLOT_LEN
    }

    /// Writes the header of a message of `len` bytes, with everything that can be granted by now.
    fn write_header(&mut self, kind: MessageKind, slot: &mut [u8], len: usize) -> u32 {
        let waiting_count = self.control.len() + self.outgoing.len();
        let (epoch, grant) = (self.rules.peer_epoch, self.flow.announce(waiting_count));
        let header = MessageHeader { kind, epoch, grant };
        slot[..MESSAGE_HEADER_LEN].copy_from_slice(&header.to_bytes());
        // Slots are a few KiB long.
        u32::try_from(len).unwrap_or(u32::MAX)
    }

    /// The key that a message takes away.
    fn key_to_take(&mut self, kind: MessageKind) -> Option<RemoteKey> {
        match kind {
            MessageKind::Ats { transfer, .. } => self.peer_keys.remove(&transfer),
            _ => None,
        }
    }
}

/// Transfers that were revoked and whose releases may still come. More of them means that the peer
/// answers nothing.
const REVOKED_MAX: usize = 64;

impl<B: Buffers> ConnectionState<B> {
    /// Returns true if offers use memory windows. The first window is best allocated with the
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
            let counter = match outcome {
                AtsStatus::Read => &self.cancellations.completed,
                AtsStatus::Refused => &self.cancellations.not_started,
                AtsStatus::Stopped => &self.cancellations.stopped,
            };
            counter.add(1);
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
            // The memory is free once its key is dead, and not before.
            self.memory_windows.guard(binding.remote().key, released.buffer);
            self.actions.push_back(Action::Revoke(binding));
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
