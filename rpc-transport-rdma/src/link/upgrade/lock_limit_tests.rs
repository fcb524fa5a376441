//! Lanes and connections under a limit on locked memory, on a device whose queues count toward it
//! as those of libmlx5 do.

use super::tests::until;
use super::*;
use crate::sim::{SimDeviceConfig, SimFaults, SimNetwork, SimQueueMemory};

const HERE: [u8; 4] = [10, 0, 0, 1];
const LIMIT: u64 = 8 << 20;

fn limited(network: &SimNetwork, limit: Option<u64>) {
    network.set_faults(SimFaults { memory_lock_bytes: limit, ..SimFaults::default() });
}

fn under(limit: Option<u64>) -> (SimNetwork, RdmaUpgrade) {
    let network = SimNetwork::new(3);
    let mut config = SimDeviceConfig::new("mlx5_0", &[HERE.into()]);
    config.queue_memory = SimQueueMemory::Mlx5;
    network.add_device_with(config);
    limited(&network, limit);
    let upgrade = RdmaUpgrade::with_provider(Box::new(network.provider()), RdmaConfig::default());
    (network, upgrade)
}

/// An end that is its own peer.
fn connect(upgrade: &RdmaUpgrade) -> Result<ConnectedEnd, String> {
    let at = Some((HERE, 7000).into());
    let addresses = Addresses { local: at, peer: at, ..Addresses::default() };
    let prepared = upgrade.prepare(&addresses, None).map_err(|declined| declined.reason)?;
    let peer = prepared.conn_params();
    prepared.join(&peer).map_err(|declined| declined.reason)
}

fn assert_names_the_limit(reason: &str, limit: u64) {
    for part in ["RLIMIT_MEMLOCK", &limit.to_string(), "LimitMEMLOCK=infinity", "limits.conf"] {
        assert!(reason.contains(part), "{part:?} is not in {reason:?}");
    }
}

#[tokio::test]
async fn lean_connections_fit_debians_lock_limit() {
    let (network, upgrade) = under(Some(LIMIT));
    let mut ends = Vec::new();
    while ends.len() < 64 {
        let end = connect(&upgrade);
        ends.push(end.unwrap_or_else(|reason| panic!("connection {}: {reason}", ends.len() + 1)));
    }
    let locked = network.census().locked_bytes;
    assert!(locked + (3 << 20) <= LIMIT, "{locked} bytes are locked");
    let reason = connect(&upgrade).map(|_| ()).expect_err("the lane is full");
    assert!(reason.contains("64 connections of at most 64"), "{reason}");
    assert_names_the_limit(&reason, LIMIT);
    let sources = Arc::clone(&ends[0].connection.as_ref().unwrap().worker.sources);
    sources.try_take(3 << 20).expect("large frames have the rest");
}

#[tokio::test]
async fn a_queue_pair_beyond_the_lock_limit_is_declined_by_its_name() {
    let (network, upgrade) = under(None);
    let _first = connect(&upgrade).unwrap();
    let limit = network.census().locked_bytes + (20 << 10);
    limited(&network, Some(limit));
    let reason = connect(&upgrade).map(|_| ()).expect_err("a queue pair takes 32 KiB");
    assert!(reason.contains("cannot create a queue pair, which takes 32768 bytes"), "{reason}");
    assert_names_the_limit(&reason, limit);
}

#[tokio::test]
async fn a_lane_beyond_the_lock_limit_is_declined_by_its_name() {
    for limit in [0, 4 << 10, 64 << 10] {
        let (network, upgrade) = under(Some(limit));
        let reason = connect(&upgrade).map(|_| ()).expect_err("nothing fits");
        assert_names_the_limit(&reason, limit);
        drop(upgrade);
        until("nothing is locked", || network.census().locked_bytes == 0).await;
    }
}

#[tokio::test]
async fn unused_frames_make_way_for_queue_pairs() {
    let (network, upgrade) = under(None);
    let first = connect(&upgrade).unwrap();
    let sources = Arc::clone(&first.connection.as_ref().unwrap().worker.sources);
    let frame = sources.try_take(1 << 20).unwrap();
    limited(&network, Some(network.census().locked_bytes));
    let reason = connect(&upgrade).map(|_| ()).expect_err("the frame is in use");
    assert!(reason.contains("RLIMIT_MEMLOCK"), "{reason}");
    drop(frame);
    connect(&upgrade).expect("the frame is not in use");
}

#[tokio::test]
async fn what_only_the_kernel_has_takes_nothing_of_the_limit() {
    let network = SimNetwork::new(3);
    network.add_device("rxe0", &[HERE.into()]);
    limited(&network, Some(LIMIT));
    let upgrade = RdmaUpgrade::with_provider(Box::new(network.provider()), RdmaConfig::default());
    let _end = connect(&upgrade).unwrap();
    assert_eq!(upgrade.lanes()[0].receive_slots, 1024);
}
