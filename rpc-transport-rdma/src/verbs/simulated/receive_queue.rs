//! A simulated shared receive queue as the queues above hold it.

use std::any::Any;
use std::sync::Arc;

use super::context::SimContext;
use crate::sim::state::{ReceiveQueueState, failed};
use crate::verbs::{PartialPost, RawReceive, RawSharedReceiveQueue, VerbsError};

#[derive(Debug)]
pub(super) struct SimReceiveQueue {
    pub(super) context: Arc<SimContext>,
    pub(super) id: u32,
    _memory: Arc<dyn Any + Send + Sync>,
}

impl SimReceiveQueue {
    pub(super) fn create(
        context: Arc<SimContext>,
        depth: u32,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, VerbsError> {
        let operation = "create a shared receive queue";
        let id = context.enter(operation, |state| {
            let device = context.device(state);
            if depth > state.devices[device].config.attributes.shared_receives_max {
                return Err(failed(operation, libc::EINVAL));
            }
            let id = state.next_id();
            let queue = ReceiveQueueState::new(context.id, depth);
            state.receive_queues.insert(id, queue);
            Ok(id)
        })?;
        Ok(Self { context, id, _memory: memory })
    }
}

// SAFETY: `drop` makes the network forget the queue before the memory's handle is dropped, and
// queue pairs keep the queue's `Arc`.
unsafe impl RawSharedReceiveQueue for SimReceiveQueue {
    unsafe fn post_receive(&self, requests: &[RawReceive]) -> Result<(), PartialPost> {
        self.context.fabric.enter(|state| state.post_receives(self.id, requests))
    }

    fn arm_limit(&self, limit: u32) -> Result<(), VerbsError> {
        let operation = "arm a shared receive queue's limit";
        self.context.enter(operation, |state| {
            let queue = state.receive_queues.get_mut(&self.id);
            let queue = queue.filter(|queue| limit <= queue.depth);
            let queue = queue.ok_or_else(|| failed(operation, libc::EINVAL))?;
            queue.limit = limit;
            Ok(())
        })
    }
}

impl Drop for SimReceiveQueue {
    fn drop(&mut self) {
        self.context.fabric.enter(|state| state.destroy_receive_queue(self.id));
    }
}
