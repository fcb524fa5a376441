//! The payload of a rendezvous send: where an offered frame lies.
//!
//! A frame's head travels in the offer itself; what the peer reads is one piece of memory behind
//! it. That is either a buffer of ours, into which the whole frame was written, or memory that the
//! application was lent and filled itself, of which the frame is the tail.

use bytes::Bytes;
use rpc_core::peer_key::PeerKey;
use rpc_core::quota::Charge;
use rpc_core::wire::HEADER_LEN;
use tokio::sync::OwnedSemaphorePermit;

use crate::memory::{LargeBuffer, Lent};
use crate::proto::connection::Payload;
use crate::proto::wire::{MESSAGE_HEADER_LEN, Rts, RtsSegment};
use crate::verbs::{Binding, RemoteMemory, Window};

/// The end of a frame that lies in lent memory.
#[derive(Debug)]
pub(crate) struct LentTail {
    lent: Lent,
    /// They keep the loan, and so the memory.
    _bytes: Bytes,
    /// The frame's share of what the peer receives at a time.
    _share: OwnedSemaphorePermit,
    /// What it counts of the lent memory that the peer may hold.
    _charge: Charge<PeerKey>,
}

impl LentTail {
    /// The end of a frame, which was found to lie there.
    pub(crate) fn new(
        bytes: Bytes,
        lent: Lent,
        share: OwnedSemaphorePermit,
        charge: Charge<PeerKey>,
    ) -> Self {
        Self { lent, _bytes: bytes, _share: share, _charge: charge }
    }
}

/// What the peer may read until it releases it.
#[derive(Debug)]
pub(crate) enum RndvPayload {
    /// Holds the whole frame, which has a share of what the peer receives at a time.
    Own { buffer: LargeBuffer, _share: OwnedSemaphorePermit },
    /// Holds all of it but the head, whose `head_len` bytes lie in the slot of the offer.
    Lent { tail: LentTail, head_len: usize },
}

impl Payload for RndvPayload {
    type Binding = Binding;

    fn remote(&self) -> RemoteMemory {
        match self {
            Self::Own { buffer, .. } => {
                let RemoteMemory { address, key } = buffer.remote();
                RemoteMemory { address: address + HEADER_LEN as u64, key }
            }
            Self::Lent { tail, .. } => tail.lent.remote(),
        }
    }

    fn bind(&self, window: Window) -> Binding {
        match self {
            Self::Own { buffer, .. } => buffer.bind_from(window, HEADER_LEN),
            Self::Lent { tail, .. } => tail.lent.bind(window),
        }
    }

    fn describe(&self, slot: &[u8], memory: RemoteMemory) -> Rts {
        let (head, len) = match self {
            Self::Own { buffer, .. } => (&buffer[..HEADER_LEN], buffer.len() - HEADER_LEN),
            Self::Lent { tail, head_len } => {
                (&slot[MESSAGE_HEADER_LEN..MESSAGE_HEADER_LEN + head_len], tail.lent.len())
            }
        };
        let segments = vec![RtsSegment { memory, len: len as u64 }];
        Rts { head: head.to_vec(), segments }
    }

    fn written_len(&self) -> usize {
        match self {
            Self::Own { buffer, .. } => buffer.len(),
            Self::Lent { head_len, .. } => *head_len,
        }
    }
}
