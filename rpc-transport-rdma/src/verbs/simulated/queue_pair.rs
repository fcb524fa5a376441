//! A simulated queue pair as the queues above hold it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sim::SimVerb;
use crate::sim::state::{Phase, QueuePairState, Wire, failed};
use crate::sys::provider::queue_memory::queue_pair_len;
use crate::sys::provider::{
    PartialPost, PathAttributes, QueuePairRequest, RawCompletionQueue, RawQueuePair, RawSend,
    RawSharedReceiveQueue, VerbsError,
};
use crate::verbs::simulated::context::SimContext;

#[derive(Debug)]
pub(crate) struct SimQueuePair {
    context: Arc<SimContext>,
    id: u32,
    number: u32,
    inline_max: u32,
    _completion_queue: Arc<dyn RawCompletionQueue>,
    _shared_receive_queue: Arc<dyn RawSharedReceiveQueue>,
}

impl SimQueuePair {
    pub(crate) fn create(
        context: Arc<SimContext>,
        request: &QueuePairRequest<'_>,
        (completion_queue, receive_queue): (u32, u32),
    ) -> Result<Self, VerbsError> {
        let operation = "create a queue pair";
        context.command(operation, SimVerb::CreateQueuePair)?;
        let (id, number, inline_max) = context.enter(operation, |state| {
            let device = context.device(state);
            let is_scripted = state.is_scripted(device);
            let config = &state.devices[device].config;
            let inline_max = request.inline_max.min(config.inline_max);
            let limits = config.attributes;
            let same_device_queue_pairs =
                state.queue_pairs.values().filter(|it| it.device == device);
            if same_device_queue_pairs.count() >= limits.queue_pairs_max as usize {
                return Err(failed(operation, libc::ENOMEM));
            }
            let is_within = (1..=limits.port_count).contains(&request.port)
                && (request.inline_max <= config.inline_max || is_scripted)
                && (1..=limits.send_depth_max).contains(&request.send_depth);
            if !is_within {
                return Err(failed(operation, libc::EINVAL));
            }
            let len = queue_pair_len(request.send_depth, inline_max);
            let locked = state.lock_queue(device, operation, len)?;
            let lag_port = state.next_lag_port(context.id, request.port);
            let lag_port = lag_port.ok_or_else(|| failed(operation, libc::EINVAL))?;
            let (id, number) = (state.next_id(), state.next_number(device));
            let queue_pair = QueuePairState {
                number,
                device,
                context: context.id,
                completion_queue,
                receive_queue,
                depth: request.send_depth,
                inline_max,
                lag_port,
                free_at: 0,
                locked,
                phase: Phase::Initial,
                requests: VecDeque::new(),
                issued: 0,
                silent: 0,
                writes: Vec::new(),
                spans: VecDeque::new(),
                wire: Wire::default(),
                held: Vec::new(),
                expected: 0,
                is_silent: false,
            };
            state.queue_pairs.insert(id, queue_pair);
            Ok((id, number, inline_max))
        })?;
        Ok(Self {
            context,
            id,
            number,
            inline_max,
            _completion_queue: Arc::clone(request.completion_queue),
            _shared_receive_queue: Arc::clone(request.shared_receive_queue),
        })
    }
}

// SAFETY: requests wait in one queue, from whose front alone they complete, and the handles to the
// queues are dropped after `destroy` has made the network forget the queue pair.
unsafe impl RawQueuePair for SimQueuePair {
    fn number(&self) -> u32 {
        self.number
    }

    fn inline_max(&self) -> u32 {
        self.inline_max
    }

    fn connect(&mut self, path: &PathAttributes) -> Result<(), VerbsError> {
        let operation = "connect a queue pair";
        self.context.command(operation, SimVerb::ModifyQueuePair)?;
        self.context.enter(operation, |state| {
            let device = self.context.device(state);
            let config = &state.devices[device].config;
            let has_gid = config.gid_at(path.port, path.gid_index).is_some();
            let port = config.ports.get(usize::from(path.port).wrapping_sub(1));
            if port.is_none_or(|port| port.needs_global_route && !path.is_global) {
                return Err(failed(operation, libc::EINVAL));
            }
            let reads_max = u64::from(config.attributes.responder_reads_max);
            let same_device = state.queue_pairs.values().filter(|it| it.device == device);
            let paths = same_device.filter_map(QueuePairState::path);
            let reads: u64 = paths.map(|path| u64::from(path.agreement.reads_in)).sum();
            if reads + u64::from(path.agreement.reads_in) > reads_max {
                return Err(failed(operation, libc::ENOMEM));
            }
            let queue_pair = state.queue_pairs.get_mut(&self.id);
            let queue_pair = queue_pair.filter(|it| matches!(it.phase, Phase::Initial) && has_gid);
            let queue_pair = queue_pair.ok_or_else(|| failed(operation, libc::EINVAL))?;
            queue_pair.wire.retries = path.options.retry_count;
            queue_pair.wire.rnr_retries = path.options.rnr_retry;
            queue_pair.phase = Phase::Ready(Box::new(*path));
            if let Some(script) = state.script(device) {
                script.connects += 1;
            }
            Ok(())
        })
    }

    fn set_error(&mut self) -> Result<(), VerbsError> {
        let operation = "halt a queue pair";
        self.context.command(operation, SimVerb::ModifyQueuePair)?;
        self.context.enter(operation, |state| {
            state.fail(self.id);
            Ok(())
        })
    }

    unsafe fn post_send(&mut self, requests: &[RawSend]) -> Result<(), PartialPost> {
        self.context.fabric.enter(|state| state.post_sends(self.id, requests))
    }

    fn destroy(self: Box<Self>) -> Result<(), VerbsError> {
        let operation = "destroy a queue pair";
        let answered = self.context.command(operation, SimVerb::DestroyQueuePair);
        let fails = self.context.fabric.enter(|state| {
            let device = self.context.device(state);
            let failing = &mut state.devices[device].failing_destructions;
            let fails = *failing > 0;
            *failing = failing.saturating_sub(1);
            fails
        });
        let destroyed = match (answered, fails) {
            (Err(error), _) => Err(error),
            (_, true) => Err(failed(operation, libc::EBUSY)),
            (Ok(()), false) => {
                self.context.destroy(operation, |state| state.destroy_queue_pair(self.id))
            }
        };
        match destroyed {
            Err(error) if !self.context.has_lost(&error) => {
                // With the queues: the network may still have it.
                std::mem::forget(self);
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

impl Drop for SimQueuePair {
    fn drop(&mut self) {
        self.context.fabric.enter(|state| state.destroy_queue_pair(self.id));
    }
}
