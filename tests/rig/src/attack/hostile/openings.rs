//! Connections that begin and do not go on, and Hellos that ask for work.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use rpc_core::wire::FrameKind;
use rpc_core::wire::hello::Offer;

use super::frames::{self, NEXT, first_piece, method, offering};
use super::orders::Orders;
use super::peer::{Peer, Reading};
use crate::attack::log_text::FORGED;
use farcall_suite::raw_peer::{frame, hello_bytes, record};

/// Connections that are opened at the same time.
const AT_ONCE: usize = 64;

/// The message of a frame that is never whole, and its pieces: just below the default limit.
const FRAME_LEN: usize = 4 << 20;
const PIECE_LEN: usize = 1 << 20;

/// The part of a Hello that comes, of the MiB that its prefix says.
const HELLO_PART: usize = 400 << 10;

/// The offers of one Hello: with names of four letters, 8 bytes each, they fill a MiB.
const OFFERS: usize = 131_000;

/// Time that a flood waits for the server's Hello on each connection.
const GREETING_LIMIT: Duration = Duration::from_secs(1);

/// The length of a name that no log should repeat.
const NAME_LEN: usize = 500_000;

/// Requests of which the last byte never comes.
pub(super) async fn half_frames(orders: &Orders) {
    let hello = hello_bytes(Vec::new());
    let request = frame(FrameKind::Request, 1, method("/Echo"), &vec![0; FRAME_LEN - 16]);
    for _ in 0..orders.scale.pick(20, 60) {
        let Ok(peer) = orders.greeted(&hello, Reading::Everything).await else { continue };
        let first = first_piece(1, &request, PIECE_LEN);
        let rest = &request[PIECE_LEN..request.len() - 1];
        let next = rest.chunks(PIECE_LEN).map(|piece| record(NEXT, 1, piece));
        if let Some(peer) = orders.send_and_stay(peer, std::iter::once(first).chain(next)).await {
            tokio::spawn(peer.stay());
        }
    }
}

/// Hellos of which a part comes.
pub(super) async fn half_hellos(orders: &Orders) {
    let hello = offering(vec![Offer { name: "x".repeat(1 << 19), blob: vec![0; 1 << 18].into() }]);
    let part = &hello[..HELLO_PART];
    in_parallel(orders.scale.pick(250, 500), |_| async move {
        let connected = Peer::connect(orders.victim, Reading::Everything, &orders.record).await;
        let Ok(mut peer) = connected else { return };
        match peer.send(part).await {
            Ok(()) => drop(tokio::spawn(peer.wait_for_end())),
            Err(_) => peer.count_closed(),
        }
    })
    .await;
}

/// Connections that say nothing.
pub(super) async fn silence(orders: &Orders) {
    in_parallel(orders.scale.pick(600, 2000), |_| async move {
        let connected = Peer::connect(orders.victim, Reading::Everything, &orders.record).await;
        if let Ok(peer) = connected {
            tokio::spawn(peer.wait_for_end());
        }
    })
    .await;
}

/// Hellos with as many offers as fit into one.
pub(super) async fn many_offers(orders: &Orders) {
    let offer = Offer { name: "rdma".to_owned(), blob: bytes::Bytes::new() };
    let hello = offering(vec![offer; OFFERS]);
    for _ in 0..orders.scale.pick(2, 10) {
        if let Ok(peer) = orders.greeted(&hello, Reading::Everything).await {
            tokio::spawn(peer.stay());
        }
    }
}

/// More connections than a server has at a time, which say a Hello and nothing else.
pub(super) async fn connections(orders: &Orders) {
    let hello = hello_bytes(Vec::new());
    in_parallel(orders.scale.pick(300, 10_500), |_| async {
        let connected = Peer::connect(orders.victim, Reading::Everything, &orders.record).await;
        let Ok(mut peer) = connected else { return };
        match tokio::time::timeout(GREETING_LIMIT, peer.greet(&hello)).await {
            Ok(Err(_)) => peer.count_closed(),
            // It waits behind the others, and stays.
            Err(_) | Ok(Ok(())) => drop(tokio::spawn(peer.stay())),
        }
    })
    .await;
}

/// Offers whose names are written for the server's log.
pub(super) async fn log_injection(orders: &Orders) {
    let names = [
        format!("rdma\n{FORGED} accepted root from 10.0.0.1"),
        "\u{1b}[2J\u{1b}[31mred\u{1b}]0;title\u{7}\u{9b}31m".to_owned(),
        "\u{202e}desrever\u{2028}next".to_owned(),
        "n".repeat(NAME_LEN),
    ];
    for name in names {
        let hello = offering(vec![Offer { name, blob: bytes::Bytes::new() }]);
        if let Ok(peer) = orders.greeted(&hello, Reading::Everything).await {
            tokio::spawn(peer.stay());
        }
    }
    // The first bytes of a foreign protocol, and frames that no client may send.
    let line = format!("SSH-2.0-\n{FORGED}\u{1b}[31m\r\n");
    for bytes in [line.into_bytes(), frames::bare(FrameKind::GoAway, 0, 0)] {
        let connected = Peer::connect(orders.victim, Reading::Everything, &orders.record).await;
        let Ok(mut peer) = connected else { continue };
        match peer.send(&bytes).await {
            Ok(()) => drop(tokio::spawn(peer.wait_for_end())),
            Err(_) => peer.count_closed(),
        }
    }
}

/// Does something `count` times, some at the same time.
async fn in_parallel<F: Future<Output = ()>>(count: usize, each: impl FnMut(usize) -> F) {
    stream::iter(0..count).map(each).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}
