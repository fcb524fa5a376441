//! `OutFrame`: a frame that writes itself into a transport's memory.

use std::fmt;

use bytes::Bytes;

use super::TransportError;

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
}

/// A writer of a frame up to its tail.
pub trait WriteHead: Send + Sync {
    /// Writes it into memory of exactly its length. Called once at most.
    ///
    /// # Errors
    ///
    /// When the frame is not to be sent any more. The transport takes its memory back, sends
    /// nothing, and returns the error.
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
        Self { head_len, tail, head }
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
    /// When it is not to be sent any more.
    pub fn write_head(self, head: &mut [u8]) -> Result<(), Withdrawn> {
        self.head.write_head(head)
    }

    /// Writes the whole frame into memory of exactly its length.
    ///
    /// # Errors
    ///
    /// When it is not to be sent any more.
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
