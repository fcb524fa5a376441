//! Frames as their parts: how they are written into a transport's memory, and taken apart. An
//! [`OutFrame`] writes itself.

use std::fmt;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use super::TransportError;
use crate::calls::receiving::ReceiveBudget;
use crate::payload::encode::Encode;
use crate::transport::Delivery;
use crate::wire::{FrameHeader, HEADER_LEN, ProtocolError};

/// A frame on its way out. The transport finds memory for it, lets it write itself there, and sends
/// what it wrote.
///
/// Writing is where a session enters the call into its table, so that no call is in the table
/// before there is memory for its frame. That has two consequences for a transport. It holds none
/// of its locks meanwhile, since the session's code runs there. And it waits for nothing between
/// writing and sending: a future that is dropped there would lose a frame that the session takes
/// for sent.
pub struct OutFrame<'a> {
    head_len: usize,
    tail: Option<&'a Bytes>,
    head: &'a mut dyn WriteHead,
    marks: Option<Arc<dyn FrameMarks>>,
}

/// A transport's protocols for small and for large frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameProtocol {
    /// Name of the protocol for small frames, such as `SEND`.
    pub small: &'static str,
    /// Name of the protocol for large ones, such as `READ`.
    pub large: &'static str,
    /// Maximum length of a small frame in bytes.
    pub small_len_max: u64,
    /// Set if the transport marks posts itself.
    pub(crate) marks_posts: bool,
}

impl FrameProtocol {
    /// All frames whole.
    pub const DEFAULT: Self = Self::new("whole", "announced", u64::MAX);

    /// Protocols with these names.
    #[must_use]
    pub const fn new(small: &'static str, large: &'static str, small_len_max: u64) -> Self {
        Self { small, large, small_len_max, marks_posts: false }
    }

    /// The same of a transport that marks the posts of an [`OutFrame`] on its
    /// [`marks`](OutFrame::marks).
    #[doc(hidden)]
    #[must_use]
    pub const fn with_marked_posts(mut self) -> Self {
        self.marks_posts = true;
        self
    }
}

/// Marks on a request's way through a transport, for the account of its call.
pub trait FrameMarks: Send + Sync + fmt::Debug {
    /// Marks that the peer allows the frame, whose post begins.
    fn posting(&self);

    /// Marks that the frame is posted.
    fn posted(&self);

    /// Marks that the memory of a large frame is free: the peer has read it, or will not.
    fn released(&self);
}

/// A writer of a frame up to its tail.
pub trait WriteHead: Send + Sync {
    /// Writes it into memory of exactly its length. Called once at most.
    ///
    /// # Errors
    ///
    /// Returns `Withdrawn` if the frame is not to be sent any more. The transport takes its memory
    /// back, sends nothing, and returns the error.
    fn write_head(&mut self, head: &mut [u8]) -> Result<(), Withdrawn>;
}

/// A frame is not to be sent any more, which its session has found out while it wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Withdrawn;

impl From<Withdrawn> for TransportError {
    fn from(_: Withdrawn) -> Self {
        Self::Withdrawn
    }
}

impl<'a> OutFrame<'a> {
    /// A frame of the `head_len` bytes that `head` writes, and the bytes of `tail`.
    pub fn new(head_len: usize, tail: Option<&'a Bytes>, head: &'a mut dyn WriteHead) -> Self {
        Self { head_len, tail, head, marks: None }
    }

    /// The same frame, whose post the transport marks on the account of its call.
    #[must_use]
    #[inline(always)]
    pub(crate) fn with_marks(mut self, marks: Option<Arc<dyn FrameMarks>>) -> Self {
        self.marks = marks;
        self
    }

    /// Returns the account of its call, if its caller has asked for one.
    #[must_use]
    pub fn marks(&self) -> Option<&Arc<dyn FrameMarks>> {
        self.marks.as_ref()
    }

    /// The length of the whole frame in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "every frame has a header")]
    pub fn len(&self) -> usize {
        self.head_len + self.tail.map_or(0, Bytes::len)
    }

    /// The bytes of the frame without its tail.
    #[must_use]
    pub fn head_len(&self) -> usize {
        self.head_len
    }

    /// The end of the frame, where that lies in memory of its own. A transport may send it from
    /// there, and keeps a clone of it until the peer is done with it.
    #[must_use]
    pub fn tail(&self) -> Option<&'a Bytes> {
        self.tail
    }

    /// Writes the frame up to its tail into memory of exactly [`OutFrame::head_len`] bytes.
    ///
    /// # Errors
    ///
    /// Returns `Withdrawn` if it is not to be sent any more.
    pub fn write_head(self, head: &mut [u8]) -> Result<(), Withdrawn> {
        self.head.write_head(head)
    }

    /// Writes the whole frame into memory of exactly its length.
    ///
    /// # Errors
    ///
    /// Returns `Withdrawn` if it is not to be sent any more.
    pub fn write(self, frame: &mut [u8]) -> Result<(), Withdrawn> {
        let Some(tail) = self.tail else { return self.head.write_head(frame) };
        let (head, rest) = frame.split_at_mut(self.head_len);
        self.head.write_head(head)?;
        rest.copy_from_slice(tail);
        Ok(())
    }
}

impl fmt::Debug for OutFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutFrame")
            .field("head_len", &self.head_len)
            .field("tail_len", &self.tail.map(Bytes::len))
            .finish_non_exhaustive()
    }
}

/// A frame that is there already.
impl WriteHead for &[u8] {
    fn write_head(&mut self, head: &mut [u8]) -> Result<(), Withdrawn> {
        head.copy_from_slice(self);
        Ok(())
    }
}

/// The parts of a frame, whose header has the lengths of the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    header: FrameHeader,
    block: &'a [u8],
    message: Option<&'a dyn Encode>,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(
        mut header: FrameHeader,
        block: &'a [u8],
        message: Option<&'a dyn Encode>,
    ) -> Self {
        header.measure(block.len(), message.map_or(0, Encode::len));
        Self::measured(header, block, message)
    }

    /// The same with a header that has the lengths.
    #[inline(always)]
    pub(crate) fn measured(
        header: FrameHeader,
        block: &'a [u8],
        message: Option<&'a dyn Encode>,
    ) -> Self {
        Self { header, block, message }
    }

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
        // A frame that has been encoded, or is about to be, fits the address space.
        usize::try_from(self.header.frame_len()).unwrap_or(usize::MAX)
    }

    /// The length of what precedes the tail.
    pub(crate) fn head_len(&self) -> usize {
        self.len() - self.tail().map_or(0, Bytes::len)
    }

    /// The length of the message, if there is one.
    pub(crate) fn message_len(&self) -> Option<u64> {
        self.message.map(|_| self.header.message_len)
    }
}

impl WriteHead for Parts<'_> {
    fn write_head(&mut self, head: &mut [u8]) -> Result<(), Withdrawn> {
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
#[inline(always)]
pub(crate) fn received<T>(
    budget: &mut ReceiveBudget<T>,
    header: &FrameHeader,
    delivery: &Delivery,
) -> Result<Option<T>, ProtocolError> {
    let key = header.frame_key();
    match delivery {
        Delivery::Whole => budget.came_whole(key).map(|()| None),
        Delivery::Announced | Delivery::Split(_) => {
            budget.arrived(key, header.frame_len()).map(Some)
        }
    }
}

/// Parses the header of a frame that has arrived, and checks the frame's length.
#[inline(always)]
pub(crate) fn parse(frame: &[u8], delivery: &Delivery) -> Result<FrameHeader, ProtocolError> {
    let tail_len = match delivery {
        Delivery::Whole | Delivery::Announced => 0,
        Delivery::Split(tail) => tail.len(),
    };
    let header = FrameHeader::parse(frame)?;
    header.check_len((frame.len() + tail_len) as u64)?;
    Ok(header)
}

/// Takes a frame that has arrived apart into its block and its message.
///
/// To split `Bytes` in two makes them shared, which allocates; a frame without a block, as most
/// are, is shortened at its front instead.
#[inline(always)]
pub(crate) fn take_apart(header: &FrameHeader, mut frame: Bytes) -> (Bytes, Bytes) {
    frame.advance(HEADER_LEN);
    if header.metadata_len == 0 {
        return (Bytes::new(), frame);
    }
    let block = frame.split_to(header.metadata_len as usize);
    (block, frame)
}
