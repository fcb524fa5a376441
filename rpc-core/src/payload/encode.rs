//! `Encode`: a type-erased message to be encoded.
//!
//! The transport type is forgotten on the other side of this seam, so that neither stubs nor
//! sessions are generic over both. The message goes straight into the transport's memory, whose
//! length is known beforehand; a long `bytes` field at its end may stay where it lies.
//!
//! The field at the end is a message's largest `bytes` field, the *tail field*. Protobuf allows the
//! fields of a message in any order. So the rest of a message is encoded by prost as ever, and one
//! long field follows it: its key and length, and then its bytes, which a transport may send
//! without copying them. What the receiver decodes is the same message. Which fields a message has
//! is known where its code is generated; generated code says it with a [`Detacher`] in its method's
//! descriptor. A message without one travels as prost writes it.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::payload::tail_field::{DETACH_LEN_MIN, Detached, Detacher};

/// Maximum number of messages around the innermost one of a message: prost's recursion limit,
/// beyond which receivers do not decode. An entry of a map counts as a message.
pub const NESTING_MAX: i32 = 100;

/// A message that can be written into memory of its exact length.
pub(crate) trait Encode: Send + Sync {
    /// The length of the whole encoding in bytes.
    fn len(&self) -> usize;

    /// The last bytes of the encoding, where they lie as they are.
    fn tail(&self) -> Option<&Bytes> {
        None
    }

    /// Writes the encoding without its tail into `out`, which has exactly that length.
    fn encode_head(&self, out: &mut [u8]);

    /// Returns the cell for the compressed message of a call that may be repeated. The cell holds
    /// `None` if compression did not make it smaller.
    fn kept_deflated(&self) -> Option<&OnceLock<Option<Box<Bytes>>>> {
        None
    }
}

impl fmt::Debug for dyn Encode + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message of {} bytes", self.len())
    }
}

impl Encode for Box<dyn Encode> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn tail(&self) -> Option<&Bytes> {
        (**self).tail()
    }

    fn encode_head(&self, out: &mut [u8]) {
        (**self).encode_head(out);
    }

    fn kept_deflated(&self) -> Option<&OnceLock<Option<Box<Bytes>>>> {
        (**self).kept_deflated()
    }
}

/// A message whose longest `bytes` field may travel apart from the rest.
#[derive(Debug)]
pub(crate) struct Split<M> {
    rest: M,
    tail: Option<Detached>,
    /// The length of the whole encoding in bytes. It is asked for several times, and to count it is
    /// to walk through the message.
    len: usize,
}

impl<M: Message + Any> Split<M> {
    /// Takes a message apart, if there is something to be gained.
    pub(crate) fn new(message: M, detacher: Option<Detacher>) -> Self {
        let mut whole = Self::whole(message);
        whole.split(detacher);
        whole
    }

    /// A message that is not taken apart yet.
    pub(crate) fn whole(message: M) -> Self {
        let len = message.encoded_len();
        Self { rest: message, tail: None, len }
    }

    /// Takes a whole message apart, if there is something to be gained.
    pub(crate) fn split(&mut self, detacher: Option<Detacher>) {
        if self.tail.is_none() && self.len >= DETACH_LEN_MIN {
            self.tail = detacher.and_then(|detacher| detacher.detach(&mut self.rest));
        }
    }

    /// The message, which was not taken apart.
    pub(crate) fn into_whole(self) -> M {
        self.rest
    }
}

impl<M: Message> Encode for Split<M> {
    fn len(&self) -> usize {
        self.len
    }

    fn tail(&self) -> Option<&Bytes> {
        self.tail.as_ref().map(|tail| &tail.bytes)
    }

    fn encode_head(&self, mut out: &mut [u8]) {
        self.rest.encode_raw(&mut out);
        if let Some(Detached { number, bytes }) = &self.tail {
            encode_key(*number, WireType::LengthDelimited, &mut out);
            encode_varint(bytes.len() as u64, &mut out);
        }
    }
}

/// A message that stays where it lies, and travels as prost writes it.
#[derive(Debug)]
pub(crate) struct Lent<'a, M> {
    message: &'a M,
    /// The length of the encoding in bytes.
    len: usize,
}

impl<'a, M: Message> Lent<'a, M> {
    #[inline(always)]
    pub(crate) fn new(message: &'a M) -> Self {
        Self { message, len: message.encoded_len() }
    }
}

impl<M: Message> Encode for Lent<'_, M> {
    fn len(&self) -> usize {
        self.len
    }

    fn encode_head(&self, mut out: &mut [u8]) {
        self.message.encode_raw(&mut out);
    }
}

#[cfg(test)]
mod tests {
    use prost::bytes::Bytes;

    use super::*;
    use crate::payload::tail_field::{DETACH_LEN_MIN, FieldVisitor, with_fields};

    #[derive(Clone, PartialEq, prost::Message)]
    struct Sample {
        #[prost(bytes = "bytes", tag = "1")]
        first: Bytes,
        #[prost(string, tag = "2")]
        name: String,
        #[prost(bytes = "bytes", optional, tag = "300")]
        second: Option<Bytes>,
        #[prost(bytes = "vec", tag = "4")]
        plain: Vec<u8>,
    }

    fn fields(message: Option<&mut dyn Any>, visit: FieldVisitor<'_>) {
        with_fields::<Sample>(message, |Sample { first, second, plain, .. }| {
            visit(&mut [(1, first), (300, second), (4, plain)]);
        });
    }

    fn sample(first: usize, second: usize, plain: usize) -> Sample {
        Sample {
            first: vec![1; first].into(),
            name: "name".into(),
            second: Some(vec![2; second].into()),
            plain: vec![4; plain],
        }
    }

    fn encoded(message: &dyn Encode) -> Vec<u8> {
        let tail = message.tail().cloned().unwrap_or_default();
        let mut out = vec![0; message.len() - tail.len()];
        message.encode_head(&mut out);
        out.extend_from_slice(&tail);
        out
    }

    #[test]
    fn the_longest_field_comes_last_and_the_message_is_the_same() {
        for (first, second, plain, tail) in [
            (DETACH_LEN_MIN, 10, 10, Some(1)),
            (DETACH_LEN_MIN, DETACH_LEN_MIN + 1, 10, Some(2)),
            (DETACH_LEN_MIN, 10, DETACH_LEN_MIN + 1, Some(4)),
            (DETACH_LEN_MIN - 1, 0, DETACH_LEN_MIN - 1, None),
        ] {
            let message = sample(first, second, plain);
            let detacher = Some(Detacher::new(fields));
            let split = Split::new(message.clone(), detacher);
            assert_eq!(split.tail().map(|tail| tail[0]), tail, "{first}, {second}, {plain}");
            let bytes = encoded(&split);
            assert_eq!(bytes.len(), message.encoded_len());
            assert_eq!(Sample::decode(&*bytes).unwrap(), message);
        }
    }

    #[test]
    fn a_message_without_a_tail_field_travels_as_prost_writes_it() {
        let message = sample(DETACH_LEN_MIN, 0, DETACH_LEN_MIN);
        let expected = message.encode_to_vec();
        assert_eq!(encoded(&Split::new(message, None)), expected);
        let other = "a message of another type".to_owned();
        let expected = other.encode_to_vec();
        assert_eq!(encoded(&Split::new(other, Some(Detacher::new(fields)))), expected);
    }
}
