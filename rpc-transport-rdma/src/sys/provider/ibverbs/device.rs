//! An open device and its protection domain as a provider's device.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use crate::sys::abi::ibv_port_attr;
use crate::sys::provider::ibverbs::completion_queue::IbvCompletionQueue;
use crate::sys::provider::ibverbs::context::{Context, ProtectionDomain};
use crate::sys::provider::ibverbs::memory::{IbvMemoryRegion, IbvMemoryWindow};
use crate::sys::provider::ibverbs::queue_pair::IbvQueuePair;
use crate::sys::provider::ibverbs::shared_receive_queue::IbvSharedReceiveQueue;
use crate::sys::provider::ibverbs::sysfs::{PortFiles, node_of};
use crate::sys::provider::{
    Access, AsyncEvent, DeviceAttributes, Gid, GidEntry, GidKind, LinkLayer, LockedMemory, Mapping,
    Mtu, Partition, PortAttributes, PortState, QueuePairRequest, Quirks, RawCompletionQueue,
    RawDevice, RawMemoryRegion, RawMemoryWindow, RawQueuePair, RawSharedReceiveQueue, VerbsError,
};
use crate::sys::{EventSubject, RawGidEntry, abi};
use crate::{AsyncEventKind, sys};

/// GID table entries read at most: the kernel takes no more than 64 KiB of them in one call.
const GIDS_MAX: usize = u16::MAX as usize / size_of::<RawGidEntry>();

#[derive(Debug)]
pub(crate) struct IbvDevice {
    domain: Arc<ProtectionDomain>,
    node: Option<u32>,
    name: String,
    attributes: DeviceAttributes,
    quirks: Quirks,
}

impl IbvDevice {
    pub(crate) fn new(
        context: Arc<Context>,
        name: String,
        quirks_of: fn(u32) -> Quirks,
    ) -> Result<Self, VerbsError> {
        // SAFETY: V1: the context is open.
        let raw = unsafe { sys::query_device(context.verbs(), context.pointer()) }
            .map_err(|error| VerbsError::system("query the device", error))?;
        let count = |value: libc::c_int| u32::try_from(value).unwrap_or(0);
        let reads = |value: libc::c_int| u8::try_from(value.max(0)).unwrap_or(u8::MAX);
        let attributes = DeviceAttributes {
            port_count: raw.phys_port_cnt,
            queue_pairs_max: count(raw.max_qp),
            send_depth_max: count(raw.max_qp_wr),
            completions_max: count(raw.max_cqe),
            // SAFETY: V1: the context is open.
            completion_vectors: count(unsafe { context.pointer().as_ref() }.num_comp_vectors)
                .max(1),
            shared_receives_max: count(raw.max_srq_wr),
            windows_max: count(raw.max_mw),
            reads_in_max: reads(raw.max_qp_rd_atom),
            reads_out_max: reads(raw.max_qp_init_rd_atom),
            responder_reads_max: count(raw.max_res_rd_atom),
        };
        Ok(Self {
            domain: ProtectionDomain::new(context)?,
            node: node_of(&name),
            name,
            attributes,
            quirks: quirks_of(raw.vendor_id),
        })
    }

    fn context(&self) -> &Arc<Context> {
        self.domain.context()
    }
}

// SAFETY: V6: Soft-RoCE's shared receive queue is a ring from whose front alone a queue pair takes;
// no order is promised for other devices. V1 and the arguments of the objects it makes.
// Registrations grant local writes or remote reads and never remote writes (`memory_region.rs`).
unsafe impl RawDevice for IbvDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn attributes(&self) -> DeviceAttributes {
        self.attributes
    }

    fn quirks(&self) -> &Quirks {
        &self.quirks
    }

    fn partition_keys(&self, port: u8) -> Vec<u16> {
        PortFiles::new(&self.name, port).partition_keys()
    }

    fn node(&self) -> Option<u32> {
        self.node
    }

    fn port(&self, number: u8) -> Result<PortAttributes, VerbsError> {
        let context = self.context();
        // SAFETY: V1: the context is open.
        let raw = unsafe { sys::query_port(context.verbs(), context.pointer(), number) };
        let files = PortFiles::new(&self.name, number);
        let attributes = |raw: ibv_port_attr| {
            let mut attributes = port_attributes(&raw);
            match attributes.link_layer {
                LinkLayer::InfiniBand => attributes.partition = files.partition(),
                LinkLayer::Ethernet => {
                    attributes.traffic_class =
                        files.traffic_class().unwrap_or_else(|| self.quirks.traffic_class());
                }
            }
            attributes
        };
        raw.map(attributes).map_err(|e| VerbsError::system("query the port", e))
    }

    fn lockable_memory(&self) -> LockedMemory {
        LockedMemory::to_size_by()
    }

    fn gid_table(&self) -> Result<Vec<GidEntry>, VerbsError> {
        let context = self.context();
        // SAFETY: V1: the context is open.
        let entries = unsafe { sys::query_gid_table(context.verbs(), context.pointer(), GIDS_MAX) }
            .map_err(|error| VerbsError::system("read the GID table", error))?;
        Ok(entries.iter().filter_map(gid_entry).collect())
    }

    fn poll_async_event(
        &self,
        context: &mut TaskContext<'_>,
    ) -> Poll<Result<AsyncEvent, VerbsError>> {
        self.context().poll_async_event(context).map_ok(|event| AsyncEvent {
            kind: AsyncEventKind::from_number(event.event_type),
            port: match event.subject {
                EventSubject::Port(number) => u8::try_from(number).ok(),
                _ => None,
            },
            queue_pair_number: match event.subject {
                EventSubject::QueuePair(number) => Some(number),
                _ => None,
            },
        })
    }

    fn allocate_window(&self) -> Result<Box<dyn RawMemoryWindow>, VerbsError> {
        Ok(Box::new(IbvMemoryWindow::new(&self.domain)?))
    }

    fn register(
        &self,
        mapping: Mapping,
        access: Access,
    ) -> Result<Box<dyn RawMemoryRegion>, VerbsError> {
        Ok(Box::new(IbvMemoryRegion::new(&self.domain, mapping, access)?))
    }

    fn create_completion_queue(
        &self,
        capacity: u32,
        vector: u32,
    ) -> Result<Arc<dyn RawCompletionQueue>, VerbsError> {
        Ok(Arc::new(IbvCompletionQueue::new(self.context(), capacity, vector)?))
    }

    fn create_shared_receive_queue(
        &self,
        depth: u32,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<dyn RawSharedReceiveQueue>, VerbsError> {
        Ok(Arc::new(IbvSharedReceiveQueue::new(&self.domain, depth, memory)?))
    }

    fn create_queue_pair(
        &self,
        request: &QueuePairRequest<'_>,
    ) -> Result<Box<dyn RawQueuePair>, VerbsError> {
        let device_max = self.attributes.queue_pairs_max;
        Ok(Box::new(IbvQueuePair::new(&self.domain, request, device_max)?))
    }
}

fn port_attributes(raw: &ibv_port_attr) -> PortAttributes {
    PortAttributes {
        state: match raw.state {
            abi::IBV_PORT_ACTIVE => PortState::Active,
            other => PortState::Inactive(other),
        },
        active_mtu: match raw.active_mtu {
            abi::IBV_MTU_512 => Mtu::B512,
            abi::IBV_MTU_1024 => Mtu::B1024,
            abi::IBV_MTU_2048 => Mtu::B2048,
            abi::IBV_MTU_4096 => Mtu::B4096,
            _ => Mtu::B256,
        },
        message_len_max: raw.max_msg_sz,
        lid: raw.lid,
        link_layer: match raw.link_layer {
            abi::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            _ => LinkLayer::InfiniBand,
        },
        traffic_class: 0,
        partition: Partition::DEFAULT,
        needs_global_route: raw.flags & abi::IBV_QPF_GRH_REQUIRED != 0,
    }
}

fn gid_entry(raw: &RawGidEntry) -> Option<GidEntry> {
    Some(GidEntry {
        port: u8::try_from(raw.port_num).ok()?,
        index: u8::try_from(raw.gid_index).ok()?,
        // SAFETY: S2: both halves of the union are sixteen plain bytes.
        gid: Gid(unsafe { raw.gid.raw }),
        kind: match raw.gid_type {
            0 => GidKind::InfiniBand,
            1 => GidKind::RoceV1,
            2 => GidKind::RoceV2,
            other => GidKind::Unknown(other),
        },
        interface: (raw.ndev_ifindex != 0).then_some(raw.ndev_ifindex),
    })
}
