//! The objects of an open simulated device.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::sim::state::{NetworkState, failed};
use crate::sim::{SimGid, SimQuery, SimVerb};
use crate::sys::provider::{
    Access, AsyncEvent, CommandClock, DeviceAttributes, GidEntry, LockedMemory, Mapping, Partition,
    PortAttributes, PortState, QueuePairRequest, Quirks, RawCompletionQueue, RawDevice,
    RawMemoryRegion, RawMemoryWindow, RawQueuePair, RawSharedReceiveQueue, VerbsError,
};
use crate::verbs::simulated::context::SimContext;
use crate::verbs::simulated::memory::{SimRegion, SimWindow};
use crate::verbs::simulated::queue_pair::SimQueuePair;
use crate::verbs::simulated::queues::{SimCompletionQueue, SimReceiveQueue};

/// The state of a port that is down, `IBV_PORT_DOWN`.
const PORT_DOWN: u32 = 1;

impl SimContext {
    /// Asks the network for something, unless such queries fail.
    fn query<R>(
        &self,
        operation: &'static str,
        query: SimQuery,
        answer: impl FnOnce(&mut NetworkState, usize) -> R,
    ) -> Result<R, VerbsError> {
        self.command(operation, SimVerb::Query)?;
        self.enter(operation, |state| {
            let device = self.device(state);
            match state.devices[device].failing_queries.get(&query) {
                Some(errno) => Err(failed(operation, *errno)),
                None => Ok(answer(state, device)),
            }
        })
    }
}

// SAFETY: V6: a message takes the receive at the front of its queue, whatever its quirks say.
// V9: memory is written only on behalf of posted receives and READs whose completion has
// not been polled, and no request of a peer writes anything.
unsafe impl RawDevice for SimContext {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn attributes(&self) -> DeviceAttributes {
        self.config.attributes
    }

    fn quirks(&self) -> &Quirks {
        &self.quirks
    }

    fn command_clock(&self) -> Option<Arc<dyn CommandClock>> {
        Some(Arc::new(self.clock()))
    }

    fn port(&self, number: u8) -> Result<PortAttributes, VerbsError> {
        let index = usize::from(number).checked_sub(1);
        let (is_up, partition) =
            self.query("query a port", SimQuery::Port(number), |state, device| {
                // The table of partitions changes while the device is open.
                let ports = &state.devices[device].config.ports;
                let port = index.and_then(|at| ports.get(at));
                let partition = port.map(|port| Partition::choose(&port.partition_keys));
                (state.carries(device), partition.unwrap_or(Partition::DEFAULT))
            })?;
        let port = index.and_then(|at| self.config.ports.get(at));
        let port = port.ok_or_else(|| failed("query a port", libc::EINVAL))?;
        Ok(PortAttributes {
            state: if is_up { PortState::Active } else { PortState::Inactive(PORT_DOWN) },
            active_mtu: port.mtu,
            message_len_max: self.config.message_len_max,
            lid: port.lid,
            link_layer: port.link_layer,
            traffic_class: port.traffic_class,
            partition,
            needs_global_route: port.needs_global_route,
        })
    }

    fn lockable_memory(&self) -> LockedMemory {
        self.fabric.enter(|state| state.locked_memory(self.device(state)))
    }

    fn gid_table(&self) -> Result<Vec<GidEntry>, VerbsError> {
        let operation = "read the GID table";
        let ports = self.query(operation, SimQuery::GidTable, |state, device| {
            state.devices[device].config.ports.clone()
        })?;
        let numbered = (1..).zip(&ports);
        let entries = numbered.flat_map(|(port, of)| of.gids.iter().map(move |gid| (port, gid)));
        let entry = |(port, gid): (u8, &SimGid)| GidEntry {
            port,
            index: gid.index,
            gid: gid.gid,
            kind: gid.kind,
            interface: (gid.interface != 0).then_some(gid.interface),
        };
        Ok(entries.map(entry).collect())
    }

    fn poll_async_event(&self, context: &mut Context<'_>) -> Poll<Result<AsyncEvent, VerbsError>> {
        self.waiter.poll(&self.fabric, self.id, context, |state| {
            state.contexts.get_mut(&self.id)?.events.pop_front()
        })
    }

    fn register(
        &self,
        mapping: Mapping,
        access: Access,
    ) -> Result<Box<dyn RawMemoryRegion>, VerbsError> {
        Ok(Box::new(SimRegion::register(self.this(), mapping, access)?))
    }

    fn allocate_window(&self) -> Result<Box<dyn RawMemoryWindow>, VerbsError> {
        Ok(Box::new(SimWindow::allocate(self.this())?))
    }

    fn create_completion_queue(
        &self,
        capacity: u32,
        vector: u32,
    ) -> Result<Arc<dyn RawCompletionQueue>, VerbsError> {
        Ok(Arc::new(SimCompletionQueue::create(self.this(), capacity, vector)?))
    }

    fn create_shared_receive_queue(
        &self,
        depth: u32,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<dyn RawSharedReceiveQueue>, VerbsError> {
        Ok(Arc::new(SimReceiveQueue::create(self.this(), depth, memory)?))
    }

    fn create_queue_pair(
        &self,
        request: &QueuePairRequest<'_>,
    ) -> Result<Box<dyn RawQueuePair>, VerbsError> {
        let completions: &dyn Any = &**request.completion_queue;
        let completions = completions.downcast_ref::<SimCompletionQueue>();
        let receives: &dyn Any = &**request.shared_receive_queue;
        let receives = receives.downcast_ref::<SimReceiveQueue>();
        let completions = completions.filter(|queue| queue.context.id == self.id);
        let Some(completions) = completions else {
            return Err(VerbsError::ForeignObject { what: "the completion queue" });
        };
        let Some(receives) = receives.filter(|queue| queue.context.id == self.id) else {
            return Err(VerbsError::ForeignObject { what: "the shared receive queue" });
        };
        let queues = (completions.id, receives.id);
        Ok(Box::new(SimQueuePair::create(self.this(), request, queues)?))
    }
}
