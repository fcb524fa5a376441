//! A large buffer that READs write to.
//!
//! Here because several READs fill one buffer at the same time: until the last has completed there
//! must be no slice of it, so this type has no way to one. Each READ in flight holds a clone of the
//! `Arc`; [`Arc::into_inner`](std::sync::Arc::into_inner) gives the sink back when the last is
//! gone.

use super::{Access, LargeBuffer};
use crate::verbs::RawSegment;

/// A buffer to read into, shared by the READs that fill it.
#[derive(Debug)]
pub struct Sink {
    buffer: LargeBuffer,
}

impl Sink {
    /// Gives up access to the buffer's bytes, so that READs can write to it.
    ///
    /// # Panics
    ///
    /// If the buffer is not from a pool of [`Access::Sink`]: a device would refuse to write to it.
    #[must_use]
    pub fn new(buffer: LargeBuffer) -> Self {
        assert_eq!(buffer.access(), Access::Sink, "a sink must come from a pool of sinks");
        Self { buffer }
    }

    /// Gives the buffer back. Owning the sink proves that no READ holds it.
    #[must_use]
    pub fn into_buffer(self) -> LargeBuffer {
        self.buffer
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part as a work request names it, or `None` when it is not within the sink.
    pub(crate) fn segment(&self, offset: usize, len: u32) -> Option<RawSegment> {
        let end = offset.checked_add(len as usize)?;
        (end <= self.len()).then(|| self.buffer.segment(offset, len))
    }
}
