//! The buffers of a connection over verbs.
//!
//! # The payload of a rendezvous send
//!
//! A frame's head travels in the offer itself; what the peer reads is one piece of memory behind
//! it. That is either a buffer of ours, into which the whole frame was written, or memory that the
//! application was lent and filled itself, of which the frame is the tail.

use std::sync::Arc;

use bytes::Bytes;
use rpc_core::quota::Charge;
use rpc_core::quota::PeerKey;
use rpc_core::transport::{FrameMarks, OutFrame, Withdrawn};
use rpc_core::wire::{FrameHeader, HEADER_LEN};
use tokio::sync::OwnedSemaphorePermit;

use crate::memory::{LargeBuffer, Lent, Sink, Slot};
use crate::proto::connection::{ArrivalOf, Buffers, ConnectionState, Payload};
use crate::proto::rndv::memory_windows::Bind;
use crate::proto::wire::{MESSAGE_HEADER_LEN, Rts, RtsSegment};
use crate::quota::semaphore::PeerShare;
use crate::verbs::{Binding, RemoteKey, RemoteMemory, Window};

/// Registered memory, and windows of a queue pair.
#[derive(Debug)]
pub(crate) struct VerbsBuffers;

/// The state of a connection over verbs, and what goes into it and comes out.
pub(crate) type State = ConnectionState<VerbsBuffers>;
pub(crate) type Event<'a> = crate::proto::connection::Event<'a, VerbsBuffers>;
pub(crate) type Action = crate::proto::connection::Action<VerbsBuffers>;
pub(crate) type Outgoing = crate::proto::connection::Outgoing<VerbsBuffers>;
pub(crate) type Arrival = ArrivalOf<VerbsBuffers>;

impl Buffers for VerbsBuffers {
    type Slot = Slot;
    /// Of the frames that the connection may have waiting.
    type Permit = FramePermit;
    type Payload = RndvPayload;
    type Binding = Binding;
    type Sink = Arc<Sink>;
    type Share = PeerShare;
}

impl Bind for Binding {
    type Window = Window;

    fn remote(&self) -> RemoteMemory {
        self.remote()
    }

    fn handle_invalidated(&mut self, key: RemoteKey) -> bool {
        self.handle_invalidated(key)
    }

    fn into_window(self) -> Result<Window, Self> {
        self.into_window()
    }
}

/// The right of one frame to wait, from its allocation to the completion of its SEND.
#[derive(Debug)]
pub(crate) struct FramePermit {
    _permit: OwnedSemaphorePermit,
    /// The marks for the account of its call, if there is one.
    pub(crate) marks: Option<Arc<dyn FrameMarks>>,
}

impl FramePermit {
    pub(crate) fn new(permit: OwnedSemaphorePermit, marks: Option<&Arc<dyn FrameMarks>>) -> Self {
        Self { _permit: permit, marks: marks.cloned() }
    }
}

/// A large frame's share of what the peer receives at a time. Its end is the peer's release, or
/// the end of the connection.
#[derive(Debug)]
pub(crate) struct FrameShare {
    _share: OwnedSemaphorePermit,
    /// The marks for the account of its call, if there is one.
    marks: Option<Arc<dyn FrameMarks>>,
}

impl FrameShare {
    pub(crate) fn new(share: OwnedSemaphorePermit, marks: Option<&Arc<dyn FrameMarks>>) -> Self {
        Self { _share: share, marks: marks.cloned() }
    }
}

impl Drop for FrameShare {
    fn drop(&mut self) {
        if let Some(marks) = &self.marks {
            marks.released();
        }
    }
}

/// A frame's memory that the peer may read, from its allocation until it is free again.
#[derive(Debug)]
pub(crate) enum RndvPayload {
    /// Holds the whole frame.
    Own { buffer: LargeBuffer, _share: FrameShare },
    /// Holds all of it but the head, whose `head_len` bytes lie in the slot of the offer.
    Lent {
        head_len: usize,
        lent: Lent,
        /// They keep the loan, and so the memory.
        _bytes: Bytes,
        _share: FrameShare,
        /// Charge for the lent memory that the peer may hold.
        _charge: Charge<PeerKey>,
    },
    /// Part of a path's proof: memory that the peer READs once on each of `queues`, and the length
    /// of the head that lies in the slot of the offer.
    Proof { buffer: LargeBuffer, head_len: usize, queues: usize },
}

impl RndvPayload {
    /// A buffer for a whole frame, which has a share of what the peer receives at a time.
    pub(crate) fn own(buffer: LargeBuffer, share: FrameShare) -> Self {
        Self::Own { buffer, _share: share }
    }

    /// The end of a frame, which was found to lie in lent memory and counts as `charge` of it.
    pub(crate) fn lent(
        head_len: usize,
        tail: &Bytes,
        (lent, charge): (Lent, Charge<PeerKey>),
        share: FrameShare,
    ) -> Self {
        Self::Lent { head_len, lent, _bytes: tail.clone(), _share: share, _charge: charge }
    }

    /// Lets `frame` write itself, or the head that is not here into the slot of its offer. Returns
    /// the frame's call; 0, which is no call's, where its header names none.
    pub(crate) fn fill(&mut self, frame: OutFrame<'_>, slot: &mut [u8]) -> Result<u64, Withdrawn> {
        let head = match self {
            Self::Own { buffer, .. } => {
                frame.write(buffer)?;
                &buffer[..]
            }
            Self::Lent { head_len, .. } => {
                let head = &mut slot[MESSAGE_HEADER_LEN..][..*head_len];
                frame.write_head(head)?;
                head
            }
            // It holds no frame.
            Self::Proof { .. } => return Ok(0),
        };
        Ok(FrameHeader::parse(head).map_or(0, |header| header.call))
    }
}

impl Payload for RndvPayload {
    type Binding = Binding;

    fn remote(&self) -> RemoteMemory {
        match self {
            Self::Own { buffer, .. } => {
                let RemoteMemory { address, key } = buffer.remote();
                // The header travels in the offer, and the peer reads what is behind it.
                RemoteMemory { address: address + HEADER_LEN as u64, key }
            }
            Self::Lent { lent, .. } => lent.remote(),
            Self::Proof { buffer, .. } => buffer.remote(),
        }
    }

    fn bind(&self, window: Window) -> Binding {
        match self {
            Self::Own { buffer, .. } => buffer.bind_from(window, HEADER_LEN),
            Self::Lent { lent, .. } => lent.bind(window),
            Self::Proof { buffer, .. } => buffer.bind(window),
        }
    }

    fn describe(&self, slot: &[u8], memory: RemoteMemory) -> Rts {
        let in_slot = |head_len: usize| &slot[MESSAGE_HEADER_LEN..][..head_len];
        let (head, len, count) = match self {
            Self::Own { buffer, .. } => (&buffer[..HEADER_LEN], buffer.len() - HEADER_LEN, 1),
            Self::Lent { head_len, lent, .. } => (in_slot(*head_len), lent.len(), 1),
            Self::Proof { buffer, head_len, queues } => (in_slot(*head_len), buffer.len(), *queues),
        };
        let segments = vec![RtsSegment { memory, len: len as u64 }; count];
        Rts { head: head.to_vec(), segments }
    }

    fn written_len(&self) -> usize {
        match self {
            Self::Own { buffer, .. } => buffer.len(),
            Self::Lent { head_len, .. } => *head_len,
            Self::Proof { .. } => 0,
        }
    }

    fn is_proof(&self) -> bool {
        matches!(self, Self::Proof { .. })
    }
}
