//! Posts of receives.

use crate::AsyncEventKind;
use crate::sim::state::{NetworkState, Origin, Posted, SpanId, Usage};
use crate::sim::violation::SimViolation;
use crate::sys::provider::{Access, AsyncEvent, PartialPost, RawReceive};

impl NetworkState {
    /// Takes the receive for the next message, and says so when there are few left.
    pub(crate) fn take_receive(&mut self, id: u32) -> Option<Posted> {
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

    pub(crate) fn has_receive(&self, id: u32) -> bool {
        self.receive_queues.get(&id).is_some_and(|queue| !queue.posted.is_empty())
    }

    pub(crate) fn post_receives(
        &mut self,
        id: u32,
        requests: &[RawReceive],
    ) -> Result<(), PartialPost> {
        let refuse = |accepted, errno| Err(PartialPost { accepted, errno });
        let Some(context) = self.receive_queues.get(&id).map(|queue| queue.context) else {
            return refuse(0, libc::EINVAL);
        };
        let Some(opening) = self.contexts.get(&context).filter(|opening| !opening.is_dead) else {
            return refuse(0, libc::EIO);
        };
        let (requests, end) = self.scripted_receives(opening.device, requests);
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
        end
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

    pub(crate) fn destroy_receive_queue(&mut self, id: u32) {
        let queue = self.receive_queues.remove(&id);
        for span in queue.into_iter().flat_map(|queue| queue.spans) {
            self.ledger.remove(span);
        }
        self.forget_writes(
            |origin| matches!(origin, Origin::Receive { receive_queue, .. } if receive_queue == id),
        );
    }

    /// The completion of a receive has been polled.
    pub(crate) fn reap_receive(&mut self, id: u32, span: SpanId) {
        self.ledger.remove(span);
        if let Some(queue) = self.receive_queues.get_mut(&id) {
            queue.spans.remove(&span);
        }
    }
}
