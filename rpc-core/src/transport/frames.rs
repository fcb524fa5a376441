//! Frames as their parts: how they are written into a transport's memory, and taken apart.

use bytes::{Buf, Bytes};

use crate::calls::receive_budget::ReceiveBudget;
use crate::payload::encode::Encode;
use crate::transport::{Delivery, OutFrame, Withdrawn, WriteHead};
use crate::wire::{FrameHeader, HEADER_LEN, ProtocolError};

/// The parts of a frame. The lengths in `header` are set when it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) header: FrameHeader,
    pub(crate) block: &'a [u8],
    pub(crate) message: Option<&'a dyn Encode>,
}

impl<'a> Parts<'a> {
    /// The frame, as a transport takes it.
    pub(crate) fn frame(&mut self) -> OutFrame<'_> {
        OutFrame::new(self.head_len(), self.tail(), self)
    }

    /// The end of the message that may be sent from where it lies.
    pub(crate) fn tail(&self) -> Option<&'a Bytes> {
        self.message.and_then(Encode::tail)
    }

    /// The length of the whole frame.
    pub(crate) fn len(&self) -> usize {
        HEADER_LEN + self.block.len() + self.message_len()
    }

    /// The length of what precedes the tail.
    pub(crate) fn head_len(&self) -> usize {
        self.len() - self.tail().map_or(0, Bytes::len)
    }

    fn message_len(&self) -> usize {
        self.message.map_or(0, Encode::len)
    }
}

impl WriteHead for Parts<'_> {
    fn write_head(&mut self, head: &mut [u8]) -> Result<(), Withdrawn> {
        // Callers have checked the block against a limit of 32 bits.
        self.header.metadata_len = u32::try_from(self.block.len()).unwrap_or(u32::MAX);
        self.header.message_len = self.message_len() as u64;
        let (head, message) = head.split_at_mut(HEADER_LEN + self.block.len());
        head[..HEADER_LEN].copy_from_slice(&self.header.to_bytes());
        head[HEADER_LEN..].copy_from_slice(self.block);
        if let Some(encode) = self.message {
            encode.encode_head(message);
        }
        Ok(())
    }
}

/// Tells `budget` of a frame that has come, and gives what was kept for it if it was announced.
pub(crate) fn received<T>(
    budget: &mut ReceiveBudget<T>,
    header: &FrameHeader,
    delivery: Delivery,
) -> Result<Option<T>, ProtocolError> {
    let key = header.frame_key();
    match delivery {
        Delivery::Whole => budget.came_whole(key).map(|()| None),
        Delivery::Announced => budget.arrived(key, header.frame_len()).map(Some),
    }
}

/// Takes a frame that has arrived apart into its block and its message.
///
/// To split `Bytes` in two makes them shared, which allocates; a frame without a block, as most
/// are, is shortened at its front instead.
pub(crate) fn take_apart(header: &FrameHeader, mut frame: Bytes) -> (Bytes, Bytes) {
    frame.advance(HEADER_LEN);
    if header.metadata_len == 0 {
        return (Bytes::new(), frame);
    }
    let block = frame.split_to(header.metadata_len as usize);
    (block, frame)
}
