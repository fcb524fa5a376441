//! READs of a simulated device that succeed with wrong bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use rpc_transport_rdma::memory::Sink;
use rpc_transport_rdma::sim::{SimCounters, SimFaults};
use rpc_transport_rdma::verbs::Work;

use crate::rig::{connected, pass_until, simulated};

/// The last packet is not full.
const LEN: usize = 10 * PACKET_LEN + 100;

const PACKET_LEN: usize = 4096;

/// Byte that a READ finds in its memory, and the byte that it reads.
const OLD: u8 = 0x0f;
const NEW: u8 = 0x35;

/// Returns the memory after a READ under these faults, which succeeds.
async fn read(seed: u64, faults: &SimFaults) -> (Vec<u8>, SimCounters) {
    let (network, _devices, ports) = simulated(seed);
    let mut ends = connected(&ports);
    let mut source = ends[1].sources.try_take(LEN).unwrap();
    source.fill(NEW);
    let mut sink = ends[0].sinks.try_take(LEN).unwrap();
    sink.fill(OLD);
    network.set_faults(faults.clone());
    let (sink, remote) = (Arc::new(Sink::new(sink)), source.remote());
    ends[0].post_all(VecDeque::from([Work::Read { sink, offset: 0, len: LEN as u32, remote }]));
    pass_until(&mut ends, |ends| ends[0].done.len() == 1).await;
    let done = ends[0].done.remove(0);
    assert_eq!(done.outcome, Ok(()));
    let Work::Read { sink, .. } = done.work else { panic!("it was a READ") };
    (Arc::into_inner(sink).unwrap().into_buffer()[..].to_vec(), network.counters())
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_read_succeeds_with_one_wrong_bit() {
    let mut faults = SimFaults::default();
    faults.corrupt_read = 1.0;
    for late_write in [0.0, 1.0] {
        faults.late_write = late_write;
        let (bytes, counters) = read(1, &faults).await;
        let wrong: u32 = bytes.iter().map(|byte| (byte ^ NEW).count_ones()).sum();
        assert_eq!((wrong, counters.corrupt_reads), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_read_succeeds_without_one_packet() {
    let mut faults = SimFaults::default();
    faults.stale_read = 1.0;
    let mut kept = Vec::new();
    for seed in 0..40 {
        faults.late_write = f64::from(u8::from(seed % 2 == 0));
        let (bytes, counters) = read(seed, &faults).await;
        let packets: Vec<_> = bytes.chunks(PACKET_LEN).collect();
        let is_whole = |packet: &&[u8], byte| packet.iter().all(|it| *it == byte);
        let stale = packets.iter().position(|packet| is_whole(packet, OLD));
        kept.push(stale.expect("a packet was not written"));
        let written = packets.iter().filter(|packet| is_whole(packet, NEW)).count();
        assert_eq!((written, counters.stale_reads), (packets.len() - 1, 1));
    }
    assert!(kept.contains(&0) && kept.contains(&10), "every packet may be stale: {kept:?}");
}
