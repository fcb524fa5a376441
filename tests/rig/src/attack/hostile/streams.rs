//! Frames of streams that cost memory and carry nothing.

use rpc_core::wire::{FrameHeader, FrameKind};

use super::frames::{self, NO_METHOD, begun_request, messages, method, streaming_request};
use super::orders::Orders;
use super::peer::Reading;
use farcall_suite::raw_peer::hello_with;

/// Frames that are sent at a time.
const BATCH: u64 = 1000;

/// The call that most of these attack.
const CALL: u64 = 1;

/// The length of a request that never comes to its end, and of its part that comes: longer than a
/// frame that travels whole.
const BEGUN_LEN: usize = 200_000;
const BEGUN_PIECE: usize = 1000;

/// The metadata of a frame: just below the default limit of 16 KiB.
const BLOCK_LEN: usize = 16_000;

/// Below the widest window of messages.
const MESSAGES_EACH: u64 = 250;

/// Just below the distance at which the earliest version refused a frame.
const AHEAD: u64 = 60_000;

/// More messages than a window of one lets the handler answer.
const FEW: u64 = 8;

/// An empty message: its length.
const EMPTY_MESSAGE: [u8; 4] = [0; 4];

/// The target of empty frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// A handler that waits for room for its answers.
    Unread,
    /// A method that takes one message, whose request is on its way for ever.
    Unary,
    /// The same for a method that does not exist.
    Unknown,
}

/// A Hello with a window of one message, which this side never opens: a handler that answers each
/// message soon reads none.
fn narrow_hello() -> Vec<u8> {
    let limits = farcall::Limits::default().with_max_stream_messages(1);
    hello_with(&limits, Vec::new())
}

/// MESSAGES without a message, one after the other.
pub(super) async fn empty_messages(orders: &Orders, target: Target) {
    let hello = narrow_hello();
    let Ok(peer) = orders.greeted(&hello, Reading::Everything).await else { return };
    let (begin, first) = match target {
        Target::Unread => {
            let few = (0..FEW).flat_map(|seq| messages(CALL, seq, b"", &EMPTY_MESSAGE));
            let request = streaming_request(CALL, method("/Chat"));
            (request.into_iter().chain(few).collect(), FEW)
        }
        Target::Unary => (begun_request(CALL, method("/Park"), BEGUN_LEN, BEGUN_PIECE), 0),
        Target::Unknown => (begun_request(CALL, NO_METHOD, BEGUN_LEN, BEGUN_PIECE), 0),
    };
    let frame_len = messages(CALL, 0, b"", b"").len() as u64;
    let batches = orders.scale.pick(24 << 20, 256 << 20) / (frame_len * BATCH);
    let empty = (0..batches).map(move |batch| {
        let begin = first + batch * BATCH;
        (begin..begin + BATCH).flat_map(|seq| messages(CALL, seq, b"", b"")).collect()
    });
    let parts = std::iter::once(begin).chain(empty);
    if let Some(peer) = orders.send_and_stay(peer, parts).await {
        tokio::spawn(peer.stay());
    }
}

/// Metadata beside messages, which is kept for as long as these are; and with every other kind of
/// frame that has none, on a connection of its own.
pub(super) async fn control_metadata(orders: &Orders) {
    let hello = narrow_hello();
    let block = vec![0; BLOCK_LEN];
    let kinds = [FrameKind::HalfClose, FrameKind::Cancel, FrameKind::Window, FrameKind::Ping];
    for kind in kinds {
        let Ok(peer) = orders.greeted(&hello, Reading::Everything).await else { continue };
        let request = streaming_request(CALL, method("/Chat"));
        let call = if kind == FrameKind::Ping { 0 } else { CALL };
        let frame = frames::whole(FrameHeader::bare(kind, call), &block, b"");
        if let Some(peer) = orders.send_and_stay(peer, [request, frame].into_iter()).await {
            tokio::spawn(peer.stay());
        }
    }
    let Ok(peer) = orders.greeted(&hello, Reading::Everything).await else { return };
    let calls = 1..=orders.scale.pick(16, 64);
    let parts = calls.flat_map(|call| {
        let frames = (0..MESSAGES_EACH).map(|seq| messages(call, seq, &block, &EMPTY_MESSAGE));
        std::iter::once(streaming_request(call, method("/Chat"))).chain(frames).collect::<Vec<_>>()
    });
    if let Some(peer) = orders.send_and_stay(peer, parts).await {
        tokio::spawn(peer.stay());
    }
}

/// Frames behind one that is missing.
pub(super) async fn far_ahead(orders: &Orders) {
    let hello = farcall_suite::raw_peer::hello_bytes(Vec::new());
    let Ok(peer) = orders.greeted(&hello, Reading::Everything).await else { return };
    let calls = 1..=orders.scale.pick(8, 64);
    let parts = calls.flat_map(|call| {
        let ahead = (0..AHEAD / BATCH).map(move |batch| {
            let begin = 1 + batch * BATCH;
            let frames =
                (begin..begin + BATCH).flat_map(|seq| messages(call, seq, b"", &EMPTY_MESSAGE));
            frames.collect()
        });
        std::iter::once(streaming_request(call, method("/Chat"))).chain(ahead)
    });
    if let Some(peer) = orders.send_and_stay(peer, parts).await {
        tokio::spawn(peer.stay());
    }
}
