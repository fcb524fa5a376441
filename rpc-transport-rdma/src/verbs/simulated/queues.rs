//! Simulated completion queues and shared receive queues as queues above hold them.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::sim::SimVerb;
use crate::sim::fabric::Waiter;
use crate::sim::state::{CompletionQueueState, NetworkState, Origin, ReceiveQueueState, failed};
use crate::sys::provider::queue_memory::{completion_queue_len, shared_receive_queue_len};
use crate::sys::provider::{
    PartialPost, RawCompletion, RawCompletionQueue, RawReceive, RawSharedReceiveQueue, VerbsError,
};
use crate::verbs::simulated::context::SimContext;

#[derive(Debug)]
pub(crate) struct SimCompletionQueue {
    pub(crate) context: Arc<SimContext>,
    pub(crate) id: u32,
    capacity: u32,
    waiter: Waiter,
}

impl SimCompletionQueue {
    pub(crate) fn create(
        context: Arc<SimContext>,
        capacity: u32,
        vector: u32,
    ) -> Result<Self, VerbsError> {
        let operation = "create a completion queue";
        context.command(operation, SimVerb::CreateQueue)?;
        let id = context.enter(operation, |state| {
            let device = context.device(state);
            let attributes = &state.devices[device].config.attributes;
            let max = attributes.completions_max;
            if capacity == 0 || capacity > max || vector >= attributes.completion_vectors {
                return Err(failed(operation, libc::EINVAL));
            }
            let locked = state.lock_queue(device, operation, completion_queue_len(capacity))?;
            let id = state.next_id();
            let queue = CompletionQueueState::new(context.id, device, capacity, locked);
            let queue = CompletionQueueState { vector, ..queue };
            state.completion_queues.insert(id, queue);
            Ok(id)
        })?;
        Ok(Self { context, id, capacity, waiter: Waiter::default() })
    }
}

// SAFETY: each entry is popped once, and `NetworkState` makes it when the device is done with the
// memory of its request and of all before it: what is left to write is written before it is
// returned.
unsafe impl RawCompletionQueue for SimCompletionQueue {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn poll(&self, out: &mut [RawCompletion]) -> Result<usize, VerbsError> {
        self.context.fabric.enter(|state| state.poll_completions(self.id, out))
    }

    fn arm(&self) -> Result<(), VerbsError> {
        self.context.fabric.enter(|state| state.arm(self.id));
        Ok(())
    }

    fn poll_event(&self, context: &mut Context<'_>) -> Poll<Result<(), VerbsError>> {
        let take = |state: &mut NetworkState| state.take_event(self.id);
        self.waiter.poll(&self.context.fabric, self.id, context, take)
    }

    fn has_event(&self) -> bool {
        self.context.fabric.enter(|state| state.has_event(self.id))
    }
}

impl Drop for SimCompletionQueue {
    fn drop(&mut self) {
        let _ = self.context.command("destroy a completion queue", SimVerb::DestroyQueue);
        self.context.fabric.enter(|state| {
            let queue = state.completion_queues.remove(&self.id);
            // Receives whose completions will never be polled end here.
            for entry in queue.into_iter().flat_map(|queue| queue.completions) {
                if let Origin::Receive { span, .. } = entry.origin {
                    state.ledger.remove(span);
                }
            }
            state.stop_waiting(self.id);
        });
    }
}

#[derive(Debug)]
pub(crate) struct SimReceiveQueue {
    pub(crate) context: Arc<SimContext>,
    pub(crate) id: u32,
    _memory: Arc<dyn Any + Send + Sync>,
}

impl SimReceiveQueue {
    pub(crate) fn create(
        context: Arc<SimContext>,
        depth: u32,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, VerbsError> {
        let operation = "create a shared receive queue";
        context.command(operation, SimVerb::CreateQueue)?;
        let id = context.enter(operation, |state| {
            let device = context.device(state);
            if depth > state.devices[device].config.attributes.shared_receives_max {
                return Err(failed(operation, libc::EINVAL));
            }
            let locked = state.lock_queue(device, operation, shared_receive_queue_len(depth))?;
            let id = state.next_id();
            let queue = ReceiveQueueState::new(context.id, device, depth, locked);
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
        self.context.command(operation, SimVerb::ModifyReceiveQueue)?;
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
        let _ = self.context.command("destroy a shared receive queue", SimVerb::DestroyQueue);
        self.context.fabric.enter(|state| state.destroy_receive_queue(self.id));
    }
}
