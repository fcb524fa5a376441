//! Shared receive queues of a simulated device.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::completion_queue::Origin;
use super::context::{SimContext, failed};
use super::span_ledger::{SpanId, Usage};
use super::state::NetworkState;
use super::violation::SimViolation;
use crate::memory::{Access, Region};
use crate::verbs::{
    AsyncEvent, AsyncEventKind, PartialPost, RawReceive, RawSharedReceiveQueue, VerbsError,
};

#[derive(Debug)]
pub(super) struct ReceiveQueueState {
    context: u32,
    depth: u32,
    limit: u32,
    posted: VecDeque<Posted>,
    /// Memory of receives that are posted, or completed and not polled.
    spans: BTreeSet<SpanId>,
}

/// A receive that waits for a message.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) receive: RawReceive,
    pub(super) span: SpanId,
}

impl NetworkState {
    /// Takes the receive for the next message, and says so when there are few left.
    pub(super) fn take_receive(&mut self, id: u32) -> Option<Posted> {
        let queue = self.receive_queues.get_mut(&id)?;
        let posted = queue.posted.pop_front()?;
        if (queue.posted.len() as u64) < u64::from(queue.limit) {
            queue.limit = 0;
            let context = queue.context;
            let kind = AsyncEventKind::ReceiveLimit;
            self.raise(context, AsyncEvent { kind, port: None, queue_pair_number: None });
        }
        Some(posted)
    }

    pub(super) fn has_receive(&self, id: u32) -> bool {
        self.receive_queues.get(&id).is_some_and(|queue| !queue.posted.is_empty())
    }

    fn post_receives(&mut self, id: u32, requests: &[RawReceive]) -> Result<(), PartialPost> {
        let refuse = |accepted, errno| Err(PartialPost { accepted, errno });
        let Some(context) = self.receive_queues.get(&id).map(|queue| queue.context) else {
            return refuse(0, libc::EINVAL);
        };
        if self.contexts.get(&context).is_none_or(|context| context.is_dead) {
            return refuse(0, libc::EIO);
        }
        let refused = self.roll(self.faults.refused_receive).then(|| self.pick(requests.len()));
        for (index, receive) in requests.iter().enumerate() {
            if refused == Some(index) {
                self.counters.refused_posts += 1;
                return refuse(index, libc::ENOMEM);
            }
            if let Err(errno) = self.post_receive(id, context, *receive) {
                return refuse(index, errno);
            }
        }
        Ok(())
    }

    fn post_receive(&mut self, id: u32, context: u32, receive: RawReceive) -> Result<(), i32> {
        let queue = self.receive_queues.get(&id).ok_or(libc::EINVAL)?;
        if queue.posted.len() >= queue.depth as usize {
            let depth = queue.depth;
            self.report(SimViolation::ReceiveQueueOverrun { depth });
            return Err(libc::ENOMEM);
        }
        let (address, len) = (receive.segment.address, receive.segment.len);
        match self.region_of(context, receive.segment).map(|region| region.access) {
            Some(Access::Eager) => {}
            Some(_) => self.report(SimViolation::WrongAccess { address, len }),
            None => {
                self.report(SimViolation::UnknownMemory { address, len });
                return Err(libc::EINVAL);
            }
        }
        let (span, collides) = self.ledger.insert(address, len.into(), Usage::Writes);
        if collides {
            self.report(SimViolation::MemoryInUse { address, len });
        }
        if let Some(queue) = self.receive_queues.get_mut(&id) {
            queue.posted.push_back(Posted { receive, span });
            queue.spans.insert(span);
        }
        Ok(())
    }

    fn destroy_receive_queue(&mut self, id: u32) {
        let queue = self.receive_queues.remove(&id);
        for span in queue.into_iter().flat_map(|queue| queue.spans) {
            self.ledger.remove(span);
        }
        self.forget_writes(
            |origin| matches!(origin, Origin::Receive { receive_queue, .. } if receive_queue == id),
        );
    }

    /// The completion of a receive has been polled.
    pub(super) fn reap_receive(&mut self, id: u32, span: SpanId) {
        self.ledger.remove(span);
        if let Some(queue) = self.receive_queues.get_mut(&id) {
            queue.spans.remove(&span);
        }
    }
}

#[derive(Debug)]
pub(super) struct SimReceiveQueue {
    pub(super) context: Arc<SimContext>,
    pub(super) id: u32,
    _memory: Arc<Region>,
}

impl SimReceiveQueue {
    pub(super) fn create(
        context: Arc<SimContext>,
        depth: u32,
        memory: Arc<Region>,
    ) -> Result<Self, VerbsError> {
        let operation = "create a shared receive queue";
        let id = context.enter(operation, |state| {
            let device = context.device(state);
            if depth > state.devices[device].config.attributes.shared_receives_max {
                return Err(failed(operation, libc::EINVAL));
            }
            let id = state.next_id();
            let queue = ReceiveQueueState {
                context: context.id,
                depth,
                limit: 0,
                posted: VecDeque::new(),
                spans: BTreeSet::new(),
            };
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
