//! Small messages gathered into one frame.

use bytes::Bytes;
use prost::Message;

use crate::payload::encode::{Encode, Split};
use crate::wire::MESSAGE_LEN_LEN;

/// Messages that share a frame.
#[derive(Debug)]
pub(super) struct Batch<M> {
    messages: Vec<Split<M>>,
    len: usize,
    /// The frame is filled up to this length; a longer message has a frame of its own.
    len_max: usize,
}

impl<M: Message + 'static> Batch<M> {
    pub(super) fn new(len_max: usize) -> Self {
        Self { messages: Vec::new(), len: 0, len_max }
    }

    /// Adds a message, however long.
    pub(super) fn push(&mut self, message: Split<M>) {
        self.len += MESSAGE_LEN_LEN + message.len();
        self.messages.push(message);
    }

    /// Returns true if a message of `len` bytes may share the frame.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.messages.is_empty() || self.len + MESSAGE_LEN_LEN + len <= self.len_max
    }

    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.len = 0;
    }
}

impl<M: Message> Encode for Batch<M> {
    fn len(&self) -> usize {
        self.len
    }

    fn tail(&self) -> Option<&Bytes> {
        // What is long enough to have a tail is alone.
        self.messages.last().and_then(Encode::tail)
    }

    fn encode_head(&self, mut out: &mut [u8]) {
        for message in &self.messages {
            let len = message.len();
            let head_len = len - message.tail().map_or(0, Bytes::len);
            let (prefix, rest) = out.split_at_mut(MESSAGE_LEN_LEN);
            // Messages are checked against the peer's limit, and against 4 GiB, when sent.
            prefix.copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
            let (body, rest) = rest.split_at_mut(head_len);
            message.encode_head(body);
            out = rest;
        }
    }
}

/// A message alone in its frame, behind its length.
#[derive(Debug)]
pub(super) struct Framed<'a>(pub(super) &'a dyn Encode);

impl Encode for Framed<'_> {
    fn len(&self) -> usize {
        MESSAGE_LEN_LEN + self.0.len()
    }

    fn tail(&self) -> Option<&Bytes> {
        self.0.tail()
    }

    fn encode_head(&self, out: &mut [u8]) {
        let (prefix, rest) = out.split_at_mut(MESSAGE_LEN_LEN);
        // It is shorter than the message was before, which was checked against 4 GiB.
        prefix.copy_from_slice(&u32::try_from(self.0.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.0.encode_head(rest);
    }
}
