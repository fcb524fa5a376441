//! A completion queue and its event channel, owned by the one task that polls it.
//!
//! The order that loses no completion: poll until nothing comes, [`arm`](CompletionQueue::arm),
//! poll once more until nothing comes, then [`wait`](CompletionQueue::wait). A wake-up may be
//! spurious; that the queue is empty after one is no error.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::completion_budget::CompletionBudget;
use super::{Completion, Device, FirmwareCommand, RawCompletion, RawCompletionQueue, VerbsError};
use crate::sys::provider::DeferredDrop;

/// The state that queues share with the completion queue that they complete into.
#[derive(Debug)]
pub(super) struct SharedCompletionQueue {
    pub(super) raw: DeferredDrop<Arc<dyn RawCompletionQueue>>,
    pub(super) budget: CompletionBudget,
}

/// A completion queue.
pub struct CompletionQueue {
    shared: Arc<SharedCompletionQueue>,
    device: Device,
    batch: [RawCompletion; Self::BATCH],
    /// Polls that have begun.
    polls: u64,
    /// Completions that they have taken.
    polled: u64,
    /// The last poll that left the queue empty; they count from 1.
    emptied_by: u64,
    /// Entries that were retired at some moment, and that moment.
    retiring: Option<(SweepMark, u32)>,
}

/// A moment in the life of a completion queue. [`CompletionQueue::has_swept`] says when everything
/// is polled that lay in the queue then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepMark {
    polls: u64,
    polled: u64,
}

impl CompletionQueue {
    /// Completions that one poll gives at most; fewer mean that there are no more.
    pub const BATCH: usize = 32;

    /// Makes a completion queue with room for at least `capacity` completions. It must hold those
    /// of all its queues at once: the shared receive queue's slots and, for each queue pair, its
    /// send depth and one more.
    ///
    /// # Errors
    ///
    /// [`VerbsError::LimitExceeded`] when the device has no such queues, or what the system said.
    pub fn new(device: &Device, capacity: u32) -> Result<Self, VerbsError> {
        Self::on_vector(device, capacity, 0)
    }

    /// Makes a completion queue whose events come by the completion vector of this number, modulo
    /// the device's.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn on_vector(device: &Device, capacity: u32, vector: u32) -> Result<Self, VerbsError> {
        let max = device.attributes().completions_max;
        if capacity > max {
            let what = "completion queue capacity";
            return Err(VerbsError::LimitExceeded {
                what,
                wanted: capacity.into(),
                max: max.into(),
            });
        }
        let vector = vector % device.attributes().completion_vectors.max(1);
        let _awaited = device.commands().await_firmware(FirmwareCommand::CreateQueue);
        let raw = device.raw().create_completion_queue(capacity, vector)?;
        let budget = CompletionBudget::new(raw.capacity());
        let raw = DeferredDrop::new(raw, device, FirmwareCommand::DestroyQueue);
        Ok(Self {
            shared: Arc::new(SharedCompletionQueue { raw, budget }),
            device: device.clone(),
            batch: [RawCompletion::default(); Self::BATCH],
            polls: 0,
            polled: 0,
            emptied_by: 0,
            retiring: None,
        })
    }

    /// Appends at most [`CompletionQueue::BATCH`] completions to `out` and returns how many; 0
    /// means there are none now.
    ///
    /// # Errors
    ///
    /// Returns the system's error. The queue and everything that completes into it are then lost.
    pub fn poll(&mut self, out: &mut Vec<Completion>) -> Result<usize, VerbsError> {
        let retired = self.shared.budget.retired();
        if retired > 0 && self.retiring.is_none() {
            self.retiring = Some((self.mark(), retired));
        }
        self.polls += 1;
        let count = self.shared.raw.poll(&mut self.batch)?.min(Self::BATCH);
        out.extend(self.batch[..count].iter().map(Completion::from_raw));
        self.polled += count as u64;
        let is_empty = count < Self::BATCH;
        if is_empty {
            self.emptied_by = self.polls;
        }
        if let Some((mark, retired_then)) = self.retiring
            && self.has_swept(mark)
        {
            self.shared.budget.free(if is_empty { retired } else { retired_then });
            self.retiring = None;
        }
        Ok(count)
    }

    /// The present moment.
    #[must_use]
    pub fn mark(&self) -> SweepMark {
        SweepMark { polls: self.polls, polled: self.polled }
    }

    /// Returns true if nothing lies in the queue any more that lay there at a moment. Either it was
    /// found empty since, or as much was polled as it can hold: completions come out in the order
    /// in which they went in (InfiniBand, 10.3.1 has both for queue pairs that are torn down).
    #[must_use]
    pub fn has_swept(&self, mark: SweepMark) -> bool {
        self.emptied_by > mark.polls || self.polled - mark.polled >= self.capacity().into()
    }

    /// Asks for one event when the next completion arrives.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn arm(&self) -> Result<(), VerbsError> {
        self.shared.raw.arm()
    }

    /// Polls for an event since the queue was armed. Takes all events that are there. Also ready
    /// when a queue that completed here is gone, because only a poll of the completion queue frees
    /// the entries that it had claimed.
    ///
    /// # Errors
    ///
    /// [`VerbsError::NoRuntime`] outside a tokio runtime, or what the system said.
    ///
    /// # Panics
    ///
    /// Panics if the tokio runtime was built without I/O.
    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<(), VerbsError>> {
        let event = self.shared.raw.poll_event(context);
        match self.shared.budget.poll_retired(context) {
            Poll::Ready(()) if event.is_pending() => Poll::Ready(Ok(())),
            _ => event,
        }
    }

    /// Waits for an event since the queue was armed. The first wait ties the queue to the tokio
    /// runtime that it runs in.
    ///
    /// # Errors
    ///
    /// [`VerbsError::NoRuntime`] outside a tokio runtime, or what the system said.
    ///
    /// # Panics
    ///
    /// Panics if the tokio runtime was built without I/O.
    ///
    /// # Cancel safety
    ///
    /// An event is taken only when the future is ready, so dropping it loses none.
    pub async fn wait(&mut self) -> Result<(), VerbsError> {
        poll_fn(|context| self.poll_event(context)).await
    }

    /// Returns the number of completions that it can hold.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.shared.raw.capacity()
    }

    pub(super) fn shared(&self) -> &Arc<SharedCompletionQueue> {
        &self.shared
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("shared", &self.shared).finish_non_exhaustive()
    }
}
