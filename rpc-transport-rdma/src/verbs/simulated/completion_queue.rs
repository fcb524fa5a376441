//! A simulated completion queue as the queues above hold it.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::context::SimContext;
use crate::sim::state::{CompletionQueueState, NetworkState, Origin, failed};
use crate::sim::waiter::Waiter;
use crate::verbs::{RawCompletion, RawCompletionQueue, VerbsError};

#[derive(Debug)]
pub(super) struct SimCompletionQueue {
    pub(super) context: Arc<SimContext>,
    pub(super) id: u32,
    capacity: u32,
    waiter: Waiter,
}

impl SimCompletionQueue {
    pub(super) fn create(context: Arc<SimContext>, capacity: u32) -> Result<Self, VerbsError> {
        let operation = "create a completion queue";
        let id = context.enter(operation, |state| {
            let device = context.device(state);
            let max = state.devices[device].config.attributes.completions_max;
            if capacity == 0 || capacity > max {
                return Err(failed(operation, libc::EINVAL));
            }
            let id = state.next_id();
            let queue = CompletionQueueState::new(context.id, device, capacity);
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
