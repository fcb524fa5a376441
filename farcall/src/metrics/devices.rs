//! The metrics of RDMA devices and their lanes.

use std::collections::HashSet;

use super::list::rdma::{self as list, counts};
use super::samples::Samples;
use crate::Rdma;
use crate::rdma::{AsyncEventKind, LaneInfo};

/// Adds the devices of a handle, and their lanes.
pub(super) fn add_rdma(samples: &mut Samples, rdma: &Rdma) {
    for device in rdma.devices() {
        let name = device.device.as_str();
        samples.add(list::DEVICE_OPEN, &[name], device.is_open.into());
        samples.add_len(list::DEVICE_COMMANDS, &[name], device.pending_commands);
        // Handles of one process say the same of one device.
        let slowest = device.slowest_command.as_secs_f64();
        samples.add_greatest(list::DEVICE_SLOWEST, &[name], slowest);
        samples.add_greatest(list::DEVICE_LOCKED, &[name], device.locked_bytes as f64);
        for (kind, count) in &device.events {
            samples.add(list::DEVICE_EVENTS, &[name, event(*kind)], *count);
        }
    }
    let mut devices = HashSet::new();
    for lane in rdma.lanes() {
        add_lane(samples, &lane);
        // What all lanes of a device share comes with each of them.
        if devices.insert(lane.device.clone()) {
            let device = [lane.device.as_str()];
            samples.add(list::DEVICE_READ, &device, lane.read_bytes_in_use);
            samples.add(list::DEVICE_SOURCE, &device, lane.source_bytes_in_use);
            samples.add(list::DEVICE_SINK, &device, lane.sink_bytes_in_use);
            samples.add(list::DEVICE_REGISTERED, &device, lane.registered_bytes);
            samples.add(list::DEVICE_HUGE, &device, lane.huge_page_bytes);
        }
    }
}

fn add_lane(samples: &mut Samples, lane: &LaneInfo) {
    let number = lane.number.to_string();
    let labels = [lane.device.as_str(), number.as_str()];
    samples.add_len(list::LANE_CONNECTIONS, &labels, lane.connection_count);
    samples.add_len(list::LANE_UNPROVEN, &labels, lane.unproven_count);
    samples.add(list::LANE_SLOTS, &labels, lane.receive_slots.into());
    samples.add(list::LANE_PROMISED, &labels, lane.promised_slots.into());
    samples.add(list::LANE_MISSING, &labels, lane.missing_slots.into());
    samples.add_len(list::LANE_QUEUE_PAIRS, &labels, lane.queue_pair_count);
    samples.add_len(list::LANE_SEND_SLOTS, &labels, lane.send_slots_in_use);
    samples.add_len(list::LANE_LEASES, &labels, lane.leases_held);
    samples.add(list::LANE_LEASES_OVERDUE, &labels, lane.leases_overdue);
    for (metric, value) in counts(&lane.activity, &lane.cancellations) {
        samples.add(metric, &labels, value);
    }
}

/// Returns the label `event` of a kind.
fn event(kind: AsyncEventKind) -> &'static str {
    match kind {
        AsyncEventKind::CompletionQueueError => "completion_queue_error",
        AsyncEventKind::QueuePairFatal => "queue_pair_fatal",
        AsyncEventKind::QueuePairRequestError => "queue_pair_request_error",
        AsyncEventKind::QueuePairAccessError => "queue_pair_access_error",
        AsyncEventKind::DeviceFatal => "device_fatal",
        AsyncEventKind::PortActive => "port_active",
        AsyncEventKind::PortError => "port_error",
        AsyncEventKind::GidChange => "gid_change",
        AsyncEventKind::LidChange => "lid_change",
        AsyncEventKind::SharedReceiveQueueError => "shared_receive_queue_error",
        AsyncEventKind::ReceiveLimit => "receive_limit",
        AsyncEventKind::LastReceiveReached => "last_receive_reached",
        _ => "other",
    }
}
