//! Messages as they arrive, and the tail field in memory of its own.
//!
//! A message is decoded from the memory that its frame was received into. prost copies a `Vec<u8>`
//! field out of it. Where the frame ends with a long field of that type, a transport may read the
//! field's bytes into a vector instead ([`Tail`]), which becomes the field. Nothing on the wire
//! marks it: the field's key and length are in the frame's first bytes.

use std::any::Any;
use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::encoding::{WireType, decode_key, decode_varint};
use prost::{DecodeError, Message};

use crate::payload::tail_field::{DETACH_LEN_MIN, Detacher};
use crate::wire::{FrameHeader, HEADER_LEN};

/// The last field of an announced frame's message, which a transport reads into a vector.
pub struct Tail {
    detacher: Detacher,
    number: u32,
    /// Length of the field's key and length in bytes. They precede the tail, and end the frame's
    /// head.
    key_len: usize,
    len: usize,
    bytes: Vec<u8>,
}

impl Tail {
    /// Finds the tail of a frame of `frame_len` bytes by its first bytes, `first`. `detacher` has
    /// the accessors of the message's fields. `None` if the message does not end with a vector of
    /// 64 KiB or more, or if `first` ends before that.
    #[must_use]
    pub fn find(detacher: Detacher, first: &[u8], frame_len: usize) -> Option<Self> {
        let header = FrameHeader::parse(first).ok()?;
        let message_at = HEADER_LEN.checked_add(usize::try_from(header.metadata_len).ok()?)?;
        let message = first.get(message_at..)?;
        let field = last_field(message, frame_len.checked_sub(message_at)?)?;
        let is_taken = field.len >= DETACH_LEN_MIN && detacher.takes_vector(field.number);
        is_taken.then(|| Self {
            detacher,
            number: field.number,
            key_len: field.key_len,
            len: field.len,
            bytes: Vec::with_capacity(field.len),
        })
    }

    /// Returns the length of the whole tail in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no tail is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes that have not been received.
    #[must_use]
    pub fn left(&self) -> usize {
        self.len - self.bytes.len()
    }

    /// The bytes received so far. The transport appends the rest, and no more than that.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail")
            .field("number", &self.number)
            .field("len", &self.len)
            .field("left", &self.left())
            .finish_non_exhaustive()
    }
}

/// The last field of a message, of wire type `LEN`.
#[derive(Debug, PartialEq, Eq)]
struct LastField {
    number: u32,
    key_len: usize,
    len: usize,
}

/// Finds the last field of a message of `message_len` bytes, of which `first` are the first ones.
/// `None` if that has another wire type, or begins behind `first`.
fn last_field(first: &[u8], message_len: usize) -> Option<LastField> {
    let mut rest = first;
    loop {
        let before = rest.len();
        let (number, wire_type) = decode_key(&mut rest).ok()?;
        let skipped = match wire_type {
            WireType::Varint => decode_varint(&mut rest).map(|_| 0).ok()?,
            WireType::SixtyFourBit => size_of::<u64>(),
            WireType::ThirtyTwoBit => size_of::<u32>(),
            WireType::LengthDelimited => {
                let len = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
                let at = first.len() - rest.len();
                if at.checked_add(len)? == message_len {
                    return Some(LastField { number, key_len: before - rest.len(), len });
                }
                len
            }
            // Not used since the second version of the language.
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        rest = rest.get(skipped..)?;
    }
}

/// A message that has arrived and is not decoded yet.
#[derive(Debug)]
pub struct ReceivedMessage(Pieces);

/// The memory of a message. It is as long as `Bytes`, since a message is moved several times.
#[derive(Debug)]
enum Pieces {
    /// It aliases the memory that the frame was received into.
    One(Bytes),
    Two(Box<SplitMessage>),
}

/// A message up to its tail, and the tail.
#[derive(Debug)]
struct SplitMessage {
    head: Bytes,
    tail: Tail,
}

impl Default for ReceivedMessage {
    fn default() -> Self {
        Bytes::new().into()
    }
}

impl From<Bytes> for ReceivedMessage {
    fn from(bytes: Bytes) -> Self {
        Self(Pieces::One(bytes))
    }
}

impl ReceivedMessage {
    /// The message of a frame that was delivered with this tail.
    #[inline(always)]
    pub(crate) fn new(head: Bytes, tail: Option<Box<Tail>>) -> Self {
        match tail {
            None => head.into(),
            Some(tail) => Self(Pieces::Two(Box::new(SplitMessage { head, tail: *tail }))),
        }
    }

    /// Returns the length of the whole encoding in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Pieces::One(bytes) => bytes.len(),
            Pieces::Two(split) => split.head.len() + split.tail.bytes.len(),
        }
    }

    /// Returns true if the encoding has no bytes, as that of a message with default values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the whole encoding in one piece. Copies it if its tail is in memory of its own.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match &self.0 {
            Pieces::One(bytes) => bytes.clone(),
            Pieces::Two(split) => joined(&split.head, &split.tail.bytes),
        }
    }

    /// The whole encoding in one piece, like [`to_bytes`](Self::to_bytes).
    pub(crate) fn into_bytes(self) -> Bytes {
        match self.0 {
            Pieces::One(bytes) => bytes,
            Pieces::Two(split) => joined(&split.head, &split.tail.bytes),
        }
    }

    /// Decodes the message. Its tail becomes the field that it is, without a copy.
    #[inline(always)]
    pub(crate) fn decode<M: Message + Default + Any>(self) -> Result<M, DecodeError> {
        match self.0 {
            Pieces::One(bytes) => M::decode(bytes),
            Pieces::Two(split) => split.decode(),
        }
    }
}

impl SplitMessage {
    fn decode<M: Message + Default + Any>(self) -> Result<M, DecodeError> {
        let Self { head, tail: Tail { detacher, number, key_len, bytes, .. } } = self;
        // `find` has seen the key and the length.
        let mut message = M::decode(head.slice(..head.len().saturating_sub(key_len)))?;
        match detacher.attach(&mut message, number, bytes) {
            Ok(()) => Ok(message),
            // The caller decodes it as another type than the method's, as a proxy may.
            Err(bytes) => M::decode(joined(&head, &bytes)),
        }
    }
}

fn joined(head: &[u8], tail: &[u8]) -> Bytes {
    let mut whole = BytesMut::with_capacity(head.len() + tail.len());
    whole.put_slice(head);
    whole.put_slice(tail);
    whole.freeze()
}

#[cfg(test)]
mod tests;
