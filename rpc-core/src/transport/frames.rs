//! Writing frames from their parts into a transport's memory, and taking them apart.

use bytes::{Buf, Bytes};

use crate::calls::receive_budget::ReceiveBudget;
use crate::payload::encode::Encode;
use crate::transport::{Delivery, Transport, TransportError};
use crate::wire::{FrameHeader, HEADER_LEN, ProtocolError};

/// The parts of a frame. The lengths in `header` are set when it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) header: FrameHeader,
    pub(crate) block: &'a [u8],
    pub(crate) message: Option<&'a dyn Encode>,
}

impl Parts<'_> {
    /// The length of the whole frame.
    pub(crate) fn len(&self) -> usize {
        HEADER_LEN + self.block.len() + self.message_len()
    }

    fn tail(&self) -> Option<&Bytes> {
        self.message.and_then(Encode::tail)
    }

    /// Writes the whole frame into memory of exactly its length.
    fn write(&self, frame: &mut [u8]) {
        let tail = self.tail().map_or(&[][..], |tail| tail);
        let (head, rest) = frame.split_at_mut(frame.len() - tail.len());
        self.write_head(head);
        rest.copy_from_slice(tail);
    }

    /// Writes the frame up to its tail into memory of exactly that length.
    fn write_head(&self, head: &mut [u8]) {
        let mut header = self.header;
        // Callers have checked the block against a limit of 32 bits.
        header.metadata_len = u32::try_from(self.block.len()).unwrap_or(u32::MAX);
        header.message_len = self.message_len() as u64;
        let (head, message) = head.split_at_mut(HEADER_LEN + self.block.len());
        head[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        head[HEADER_LEN..].copy_from_slice(self.block);
        if let Some(encode) = self.message {
            encode.encode_head(message);
        }
    }

    fn message_len(&self) -> usize {
        self.message.map_or(0, Encode::len)
    }
}

/// Memory for a frame: for all of it, or up to a tail that the transport sends from where it lies.
pub(crate) struct Reserved<T: Transport> {
    buffer: T::Buffer,
    tail: Option<T::Tail>,
}

impl<T: Transport> Reserved<T> {
    /// Writes the frame that the memory was reserved for.
    pub(crate) fn write(&mut self, parts: &Parts<'_>) {
        match self.tail {
            None => parts.write(self.buffer.as_mut()),
            Some(_) => parts.write_head(self.buffer.as_mut()),
        }
    }

    /// Sends the frame.
    pub(crate) fn send(self, transport: &T) -> Result<(), TransportError> {
        match self.tail {
            None => transport.send(self.buffer),
            Some(tail) => transport.send_with_tail(self.buffer, tail),
        }
    }
}

/// How much memory a frame needs, and the tail that needs none.
fn needs<T: Transport>(transport: &T, parts: &Parts<'_>) -> (usize, Option<T::Tail>) {
    let len = parts.len();
    let Some(tail) = parts.tail() else { return (len, None) };
    let head_len = len - tail.len();
    match transport.claim_tail(head_len, tail) {
        Some(claimed) => (head_len, Some(claimed)),
        None => (len, None),
    }
}

/// Memory for a frame if it is there at once; `None` when the caller has to wait.
pub(crate) fn try_reserve<T: Transport>(
    transport: &T,
    parts: &Parts<'_>,
) -> Result<Option<Reserved<T>>, TransportError> {
    let (len, tail) = needs(transport, parts);
    let buffer = transport.try_reserve(len)?;
    Ok(buffer.map(|buffer| Reserved { buffer, tail }))
}

/// Memory for a frame, once there is some.
pub(crate) async fn reserve<T: Transport>(
    transport: &T,
    parts: &Parts<'_>,
) -> Result<Reserved<T>, TransportError> {
    let (len, tail) = needs(transport, parts);
    Ok(Reserved { buffer: transport.reserve(len).await?, tail })
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

/// Sends a frame if there is memory for it at once; false when the caller has to wait.
pub(crate) fn try_send<T: Transport>(
    transport: &T,
    parts: &Parts<'_>,
) -> Result<bool, TransportError> {
    let Some(mut reserved) = try_reserve(transport, parts)? else { return Ok(false) };
    reserved.write(parts);
    reserved.send(transport)?;
    Ok(true)
}

/// Sends a frame once there is memory for it.
pub(crate) async fn send<T: Transport>(
    transport: &T,
    parts: Parts<'_>,
) -> Result<(), TransportError> {
    let mut reserved = reserve(transport, &parts).await?;
    reserved.write(&parts);
    reserved.send(transport)
}
