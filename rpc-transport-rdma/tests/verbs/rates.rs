//! Rates of simulated ports and queue pairs, and bonded ports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use rpc_transport_rdma::memory::Sink;
use rpc_transport_rdma::sim::{SimDevice, SimNetwork};
use rpc_transport_rdma::verbs::{Port, Work};
use tokio::time::Instant;

use crate::rig::{End, connected, pass_until, pattern, simulated_with};

/// In bytes per second: a megabyte in 10 ms.
const RATE: u64 = 100_000_000;
const LEN: usize = 1_000_000;

/// The time that a READ of that length takes, up to the granularity of timers.
const READ_MS: u128 = 10;

/// The rates of both devices' ports: of a queue pair, and of a LAG port.
fn rated(per_queue_pair: u64, per_port: u64) -> (SimNetwork, [SimDevice; 2], [Port; 2]) {
    simulated_with(1, |device| {
        device.ports[0].lag_ports = 2;
        device.ports[0].rate.per_queue_pair = per_queue_pair;
        device.ports[0].rate.per_port = per_port;
    })
}

/// Lets the first of each pair of ends read so often. Returns the milliseconds until all is read.
async fn read(pairs: &mut [[End; 2]], count: usize) -> u128 {
    let start = Instant::now();
    let sources: Vec<_> = pairs.iter().map(|[_, owner]| owner.sources.try_take(LEN)).collect();
    for ([reader, _], source) in pairs.iter_mut().zip(&sources) {
        let mut batch = VecDeque::new();
        for _ in 0..count {
            let sink = Arc::new(Sink::new(reader.sinks.try_take(LEN).unwrap()));
            let remote = source.as_ref().unwrap().remote();
            batch.push_back(Work::Read { sink, offset: 0, len: LEN as u32, remote });
        }
        reader.post_all(batch);
    }
    for ends in pairs {
        pass_until(ends, |ends| ends[0].done.len() == count).await;
        assert!(ends[0].done.drain(..).all(|done| done.outcome.is_ok()));
    }
    start.elapsed().as_millis()
}

#[tokio::test(start_paused = true)]
async fn bytes_of_reads_leave_at_the_owners_rate() {
    for rates in [(RATE, 0), (0, RATE), (2 * RATE, RATE), (RATE, 2 * RATE)] {
        let (network, _devices, ports) = rated(rates.0, rates.1);
        let mut pairs = [connected(&ports)];
        for count in [1, 12] {
            let took = read(&mut pairs, count).await;
            let expected = READ_MS * count as u128;
            assert!((expected..expected + 3).contains(&took), "{count}, {rates:?}: {took} ms");
        }
        // The last of twelve waits for longer than the acknowledgement timeout.
        assert_eq!(network.counters().timeouts, 0, "{rates:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_of_messages_leave_at_the_senders_rate() {
    const MESSAGES: usize = 30;
    let (network, _devices, ports) = rated(0, 1_000_000);
    let mut ends = connected(&ports);
    let start = Instant::now();
    let batch = (0..MESSAGES).map(|seed| ends[0].send(&pattern(4000, seed))).collect();
    ends[0].post_all(batch);
    pass_until(&mut ends, |ends| ends[1].messages.len() == MESSAGES).await;
    let took = start.elapsed().as_millis();
    assert!((120..123).contains(&took), "30 messages of 4 ms each took {took} ms");
    assert_eq!(network.counters().timeouts, 0);
}

#[tokio::test(start_paused = true)]
async fn queue_pairs_take_lag_ports_in_turn() {
    let (_network, _devices, ports) = rated(0, RATE);
    let mut pairs = [(); 4].map(|()| connected(&ports));
    for (count, expected) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
        let took = read(&mut pairs[..count], 4).await;
        let expected = 4 * expected * READ_MS;
        assert!((expected..expected + 3).contains(&took), "{count} queue pairs: {took} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn queue_pairs_that_wait_for_themselves_leave_the_port_free() {
    let (_network, _devices, ports) = rated(RATE, 2 * RATE);
    // The first and the third have the same LAG port.
    let [first, _other, third] = [(); 3].map(|()| connected(&ports));
    let took = read(&mut [first, third], 8).await;
    assert!((80..83).contains(&took), "{took} ms");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lag_port_moves_its_queue_pairs_in_silence() {
    let (network, devices, ports) = rated(0, RATE);
    let mut pairs = [connected(&ports), connected(&ports)];
    devices[1].lose_lag_port(2);
    assert!(read(&mut pairs[..1], 1).await < 12, "the other port is not concerned");
    assert_eq!(network.counters().lost, 0);
    let start = Instant::now();
    let took = read(&mut pairs[1..], 1).await;
    assert!((100 - 12..250).contains(&took), "it is sent again by another port: {took} ms");
    assert!(network.counters().lost > 0);
    tokio::time::sleep_until(start + Duration::from_millis(300)).await;
    let took = read(&mut pairs, 4).await;
    assert!((80..83).contains(&took), "one port for both: {took} ms");
    devices[1].link_up();
    let took = read(&mut pairs, 4).await;
    assert!((40..43).contains(&took), "both ports: {took} ms");
    let context = &mut Context::from_waker(Waker::noop());
    for port in &ports {
        assert!(port.device.poll_async_event(context).is_pending(), "there is no event");
    }
}

#[test]
#[should_panic(expected = "no other LAG port is left")]
fn the_last_lag_port_cannot_be_lost() {
    let (_network, devices, _ports) = rated(0, 0);
    devices[0].lose_lag_port(1);
    devices[0].lose_lag_port(2);
}
