//! The declarations of the metrics of RDMA devices. Those of a lane's counts follow from the
//! counts.

use rpc_core::metrics::{Metric, MetricUnit};
use rpc_transport_rdma::{CancellationStats, LaneActivity};

use super::declare;

const LANE: &[&str] = &["device", "lane"];
const DEVICE: &[&str] = &["device"];

declare! { RDMA {
    LANE_CONNECTIONS = gauge "farcall.rdma.lane.connections", Count, LANE,
        "Connections of a lane.",
        "Are connections spread over the lanes?";
    LANE_UNPROVEN = gauge "farcall.rdma.lane.unproven", Count, LANE,
        "Connections of a lane that clients have begun but not proven.",
        "Do clients abandon connections half-way?";
    LANE_SLOTS = gauge "farcall.rdma.lane.receive_slots", Count, LANE,
        "Receive slots of a lane.",
        "How many messages can a lane receive at a time?";
    LANE_PROMISED = gauge "farcall.rdma.lane.promised_slots", Count, LANE,
        "Receive slots promised to peers as credits.",
        "Do peers wait for credits because a lane is short of slots?";
    LANE_MISSING = gauge "farcall.rdma.lane.missing_slots", Count, LANE,
        "Receive slots that may be lost with dead queue pairs.",
        "Does a lane lose slots? At a tenth, it accepts no new connections.";
    LANE_QUEUE_PAIRS = gauge "farcall.rdma.lane.queue_pairs", Count, LANE,
        "Queue pairs of a lane's connections, and those made ahead.",
        "How close is the device to its limit of queue pairs?";
    LANE_SEND_SLOTS = gauge "farcall.rdma.lane.send_slots_in_use", Count, LANE,
        "Send slots that hold a message.",
        "Does the device keep up with posted messages?";
    LANE_LEASES = gauge "farcall.rdma.lane.leases", Count, LANE,
        "Received large messages that the application holds.",
        "Does the application keep received messages for too long?";
    LANE_LEASES_OVERDUE = counter "farcall.rdma.lane.leases.overdue", Count, LANE,
        "Received large messages that the application held past `lease_warn_after`.",
        "Does the application keep received messages for too long?";
    DEVICE_READ = gauge "farcall.rdma.reads_in_flight", Bytes, DEVICE,
        "Bytes of READs in flight.",
        "Do large messages wait for the network or for peers?";
    DEVICE_SOURCE = gauge "farcall.rdma.source_bytes", Bytes, DEVICE,
        "Bytes of large messages that peers have yet to read.",
        "Do peers read large messages promptly?";
    DEVICE_SINK = gauge "farcall.rdma.sink_bytes", Bytes, DEVICE,
        "Bytes of received large messages that the application still holds.",
        "How much memory do received messages hold?";
    DEVICE_REGISTERED = gauge "farcall.rdma.registered_bytes", Bytes, DEVICE,
        "Bytes registered for large messages, in use or not.",
        "How close is the memlock limit?";
    DEVICE_HUGE = gauge "farcall.rdma.huge_page_bytes", Bytes, DEVICE,
        "Registered bytes in huge pages.",
        "Are huge pages in use?";
    DEVICE_OPEN = gauge "farcall.rdma.device.open", Count, DEVICE,
        "1 while the device is in use, 0 afterwards.",
        "Is the device present?";
    DEVICE_COMMANDS = gauge "farcall.rdma.device.commands", Count, DEVICE,
        "Firmware commands of a device that wait or are carried out.",
        "Is the firmware slow, or does it hang?";
    DEVICE_SLOWEST = gauge "farcall.rdma.device.slowest_command", Seconds, DEVICE,
        "Longest firmware command since the device was opened; 0 while none took 100 ms.",
        "Was the firmware slow, or did it hang?";
    DEVICE_LOCKED = gauge "farcall.rdma.locked_bytes", Bytes, DEVICE,
        "Bytes that the process has locked: registered memory, and on hardware the queues.",
        "How close is the memlock limit?";
    DEVICE_EVENTS = counter "farcall.rdma.device.events", Count, &["device", "event"],
        "Events of a device, by kind.",
        "Did a port go down, or a queue fail?";
} }

/// The question that counts of a lane's work answer.
const ACTIVITY: &str = "What is a lane doing, and what is it waiting for?";

/// The question that counts of cancelled messages answer.
const CANCELLED: &str = "What happens to large messages of cancelled calls?";

/// Returns the metric of a count of a lane.
fn count(name: &'static str, description: &'static str, question: &'static str) -> Metric {
    Metric::counter(name, MetricUnit::Count, LANE, description.trim_start(), question)
}

/// Returns the metrics of a lane's counts, with their values.
pub(in crate::metrics) fn counts(
    activity: &LaneActivity,
    cancellations: &CancellationStats,
) -> impl Iterator<Item = (Metric, u64)> + use<> {
    let lane_count =
        |question| move |(name, description, value)| (count(name, description, question), value);
    let activity = activity.metrics().into_iter().map(lane_count(ACTIVITY));
    activity.chain(cancellations.metrics().into_iter().map(lane_count(CANCELLED)))
}

/// Returns all metrics of RDMA.
pub(super) fn all() -> impl Iterator<Item = Metric> {
    let counts = counts(&LaneActivity::default(), &CancellationStats::default());
    RDMA.iter().copied().chain(counts.map(|(metric, _)| metric))
}
