//! Receive memory depends on the number of lanes, not of connections.

use farcall::RdmaConfig;
use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;

use crate::rig::{Rig, connect, devices, echo, lane};

/// Numbers of connections at which the memory is read.
const STAGES: [usize; 3] = [1, 64, 256];

/// The most that receive memory for the last stage may come to, in parts of what it would be with
/// a queue of the same depth for each connection; and with one of a full window for each.
const PART_OF_QUEUES: f64 = 0.05;
const PART_OF_WINDOWS: f64 = 0.25;

pub(crate) fn connections_share_one_queue(rig: &Rig) -> Result<(), Failure> {
    let before = rig.receive_queue_counts_before();
    rig.run(async {
        let server = rig.serve(Default::default()).await?;
        let client = devices(Default::default());
        let mut stubs = Vec::new();
        let mut receive_bytes = Vec::new();
        for (stage, count) in STAGES.into_iter().enumerate() {
            while stubs.len() < count {
                stubs.push(ProbeStub::new(connect(&server.authority, &client).await?));
            }
            for (seed, stub) in (0..).zip(&stubs) {
                echo(stub, seed, 1000).await?;
            }
            let lanes = [server.lane(), lane(&client)];
            assert_eq!(lanes.each_ref().map(|lane| lane.connection_count), [count; 2]);
            assert_eq!(server.server.connections().len(), count);
            receive_bytes.push(lanes[0].receive_bytes);
            let (slots, bytes) = (lanes[0].promised_slots, lanes[0].receive_bytes);
            println!("{count} connections: {} KiB to receive into, {slots} slots", bytes / 1024);
            // A device that is both ends' has both lanes.
            let lane_count = if rig.server_device == rig.client_device { 2 } else { 1 };
            let expected = (before.0 + lane_count, before.1 + lane_count);
            assert_eq!(
                rig.receive_queue_counts(),
                expected,
                "shared receive queues at stage {stage}"
            );
        }
        compare(receive_bytes[0], receive_bytes[2]);
        Ok(())
    })
}

/// Compares with a receive queue for each connection.
#[allow(clippy::cast_precision_loss, reason = "megabytes")]
fn compare(with_one: usize, with_all: usize) {
    assert_eq!(with_one, with_all, "receive memory grows with connections");
    let (rdma, count) = (RdmaConfig::default(), STAGES[2]);
    let queues = count * with_one;
    let window = (rdma.max_credits + 2) as usize * rdma.slot_len as usize;
    for (what, private, most) in [
        ("a queue of the same depth", queues, PART_OF_QUEUES),
        ("a queue of a full window", count * window, PART_OF_WINDOWS),
    ] {
        let part = with_all as f64 / private as f64;
        println!("{count} connections with {what} each: {} KiB; ratio {part:.4}", private / 1024);
        assert!(part <= most, "{part} of {what} each");
    }
}
