//! Calls whose answers are not read.

use std::time::Duration;

use farcall::Limits;

use super::frames::{echo, produce};
use super::orders::Orders;
use super::peer::Reading;
use farcall_suite::raw_peer::hello_with;

/// Just short enough to travel whole.
const SMALL_ANSWER_LEN: u64 = 60 << 10;

/// Together more than the 4 MiB of small frames that a server's connection queues and what two
/// kernels take.
const SMALL_ANSWERS: u64 = 90;

/// The calls that a connection may have by default.
const CALLS: u64 = 1024;

/// Connections that have all 65,536 calls which a server runs by default, and some more.
const CONNECTIONS: usize = 80;

/// The longest answer that this side accepts.
const LARGE_ANSWER_LEN: u64 = 4 << 20;

/// Answers that a slow reader asks for: how many, and their length. The short ones fill what the
/// long ones leave.
const SLOW_ANSWERS: [(u64, u64); 3] = [(10, 1_000_000), (20, 400_000), (40, 100_000)];

/// Between two slow readers, so that each finds what those before it have left.
const NEXT_READER: Duration = Duration::from_millis(30);

/// Makes the maximum number of calls on each of many connections and reads no answer. The first
/// answers fill a server's queues, so all others wait.
pub(super) async fn unread(orders: &Orders) {
    let hello = hello_with(&Limits::default(), Vec::new());
    let connections = (0..CONNECTIONS).map(|_| async {
        let Ok(peer) = orders.greeted(&hello, Reading::Nothing).await else { return };
        let filling = (0..SMALL_ANSWERS).flat_map(|call| produce(call, SMALL_ANSWER_LEN)).collect();
        let waiting = (SMALL_ANSWERS..CALLS).flat_map(echo).collect();
        if let Some(peer) = orders.send_and_stay(peer, [filling, waiting].into_iter()).await {
            tokio::spawn(peer.stay());
        }
    });
    futures::future::join_all(connections).await;
}

/// Few calls with the largest answers, each a few bytes to ask for.
pub(super) async fn queued(orders: &Orders) {
    let limits = Limits::default()
        .with_max_message_len(2 * LARGE_ANSWER_LEN)
        .with_max_receiving_bytes(u64::MAX);
    let hello = hello_with(&limits, Vec::new());
    let connections = (0..orders.scale.pick(10, 25)).map(|_| async {
        let Ok(peer) = orders.greeted(&hello, Reading::Nothing).await else { return };
        let calls = 0..orders.scale.pick(20, 30);
        let requests = calls.flat_map(|call| produce(call, LARGE_ANSWER_LEN)).collect();
        if let Some(peer) = orders.send_and_stay(peer, std::iter::once(requests)).await {
            tokio::spawn(peer.stay());
        }
    });
    futures::future::join_all(connections).await;
}

/// One connection after the other, each with more answers than a small budget has room for.
pub(super) async fn slow(orders: &Orders) {
    let hello = hello_with(&Limits::default().with_max_receiving_bytes(u64::MAX), Vec::new());
    let lens = SLOW_ANSWERS.into_iter().flat_map(|(count, len)| (0..count).map(move |_| len));
    let requests: Vec<u8> = (0..).zip(lens).flat_map(|(call, len)| produce(call, len)).collect();
    for _ in 0..orders.scale.pick(14, 64) {
        let Ok(peer) = orders.greeted(&hello, Reading::Nothing).await else { continue };
        let requests = std::iter::once(requests.clone());
        if let Some(peer) = orders.send_and_stay(peer, requests).await {
            tokio::spawn(peer.stay());
        }
        tokio::time::sleep(NEXT_READER).await;
    }
}
