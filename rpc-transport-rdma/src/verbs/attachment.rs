//! The link between queue pairs and their completion queue and shared receive queue.
//!
//! One task polls those two, while a queue pair is made wherever a connection is negotiated. The
//! attachment keeps both alive, so a queue pair never outlives them.

use std::sync::Arc;
use std::time::Duration;

use super::completion_queue::SharedCompletionQueue;
use super::{CompletionQueue, Device, RawSharedReceiveQueue, VerbsError};
use crate::sys::provider::DeferredDrop;
use crate::verbs::lost_receives::Receivers;

/// Lets new queue pairs complete into a completion queue and receive from a shared receive queue.
#[derive(Debug, Clone)]
pub struct Attachment {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: Device,
    completion_queue: Arc<SharedCompletionQueue>,
    shared_receive_queue: Arc<DeferredDrop<Arc<dyn RawSharedReceiveQueue>>>,
    receive_count: u32,
    receivers: Receivers,
}

impl Attachment {
    /// Claims the completions of `receive_count` receives.
    pub(super) fn new(
        completion_queue: &CompletionQueue,
        shared_receive_queue: &Arc<DeferredDrop<Arc<dyn RawSharedReceiveQueue>>>,
        receive_count: u32,
    ) -> Result<Self, VerbsError> {
        let shared = completion_queue.shared();
        shared.budget.claim(receive_count)?;
        let inner = Inner {
            device: completion_queue.device().clone(),
            completion_queue: Arc::clone(shared),
            shared_receive_queue: Arc::clone(shared_receive_queue),
            receive_count,
            receivers: Receivers::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The device of both queues.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Blocks the thread until the entries of queue pairs that are gone are free in the completion
    /// queue again, for `limit` at most. Their destruction has woken the task that polls; a new
    /// queue pair that found no room may find some after this.
    pub fn wait_for_entries(&self, limit: Duration) {
        self.inner.completion_queue.budget.wait_until_freed(limit);
    }

    /// Returns true if the completion queue has an event that its task has not taken. Other tasks
    /// use it to find out that something has completed meanwhile.
    #[must_use]
    pub fn has_event(&self) -> bool {
        self.inner.completion_queue.raw.has_event()
    }

    /// Entries of the completion queue that are claimed by the shared receive queue and by queue
    /// pairs, or were and are not free yet.
    #[must_use]
    pub fn claimed_entries(&self) -> u32 {
        self.inner.completion_queue.budget.claimed()
    }

    /// Receives that may never complete, because their queue pairs died: at least as many as there
    /// are. Each is posted again, or counts for as long as the shared receive queue is there.
    #[must_use]
    pub fn missing_receives(&self) -> u32 {
        self.inner.receivers.missing()
    }

    pub(super) fn receivers(&self) -> &Receivers {
        &self.inner.receivers
    }

    pub(super) fn completion_queue(&self) -> &SharedCompletionQueue {
        &self.inner.completion_queue
    }

    pub(super) fn shared_receive_queue(&self) -> &Arc<dyn RawSharedReceiveQueue> {
        &self.inner.shared_receive_queue
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let budget = &self.completion_queue.budget;
        budget.announce(self.receive_count);
        budget.retire(self.receive_count);
    }
}
