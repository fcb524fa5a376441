//! Much of what is cheap to send: calls given up at once, pings, and random bytes.

use rpc_core::wire::FrameKind;

use super::frames::{bare, method, request};
use super::orders::Orders;
use super::peer::{Peer, Reading};
use farcall_suite::proto::ParkRequest;
use farcall_suite::raw_peer::hello_bytes;
use farcall_testkit::calls::payload;

/// Frames that are sent at a time.
const BATCH: u64 = 500;

/// Calls that are given up in the same write.
pub(super) async fn rapid_reset(orders: &Orders) {
    let hello = hello_bytes(Vec::new());
    let Ok(peer) = orders.greeted(&hello, Reading::Everything).await else { return };
    let parts = (0..orders.scale.pick(40, 400)).map(|batch| {
        let calls = batch * BATCH..(batch + 1) * BATCH;
        let park = |call| {
            let began = request(call, method("/Park"), &ParkRequest::default());
            [began, bare(FrameKind::Cancel, call, 0)].concat()
        };
        calls.flat_map(park).collect()
    });
    if let Some(peer) = orders.send_and_stay(peer, parts).await {
        tokio::spawn(peer.stay());
    }
}

/// Pings, each with its number.
pub(super) async fn pings(orders: &Orders) {
    let hello = hello_bytes(Vec::new());
    for _ in 0..orders.scale.pick(4, 40) {
        let Ok(peer) = orders.greeted(&hello, Reading::Everything).await else { continue };
        let batches = 0..20;
        let parts = batches.map(|batch| {
            let numbers = batch * BATCH..(batch + 1) * BATCH;
            numbers.flat_map(|number| bare(FrameKind::Ping, 0, number)).collect()
        });
        if let Some(peer) = orders.send_and_stay(peer, parts).await {
            tokio::spawn(peer.stay());
        }
    }
}

/// Random bytes in place of a Hello, and behind one.
pub(super) async fn garbage(orders: &Orders) {
    let hello = hello_bytes(Vec::new());
    for seed in 0..orders.scale.pick(100, 2000) {
        let bytes = payload(seed, 16 + usize::try_from(seed % 100).unwrap_or_default() * 50);
        let peer = if seed % 2 == 0 {
            orders.greeted(&hello, Reading::Everything).await
        } else {
            Peer::connect(orders.victim, Reading::Everything, &orders.record).await
        };
        let Ok(mut peer) = peer else { continue };
        match peer.send(&bytes).await {
            Ok(()) => drop(tokio::spawn(peer.wait_for_end())),
            Err(_) => peer.count_closed(),
        }
    }
}
