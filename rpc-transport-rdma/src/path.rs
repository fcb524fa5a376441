//! The state of one RDMA path under its lock: what waits to be posted, and what is on its way.
//!
//! ```text
//!   Proving ──start──> Open ──close──> Closing ──everything sent and released──┐
//!      │                │                 │ or its bound of time               v
//!      └────────────────┴─────────────────┴── fail ──────────────────────> Halting ──> Ended
//!                                                                       (drained)
//! ```
//! Buffers are owned here or, once posted, by the queue pair; no future of a caller ever owns or
//! borrows one. What a peer may READ stays in `offered` until it is released, or until the queue
//! pair is gone. What arrives becomes an [`Arrival`], which is delivered when the lock is released.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use rpc_core::transport::{CloseReason, Counters};
use rpc_core::wire::{HEADER_LEN, ProtocolError};
use slab::Slab;
use tokio::sync::OwnedSemaphorePermit;

use crate::account::Account;
use crate::credits::RESERVE;
use crate::memory::{LargeBuffer, Sink, Slot, SlotPool};
use crate::message::{
    MESSAGE_HEADER_LEN, MessageHeader, MessageKind, Offer, OfferedSegment, Released,
};
use crate::puller::Puller;
use crate::verbs::{Completion, Done, QueuePair, Work};

/// The length of a control slot: a header, and a frame that is a header alone.
pub(crate) const CONTROL_SLOT_LEN: usize = MESSAGE_HEADER_LEN + HEADER_LEN;

/// The most control messages that wait. A client gives up at most `calls_max` calls, and a
/// release answers an offer, which costs its sender a credit; far more means that the peer takes
/// without ever granting.
const CONTROL_MAX: usize = 16 << 10;

/// Something to be sent that needs a send slot of its own, and whose order matters.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A frame that lies in its slot, behind room for the header.
    Frame { slot: Slot, len: usize, permit: OwnedSemaphorePermit },
    /// A frame to be offered, and the slot for the offer.
    Offer { buffer: LargeBuffer, slot: Slot, permit: OwnedSemaphorePermit },
    /// A frame that is a header alone. It waits here for its turn, so that what gives up a call
    /// does not come before the call; its slot is a control slot.
    Control([u8; HEADER_LEN]),
}

/// What came in.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A frame that travelled whole.
    Small(Bytes),
    /// A frame that was pulled.
    Large(Bytes),
    /// A frame that the peer offers.
    Offered { transfer: u32, offer: Offer },
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// The path is joined; nothing is delivered yet, and what arrives is kept.
    Proving(Vec<Arrival>),
    Open,
    /// Nothing new is taken; what was taken goes out.
    Closing,
    Halting(CloseReason),
}

/// What is fixed for the life of a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// What every message to us has to carry.
    pub(crate) our_epoch: u32,
    /// What every message to the peer has to carry.
    pub(crate) peer_epoch: u32,
    /// The slots that we promised the peer, the reserve not counted.
    pub(crate) window: u32,
    /// The most messages of an earlier path that can still arrive.
    pub(crate) stale_max: u32,
}

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) queue_pair: QueuePair,
    pub(crate) phase: Phase,
    pub(crate) is_proven: bool,
    /// Set while the lane handles a batch, at whose end everything is posted at once.
    pub(crate) is_corked: bool,
    rules: Rules,
    pub(crate) credits: Account,
    /// Messages without a body, which take their turn before frames.
    control: VecDeque<MessageKind>,
    control_slots: Arc<SlotPool>,
    outgoing: VecDeque<Outgoing>,
    offered: Slab<LargeBuffer>,
    puller: Puller<Arc<Sink>>,
    batch: VecDeque<Work>,
    /// For every send in `batch` or posted, in order, what comes back with its completion.
    permits: VecDeque<Option<OwnedSemaphorePermit>>,
    done: Vec<Done>,
    stale_count: u32,
}

impl Path {
    pub(crate) fn new(
        queue_pair: QueuePair,
        rules: Rules,
        credits: Account,
        control_slots: Arc<SlotPool>,
        puller: Puller<Arc<Sink>>,
    ) -> Self {
        Self {
            queue_pair,
            phase: Phase::Proving(Vec::new()),
            is_proven: false,
            is_corked: false,
            rules,
            credits,
            control: VecDeque::new(),
            control_slots,
            outgoing: VecDeque::new(),
            offered: Slab::new(),
            puller,
            batch: VecDeque::new(),
            permits: VecDeque::new(),
            done: Vec::new(),
            stale_count: 0,
        }
    }

    /// Whether something new may be sent.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Proving(_))
    }

    /// Whether everything that was taken has been sent and released.
    pub(crate) fn is_idle(&self) -> bool {
        self.control.is_empty()
            && self.outgoing.is_empty()
            && self.offered.is_empty()
            && self.puller.transfer_count() == 0
            && self.queue_pair.in_flight_len() == 0
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) {
        self.outgoing.push_back(outgoing);
    }

    pub(crate) fn push_probe(&mut self) {
        self.control.push_back(MessageKind::Probe);
    }

    pub(crate) fn push_release(&mut self, transfer: u32, outcome: Released) {
        self.control.push_back(MessageKind::Release { transfer, outcome });
    }

    /// Asks an idle peer for the credits that it does not use.
    pub(crate) fn recall(&mut self) {
        if matches!(self.phase, Phase::Open) {
            self.control.extend(self.credits.recall());
        }
    }

    /// Begins to pull what the peer offered under `transfer`.
    pub(crate) fn pull(
        &mut self,
        transfer: u32,
        segments: Vec<OfferedSegment>,
        sink: LargeBuffer,
    ) -> Result<(), ProtocolError> {
        self.puller.begin(transfer, segments, Arc::new(Sink::new(sink)))
    }

    /// Gives what arrived before the path was open, and opens it.
    pub(crate) fn open(&mut self) -> Result<Vec<Arrival>, ProtocolError> {
        let early = match std::mem::replace(&mut self.phase, Phase::Open) {
            Phase::Proving(early) => early,
            other => {
                self.phase = other;
                return Ok(Vec::new());
            }
        };
        for _ in &early {
            self.credits.handle_message()?;
        }
        Ok(early)
    }

    /// Takes a message from the peer. A frame is copied here, since its slot goes back at once.
    pub(crate) fn handle_message(
        &mut self,
        message: &[u8],
        counters: &Counters,
    ) -> Result<Option<Arrival>, ProtocolError> {
        let (header, body) = MessageHeader::parse(message)?;
        counters.received_bytes.add(message.len() as u64);
        if header.epoch != self.rules.our_epoch {
            return self.handle_stale(header.epoch);
        }
        self.credits.handle_grant(header.grant)?;
        let arrival = match header.kind {
            MessageKind::Frame => {
                counters.small_received.add(1);
                counters.copied_bytes.add(body.len() as u64);
                Some(Arrival::Small(Bytes::copy_from_slice(body)))
            }
            MessageKind::Offer { transfer } => {
                let offer = Offer::parse(body)?;
                Some(Arrival::Offered { transfer, offer })
            }
            kind => {
                self.handle_control(kind)?;
                None
            }
        };
        let Some(arrival) = arrival else {
            self.credits.handle_control(header.kind)?;
            return Ok(None);
        };
        let Phase::Proving(early) = &mut self.phase else {
            self.credits.handle_message()?;
            return Ok(Some(arrival));
        };
        // Counted when the path opens; until then the peer lives on its first window.
        if early.len() >= (self.rules.window + RESERVE) as usize {
            let value = early.len() as u64;
            return Err(ProtocolError::Invalid { what: "messages before the path opens", value });
        }
        early.push(arrival);
        Ok(None)
    }

    /// Ignores a message to an earlier queue pair that had the same number: its completion was
    /// still queued when that one was gone. There were at most as many as it had been promised.
    fn handle_stale(&mut self, epoch: u32) -> Result<Option<Arrival>, ProtocolError> {
        self.stale_count += 1;
        if self.stale_count > self.rules.stale_max {
            let value = epoch.into();
            return Err(ProtocolError::Invalid { what: "epoch of an RDMA message", value });
        }
        tracing::debug!(epoch, "ignored a message of an earlier path");
        Ok(None)
    }

    fn handle_control(&mut self, kind: MessageKind) -> Result<(), ProtocolError> {
        match kind {
            MessageKind::Release { transfer, .. } => {
                if self.offered.try_remove(transfer as usize).is_none() {
                    let value = transfer.into();
                    return Err(ProtocolError::Invalid { what: "transfer of a release", value });
                }
            }
            MessageKind::Probe => self.control.push_back(MessageKind::ProbeAnswer),
            MessageKind::ProbeAnswer => self.is_proven = true,
            MessageKind::Recall { keep } => {
                let returned = self.credits.handle_recall(keep);
                self.control.extend(returned.map(|returned| MessageKind::Return { returned }));
            }
            MessageKind::Return { .. }
            | MessageKind::Grant
            | MessageKind::Frame
            | MessageKind::Offer { .. } => {}
        }
        if self.control.len() > CONTROL_MAX {
            let value = self.control.len() as u64;
            return Err(ProtocolError::Invalid { what: "control messages without credit", value });
        }
        Ok(())
    }

    /// Takes a completion of the queue pair, and gives the frames that are now whole.
    pub(crate) fn handle_completion(
        &mut self,
        completion: Completion,
        counters: &Counters,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), CloseReason> {
        let mut done = std::mem::take(&mut self.done);
        if let Err(error) = self.queue_pair.handle_completion(completion, &mut done) {
            // A late completion of an earlier queue pair with the same tag frees nothing here.
            tracing::debug!(%error, "ignored a completion");
        }
        let mut result = Ok(());
        for Done { work, outcome } in done.drain(..) {
            if let Err(error) = outcome {
                let is_cause = result.is_ok() || !error.is_flush();
                if is_cause {
                    result = Err(CloseReason::Failed(format!("the RDMA path failed: {error}")));
                }
            }
            match work {
                Work::Send { .. } => drop(self.permits.pop_front()),
                Work::Read { sink, len, .. } if outcome.is_ok() => {
                    counters.received_bytes.add(len.into());
                    self.handle_read(sink, arrivals);
                }
                Work::Read { .. } => {}
            }
        }
        self.done = done;
        result
    }

    fn handle_read(&mut self, sink: Arc<Sink>, arrivals: &mut Vec<Arrival>) {
        let Some(transfer) = self.puller.handle_read() else { return };
        // The puller has let go of the sink with the transfer, so this READ held the last handle.
        if let Some(sink) = Arc::into_inner(sink) {
            self.push_release(transfer, Released::Read);
            arrivals.push(Arrival::Large(sink.into_buffer().freeze()));
        }
    }

    /// Posts as much of what waits as credits and the queue pair allow.
    pub(crate) fn flush(&mut self, counters: &Counters) -> Result<(), CloseReason> {
        if self.is_corked || matches!(self.phase, Phase::Halting(_)) {
            return Ok(());
        }
        loop {
            self.fill(counters);
            if self.batch.is_empty() {
                return Ok(());
            }
            let waiting_count = self.send_count();
            let posted = self.queue_pair.post(&mut self.batch);
            self.credits.tally().posts.add(1);
            counters.sent_count.add((waiting_count - self.send_count()) as u64);
            match posted {
                Ok(_) if self.batch.is_empty() && self.queue_pair.room() > 0 => {}
                // A completion makes room, and whoever handles it flushes again.
                Ok(_) => return Ok(()),
                Err(error) => {
                    let words = match std::error::Error::source(&error) {
                        Some(source) => format!("cannot post to the RDMA path: {error}: {source}"),
                        None => format!("cannot post to the RDMA path: {error}"),
                    };
                    return Err(CloseReason::Failed(words));
                }
            }
        }
    }

    /// The messages in the batch. A READ is none: the peer's device answers it, and not the peer.
    fn send_count(&self) -> usize {
        self.batch.iter().filter(|work| matches!(work, Work::Send { .. })).count()
    }

    /// Moves what may go out now into the batch: control messages, then frames, then READs.
    fn fill(&mut self, counters: &Counters) {
        let room = self.queue_pair.room();
        while self.batch.len() < room && self.fill_control() {}
        while self.batch.len() < room && self.fill_outgoing(counters) {}
        while self.batch.len() < room {
            let Some(chunk) = self.puller.next_chunk() else { break };
            let (sink, offset) = (chunk.sink, chunk.offset);
            self.batch.push_back(Work::Read { sink, offset, len: chunk.len, remote: chunk.remote });
        }
        if self.batch.len() < room && self.credits.is_grant_due() {
            self.fill_grant();
        }
    }

    fn fill_control(&mut self) -> bool {
        let Some(&kind) = self.control.front() else { return false };
        let Some(slot) = self.control_slots.try_take() else { return false };
        let may = match kind.is_reserved() {
            true => self.credits.try_take_reserved(),
            false => self.credits.try_take(),
        };
        if may {
            self.control.pop_front();
            self.commit(kind, slot, MESSAGE_HEADER_LEN, None);
        }
        may
    }

    fn fill_outgoing(&mut self, counters: &Counters) -> bool {
        let control_slot = match self.outgoing.front() {
            None => return false,
            Some(Outgoing::Control(_)) => match self.control_slots.try_take() {
                // A completion gives one back, and whoever handles it flushes again.
                None => return false,
                slot => slot,
            },
            Some(_) => None,
        };
        if !self.credits.try_take() {
            return false;
        }
        match self.outgoing.pop_front() {
            Some(Outgoing::Control(header)) => {
                let Some(mut slot) = control_slot else { return false };
                slot[MESSAGE_HEADER_LEN..CONTROL_SLOT_LEN].copy_from_slice(&header);
                self.commit(MessageKind::Frame, slot, CONTROL_SLOT_LEN, None);
            }
            Some(Outgoing::Frame { slot, len, permit }) => {
                counters.small_sent.add(1);
                self.commit(MessageKind::Frame, slot, MESSAGE_HEADER_LEN + len, Some(permit));
            }
            Some(Outgoing::Offer { buffer, mut slot, permit }) => {
                counters.large_sent.add(1);
                let offer = describe(&buffer);
                let len = MESSAGE_HEADER_LEN + offer.write(&mut slot[MESSAGE_HEADER_LEN..]);
                let key = self.offered.insert(buffer);
                // Buffers are at least 8 KiB each, so their number is far below 2^32.
                let transfer = u32::try_from(key).unwrap_or(u32::MAX);
                self.commit(MessageKind::Offer { transfer }, slot, len, Some(permit));
            }
            None => return false,
        }
        true
    }

    /// Sends the grant alone, since nothing else takes it along.
    fn fill_grant(&mut self) {
        let Some(slot) = self.control_slots.try_take() else { return };
        if self.credits.try_take_reserved() {
            self.credits.tally().grants_sent.add(1);
            self.commit(MessageKind::Grant, slot, MESSAGE_HEADER_LEN, None);
        }
    }

    fn commit(
        &mut self,
        kind: MessageKind,
        mut slot: Slot,
        len: usize,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let waiting_count = self.control.len() + self.outgoing.len();
        let (epoch, grant) = (self.rules.peer_epoch, self.credits.announce(waiting_count));
        let header = MessageHeader { kind, epoch, grant };
        slot[..MESSAGE_HEADER_LEN].copy_from_slice(&header.to_bytes());
        // Slots are a few KiB long.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.batch.push_back(Work::Send { slot, len });
        self.permits.push_back(permit);
    }

    /// Stops the queue pair; what is in flight comes back through its completions. What was not
    /// posted is dropped here, what was offered stays until the queue pair is gone.
    pub(crate) fn halt(&mut self, reason: CloseReason) {
        if matches!(self.phase, Phase::Halting(_)) {
            return;
        }
        self.phase = Phase::Halting(reason);
        self.control.clear();
        self.outgoing.clear();
        self.puller.clear();
        let unposted = self.batch.drain(..).filter(|work| matches!(work, Work::Send { .. }));
        let unposted = unposted.count();
        self.permits.truncate(self.permits.len() - unposted);
        if let Err(error) = self.queue_pair.halt() {
            // Destroying it, which follows in bounded time, does what halting could not.
            tracing::warn!(%error, "cannot halt a queue pair");
        }
    }

    /// Destroys the queue pair, and only then frees what the peer could read.
    pub(crate) fn destroy(self) {
        let Self { queue_pair, offered, .. } = self;
        drop(queue_pair);
        drop(offered);
    }
}

/// The offer of a frame that lies in one buffer.
fn describe(buffer: &LargeBuffer) -> Offer {
    let mut prefix = [0; HEADER_LEN];
    prefix.copy_from_slice(&buffer[..HEADER_LEN]);
    let frame_len = buffer.len() as u64;
    let segments = vec![OfferedSegment { memory: buffer.remote(), len: frame_len }];
    Offer { frame_len, prefix, segments }
}
