//! Fetches the peer's offers: memory in its turn, then READs, then a release.

use rpc_core::wire::ProtocolError;

use super::{Action, Arrival, Buffers, ConnectionState};
use crate::proto::clock::Clock;
use crate::proto::connection::deadlines::Timer;
use crate::proto::rndv::get::{Due, GetRequest, Outcome};
use crate::proto::wire::{AtsStatus, MessageKind};

impl<B: Buffers> ConnectionState<B> {
    /// Queues what the peer offered under `transfer`, which is wanted.
    pub(super) fn accept(
        &mut self,
        transfer: u32,
        wanted: GetRequest,
    ) -> Result<(), ProtocolError> {
        let until = wanted.deadline.map_or(wanted.memory_by, |it| it.min(wanted.memory_by)).0;
        self.rndv_get.accept(transfer, wanted)?;
        // The transfer is refused then if no memory has come.
        self.timers.arm(Timer::Memory, until);
        self.take_memory();
        Ok(())
    }

    /// Refuses what the peer offered under `transfer`.
    pub(super) fn refuse(&mut self, transfer: u32) {
        self.push_release(transfer, AtsStatus::Refused);
    }

    pub(super) fn push_release(&mut self, transfer: u32, outcome: AtsStatus) {
        self.control.push_back(MessageKind::Ats { transfer, outcome });
    }

    /// Requests memory for due transfers, unless a request is pending.
    pub(super) fn take_memory(&mut self) {
        if !self.is_taking && self.rndv_get.has_due() {
            self.is_taking = true;
            self.actions.push_back(Action::TakeMemory);
        }
    }

    /// The next transfer to take memory for: to be asked until there is none, after
    /// [`Action::TakeMemory`].
    pub(crate) fn next_memory(&mut self) -> Option<Due> {
        // A halting connection must take no more memory: it would hold it until its queue pairs are
        // gone.
        let due = if self.is_halting() { None } else { self.rndv_get.next_due() };
        self.is_taking = due.is_some();
        due
    }

    /// The head of a frame of `len` bytes whose transfer waits for memory, which has to lie there
    /// before the memory is given. None for a transfer that was stopped meanwhile, or that is of
    /// another length, for whose memory the owner waits as well.
    pub(crate) fn head(&self, transfer: u32, len: usize) -> Option<&[u8]> {
        self.rndv_get.head(transfer, len)
    }

    /// Returns true if an accepted transfer still waits for memory.
    pub(crate) fn is_waiting(&self, transfer: u32) -> bool {
        self.rndv_get.is_waiting(transfer)
    }

    /// Returns true if the owner waits for room for READs.
    #[cfg(test)]
    pub(crate) fn waits_to_read(&self) -> bool {
        self.read_throttle.is_waiting()
    }

    /// Takes a READ back, and the length that it has read if it did.
    pub(super) fn handle_read(
        &mut self,
        queue: usize,
        read_len: Option<u32>,
        sink: B::Sink,
        clock: &mut Clock,
    ) {
        // Queue pairs that carry nothing but READs are not counted in `in_flight`.
        self.in_flight -= usize::from(self.rules.reads_with_messages);
        self.read_throttle.handle_read(queue, clock.now());
        // A READ that failed delivers nothing. The failure of its queue pair ends
        // the connection.
        let Some(len) = read_len else { return };
        self.counters.received_bytes.add(len.into());
        let Some(ended) = self.rndv_get.handle_read(queue) else { return };
        match ended.outcome {
            Outcome::Whole => self.handle_whole(ended.transfer, sink),
            Outcome::NotStarted(_) | Outcome::Stopped(_) => self.settle(ended),
        }
        self.take_memory();
    }

    /// Delivers what was read whole.
    fn handle_whole(&mut self, transfer: u32, sink: B::Sink) {
        if let Some((head_len, count)) = self.proof.take_shape(transfer) {
            // Released when it was checked: the release says whether the bytes are right.
            self.deliveries.push_back(Arrival::Proof { sink, head_len, count });
            return;
        }
        self.push_release(transfer, AtsStatus::Read);
        self.deliveries.push_back(Arrival::Large(sink));
    }
}
