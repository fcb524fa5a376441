//! A shared receive queue with the slots that messages arrive in.
//!
//! Receive memory is a matter of slots and not of connections. A message is looked at in place
//! while its slot is idle, and the slot goes back to the device in the next
//! [`repost`](SharedReceiveQueue::repost): no handler ever holds one.
//!
//! A receive names the queue pair that it came by only by number, and numbers are used again:
//! receives of a queue pair that is gone may still be polled, and their slots come back all the
//! same. What dies with a queue pair is found by [`settle`](SharedReceiveQueue::settle), and posted
//! again where the device's driver is known well enough ([`ReceiveDrain`](super::ReceiveDrain)).

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::lost_receives::LostReceives;
use super::slot_table::SlotTable;
use super::{
    Attachment, Completion, CompletionError, CompletionQueue, Device, FirmwareCommand, RawReceive,
    RawSharedReceiveQueue, ReceiveOrder, VerbsError, WorkId, WorkKind,
};
use crate::memory::{Access, Region};
use crate::sys::provider::{DeferredDrop, QueueIdentity};

/// The opcode of a plain received message, `IBV_WC_RECV`.
const OPCODE_RECEIVE: u32 = 128;

/// Size of a shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedReceiveQueueConfig {
    /// Number of slots; at most [`WorkId::POSITIONS`].
    pub slot_count: u16,
    /// Length of a slot in bytes: the longest message that can be received.
    pub slot_len: u32,
    /// Tag of its completions, at most [`WorkId::TAG_MAX`].
    pub tag: u32,
}

/// A shared receive queue, where the messages of many queue pairs arrive.
pub struct SharedReceiveQueue {
    raw: Arc<DeferredDrop<Arc<dyn RawSharedReceiveQueue>>>,
    attachment: Attachment,
    region: Arc<Region>,
    /// By slot: one that is posted again without having completed gets another.
    identities: Vec<QueueIdentity>,
    slots: SlotTable,
    losses: LostReceives,
    order: ReceiveOrder,
    /// The changes among its queue pairs that were settled.
    settled_changes: u64,
    reclaimed: u64,
    /// Slots that are lost for good.
    given_up: u32,
    slot_len: u32,
    batch: Vec<u16>,
    requests: Vec<RawReceive>,
}

/// The slots whose state became certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Slots that were found to be lost.
    pub lost: usize,
    /// Those of them that are idle now.
    pub reclaimed: usize,
}

/// While slots are in doubt they are judged once in so many parts of the queue's length: a few
/// slots are looked at for each message.
const JUDGED_PART: u32 = 16;

/// Why a completion gave no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The receive failed; its slot will be posted again.
    #[error(transparent)]
    Failed(#[from] CompletionError),
    /// The completion is not of a receive that this queue has posted.
    #[error("a completion of {0:?}, which this shared receive queue has not posted")]
    Unknown(WorkId),
    /// The device reports something else than a message that fits its slot.
    #[error("an unexpected completion: opcode {opcode}, {byte_len} bytes in a slot of {slot_len}")]
    Unexpected {
        /// The operation as verbs numbers it.
        opcode: u32,
        /// Bytes that were received, says the device.
        byte_len: u32,
        /// Length of the slot.
        slot_len: u32,
    },
}

impl SharedReceiveQueue {
    /// Makes a shared receive queue with its own memory and posts all its slots, as far as the
    /// device takes them now.
    ///
    /// # Errors
    ///
    /// [`VerbsError::LimitExceeded`] for more slots than the device or a work id can count,
    /// [`VerbsError::CompletionQueueFull`], [`VerbsError::MemoryLock`], or what the system said.
    pub fn new(
        completion_queue: &CompletionQueue,
        config: &SharedReceiveQueueConfig,
    ) -> Result<Self, VerbsError> {
        let device = completion_queue.device();
        let identity = check(device, config)?;
        let slot_count = config.slot_count;
        let len = config.slot_len as usize * usize::from(slot_count);
        let region = Arc::new(Region::new(device, len, Access::Eager)?);
        let depth = u32::from(slot_count);
        let _awaited = device.commands().await_firmware(FirmwareCommand::CreateQueue);
        let raw = device.raw().create_shared_receive_queue(depth, region.clone())?;
        let raw = Arc::new(DeferredDrop::new(raw, device, FirmwareCommand::DestroyQueue));
        let mut queue = Self {
            attachment: Attachment::new(completion_queue, &raw, depth)?,
            raw,
            region,
            identities: vec![identity; usize::from(slot_count)],
            slots: SlotTable::new(slot_count),
            losses: LostReceives::default(),
            order: device.receive_drain().order,
            settled_changes: 0,
            reclaimed: 0,
            given_up: 0,
            slot_len: config.slot_len,
            batch: Vec::with_capacity(usize::from(slot_count)),
            requests: Vec::with_capacity(usize::from(slot_count)),
        };
        queue.repost()?;
        Ok(queue)
    }

    /// Returns the attachment that new queue pairs need to receive here. It is cheap to clone and
    /// to send to other tasks.
    #[must_use]
    pub fn attachment(&self) -> Attachment {
        self.attachment.clone()
    }

    /// Shows the message of a completed receive to `read`. Its slot is idle from here on and goes
    /// back to the device with the next [`repost`](Self::repost), whatever `read` does.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::Failed`] for a failed receive, whose slot is idle too; the others mean that
    /// the completion was given to the wrong queue or that the device is broken.
    pub fn receive<R>(
        &mut self,
        completion: Completion,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, ReceiveError> {
        let (work_id, number, outcome) = completion.into_parts();
        let identity = self.identities.get(usize::from(work_id.position()));
        let is_ours = work_id.kind() == WorkKind::Receive
            && identity.is_some_and(|identity| identity.owns(work_id));
        let post = if is_ours { self.slots.complete(work_id.position()) } else { None };
        let Some(post) = post else { return Err(ReceiveError::Unknown(work_id)) };
        let receivers = self.attachment.receivers();
        self.losses.handle_receive(number, post, || receivers.deaths_before(number));
        let success = outcome?;
        let (opcode, byte_len, slot_len) = (success.opcode, success.byte_len, self.slot_len);
        if opcode != OPCODE_RECEIVE || byte_len > slot_len {
            return Err(ReceiveError::Unexpected { opcode, byte_len, slot_len });
        }
        let offset = self.offset(work_id.position());
        let span = self.region.span(offset, byte_len as usize);
        // SAFETY: V6: the slot was posted and its completion has been polled, so the device is
        // done with it, and it is not posted again while `self` is borrowed here. M1: its bytes
        // are initialised. The region lives as long as `self`.
        Ok(read(unsafe { span.as_ref() }))
    }

    /// Posts all idle slots with one call into the device and returns how many it took. What it
    /// cannot take now (`ENOMEM`) stays idle for the next time, and so does what it refuses.
    ///
    /// # Errors
    ///
    /// Returns the system's error when the device refused some for another reason.
    pub fn repost(&mut self) -> Result<usize, VerbsError> {
        if self.slots.idle_count() == 0 {
            return Ok(0);
        }
        self.attachment.receivers().set_taken_before(self.losses.newest());
        self.batch.clear();
        self.slots.post_idle(&mut self.batch);
        self.requests.clear();
        for slot in &self.batch {
            let offset = usize::from(*slot) * self.slot_len as usize;
            self.requests.push(RawReceive {
                work_id: self.identities[usize::from(*slot)]
                    .work_id(WorkKind::Receive, *slot)
                    .to_u64(),
                segment: self.region.segment(offset, self.slot_len),
            });
        }
        // SAFETY: V6: the segments are slots of the region that the raw queue keeps; they were
        // idle, are marked as posted, and `receive` reads none before its completion.
        let Err(partial) = (unsafe { self.raw.post_receive(&self.requests) }) else {
            return Ok(self.batch.len());
        };
        for slot in self.batch.iter().skip(partial.accepted) {
            self.slots.take_back(*slot);
        }
        if partial.errno == libc::ENOMEM {
            return Ok(partial.accepted.min(self.batch.len()));
        }
        let source = std::io::Error::from_raw_os_error(partial.errno);
        Err(VerbsError::system("post receives", source))
    }

    /// Finds slots that were lost with queue pairs that died, for the task that polls: when the
    /// completion queue was polled and what it gave was received. They are idle then, where the
    /// device takes receives in the order of posting for certain. Costs nothing as long as no queue
    /// pair has gone. `None` if it had nothing to do.
    pub fn settle(&mut self) -> Option<Settled> {
        let receivers = self.attachment.receivers();
        let changes = receivers.changes();
        let interval = u32::try_from(self.identities.len()).unwrap_or(u32::MAX) / JUDGED_PART;
        if changes == self.settled_changes && !self.losses.is_due(interval.max(1)) {
            return None;
        }
        let present = receivers.present(self.attachment.completion_queue().budget.freed_total());
        let verdict = self.losses.judge(&present);
        self.batch.clear();
        self.batch.extend(self.slots.posted_before(verdict.lost_before));
        let found = self.batch.len();
        let reclaimed = match self.order {
            ReceiveOrder::Posted => found,
            ReceiveOrder::Unknown => 0,
        };
        for slot in &self.batch[..reclaimed] {
            // V6: the device has it no longer.
            let identity = &mut self.identities[usize::from(*slot)];
            *identity = identity.renewed();
            self.slots.take_back(*slot);
        }
        self.reclaimed += reclaimed as u64;
        let given_up = u32::try_from(found - reclaimed).unwrap_or(u32::MAX);
        let lost = reclaimed + given_up.saturating_sub(self.given_up) as usize;
        self.given_up = given_up;
        let doubtful = self.slots.posted_before(verdict.doubtful_before).count();
        let missing = u32::try_from(doubtful).unwrap_or(u32::MAX).saturating_add(verdict.unseen);
        self.losses.set_doubt(missing, &present);
        receivers.set_missing(missing, present.deaths);
        if present.departed_count == 0 {
            self.settled_changes = changes;
        }
        Some(Settled { lost, reclaimed })
    }

    /// Slots that were lost and are posted again, or idle, since it was made.
    #[must_use]
    pub fn reclaimed_count(&self) -> u64 {
        self.reclaimed
    }

    /// Returns true if every slot is known to be posted or idle.
    #[cfg(test)]
    pub(super) fn is_certain(&self) -> bool {
        !self.losses.is_due(0)
    }

    /// Asks the device for one asynchronous event when fewer than `limit` slots are posted.
    ///
    /// # Errors
    ///
    /// Returns the system's error, for example that the device does not know limits.
    pub fn arm_limit(&self, limit: u32) -> Result<(), VerbsError> {
        self.raw.arm_limit(limit)
    }

    /// Asks for that event without waiting for the device's firmware. A device that does not know
    /// limits is logged.
    pub(crate) fn request_limit(&self, limit: u32, runtime: &Handle) {
        let (raw, device) = (Arc::clone(&self.raw), self.attachment.device().clone());
        let bulk = &self.attachment.device().commands().bulk;
        bulk.push(FirmwareCommand::ModifyReceiveQueue, move || {
            if let Err(error) = raw.arm_limit(limit) {
                let device = device.name();
                tracing::debug!(
                    target: "farcall::rdma",
                    %error, device, "the device does not report a receive queue that runs low"
                );
            }
        });
        bulk.serve(runtime);
    }

    /// Number of slots that wait for [`repost`](Self::repost).
    #[must_use]
    pub fn idle_count(&self) -> usize {
        self.slots.idle_count()
    }

    /// Number of slots that the device has had for longer than one that has completed.
    ///
    /// Devices fill slots in the order of posting, so such a slot is being filled, or was when its
    /// queue pair died: then it may never complete and is lost to this queue. Soft-RoCE of Linux
    /// 6.12 does that to a message cut off between two packets; 6.1 flushes it. While nothing
    /// arrives this is the number of lost slots; else take off one for each live queue pair.
    #[must_use]
    pub fn overtaken_count(&self) -> usize {
        self.slots.overtaken_count()
    }

    /// Length of a slot in bytes.
    #[must_use]
    pub fn slot_len(&self) -> u32 {
        self.slot_len
    }

    /// Bytes of memory that it receives into, whatever the number of queue pairs.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.region.len()
    }

    fn offset(&self, slot: u16) -> usize {
        usize::from(slot) * self.slot_len as usize
    }
}

/// Checks a configuration against the device and the format of work ids.
fn check(device: &Device, config: &SharedReceiveQueueConfig) -> Result<QueueIdentity, VerbsError> {
    let max = device.attributes().shared_receives_max.min(WorkId::POSITIONS.into());
    let wanted = u32::from(config.slot_count);
    if wanted > max {
        let what = "number of receive slots";
        return Err(VerbsError::LimitExceeded { what, wanted: wanted.into(), max: max.into() });
    }
    QueueIdentity::new(config.tag)
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("raw", &self.raw)
            .field("slot_len", &self.slot_len)
            .field("idle_count", &self.idle_count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scripted::ScriptedDevice;
    use crate::verbs::RawCompletion;

    fn queue(sim: &ScriptedDevice) -> (CompletionQueue, SharedReceiveQueue) {
        let completion_queue = CompletionQueue::new(&sim.device(), 64).unwrap();
        let config = SharedReceiveQueueConfig { slot_count: 4, slot_len: 64, tag: 3 };
        let queue = SharedReceiveQueue::new(&completion_queue, &config).unwrap();
        (completion_queue, queue)
    }

    fn next(completion_queue: &mut CompletionQueue) -> Completion {
        let mut out = Vec::new();
        assert_eq!(completion_queue.poll(&mut out).unwrap(), 1);
        out.remove(0)
    }

    #[test]
    fn out_of_order_slots_are_reposted_together() {
        let sim = ScriptedDevice::new();
        let (mut completions, mut queue) = queue(&sim);
        assert_eq!(sim.posted_receives(), 4);
        for (slot, text) in [(2, "two"), (0, "zero")] {
            sim.deliver(slot, text.as_bytes(), 9);
            let completion = next(&mut completions);
            assert_eq!((completion.tag(), completion.queue_pair_number()), (3, 9));
            let read = queue.receive(completion, <[u8]>::to_vec).unwrap();
            assert_eq!(read, text.as_bytes());
        }
        assert_eq!((queue.idle_count(), queue.repost().unwrap()), (2, 2));
        assert_eq!(sim.receive_calls(), 2, "one call for all slots, one for both");
        assert_eq!(queue.repost().unwrap(), 0);
    }

    #[test]
    fn duplicate_and_foreign_completions_are_refused() {
        let sim = ScriptedDevice::new();
        let (mut completions, mut queue) = queue(&sim);
        let raw = sim.deliver(1, b"once", 9);
        sim.complete(raw);
        let mut out = Vec::new();
        completions.poll(&mut out).unwrap();
        let twice = out.pop().unwrap();
        queue.receive(out.pop().unwrap(), |_| ()).unwrap();
        assert!(matches!(queue.receive(twice, |_| ()), Err(ReceiveError::Unknown(_))));
        let other = QueueIdentity::new(3).unwrap().work_id(WorkKind::Receive, 0);
        sim.complete(RawCompletion { work_id: other.to_u64(), ..raw });
        let result = queue.receive(next(&mut completions), |_| ());
        assert!(matches!(result, Err(ReceiveError::Unknown(id)) if id == other));
    }

    #[test]
    fn a_failed_receive_and_an_impossible_length_give_the_slot_back() {
        let sim = ScriptedDevice::new();
        let (mut completions, mut queue) = queue(&sim);
        let raw = sim.take_receive(0, 9);
        sim.complete(RawCompletion { status: 5, ..raw });
        let error = queue.receive(next(&mut completions), |_| ()).unwrap_err();
        assert!(matches!(error, ReceiveError::Failed(error) if error.is_flush()));
        let raw = sim.take_receive(0, 9);
        sim.complete(RawCompletion { byte_len: 65, ..raw });
        let error = queue.receive(next(&mut completions), |_| ()).unwrap_err();
        assert!(matches!(error, ReceiveError::Unexpected { byte_len: 65, .. }));
        assert_eq!(queue.repost().unwrap(), 2);
    }

    #[test]
    fn a_panic_while_reading_does_not_lose_the_slot() {
        let sim = ScriptedDevice::new();
        let (mut completions, mut queue) = queue(&sim);
        sim.deliver(0, b"boom", 9);
        let completion = next(&mut completions);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = queue.receive(completion, |_| panic!("while reading"));
        }));
        assert!(panicked.is_err());
        assert_eq!(queue.repost().unwrap(), 1);
    }

    #[test]
    fn a_partial_repost_keeps_the_rest_for_the_next_time() {
        let sim = ScriptedDevice::new();
        let (mut completions, mut queue) = queue(&sim);
        for _ in 0..3 {
            sim.deliver(0, b"x", 9);
            queue.receive(next(&mut completions), |_| ()).unwrap();
        }
        sim.refuse_receives(1, 1, libc::EIO);
        assert!(queue.repost().is_err());
        assert_eq!(queue.idle_count(), 2);
        assert_eq!(queue.repost().unwrap(), 2);
        assert_eq!(sim.posted_receives(), 4);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let sim = ScriptedDevice::new();
        let completions = CompletionQueue::new(&sim.device(), 8).unwrap();
        let config = SharedReceiveQueueConfig { slot_count: 9, slot_len: 64, tag: 0 };
        let error = SharedReceiveQueue::new(&completions, &config).unwrap_err();
        assert!(matches!(error, VerbsError::CompletionQueueFull { wanted: 9, free: 8, .. }));
        let config = SharedReceiveQueueConfig { slot_count: 4, tag: u32::MAX, ..config };
        let error = SharedReceiveQueue::new(&completions, &config).unwrap_err();
        assert!(matches!(error, VerbsError::LimitExceeded { what: "tag", .. }));
    }
}
