//! Frames from their parts into a transport's memory, whoever's transport it is.

use bytes::{Buf, Bytes};

use crate::encode::Encode;
use crate::transport::{Transport, TransportError};
use crate::wire::{FrameHeader, HEADER_LEN};

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

    /// Writes the frame into memory of exactly its length.
    pub(crate) fn write(&self, frame: &mut [u8]) {
        let mut header = self.header;
        // Callers have checked the block against a limit of 32 bits.
        header.metadata_len = u32::try_from(self.block.len()).unwrap_or(u32::MAX);
        header.message_len = self.message_len() as u64;
        let (head, message) = frame.split_at_mut(HEADER_LEN + self.block.len());
        head[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        head[HEADER_LEN..].copy_from_slice(self.block);
        if let Some(encode) = self.message {
            encode.encode_into(message);
        }
    }

    fn message_len(&self) -> usize {
        self.message.map_or(0, Encode::len)
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
    let Some(mut buffer) = transport.try_reserve(parts.len())? else { return Ok(false) };
    parts.write(buffer.as_mut());
    transport.send(buffer)?;
    Ok(true)
}

/// Sends a frame once there is memory for it.
pub(crate) async fn send<T: Transport>(
    transport: &T,
    parts: Parts<'_>,
) -> Result<(), TransportError> {
    let mut buffer = transport.reserve(parts.len()).await?;
    parts.write(buffer.as_mut());
    transport.send(buffer)
}
