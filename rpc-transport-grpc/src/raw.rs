//! Messages that are passed on as they are.
//!
//! tonic's client and server code is generic over a codec, and farcall's stubs and services are
//! generic over prost's messages. [`Raw`] and [`RawCodec`] are both with nothing to encode or
//! decode: a message is received into memory, and that memory is sent.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType};
use prost::{DecodeError, Message};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// A message's encoding, in the place of the message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Raw(pub Bytes);

impl Message for Raw {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    /// Called by no one: `merge` takes the whole message before its fields are looked at.
    fn merge_field(
        &mut self,
        _: u32,
        _: WireType,
        _: &mut impl Buf,
        _: DecodeContext,
    ) -> Result<(), DecodeError> {
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes all that is left of `buf`, without a copy where that is `Bytes`.
    fn merge(&mut self, mut buf: impl Buf) -> Result<(), DecodeError> {
        self.0 = buf.copy_to_bytes(buf.remaining());
        Ok(())
    }
}

/// tonic's codec of [`Raw`] messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct RawCodec;

impl Codec for RawCodec {
    type Encode = Raw;
    type Decode = Raw;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

/// The first memory for what is sent and what is received, in bytes. tonic makes it for each call
/// and each direction before there is a message; a small message and its prefix fit.
const BUFFER_LEN: usize = 512;

/// From how many bytes on tonic sends what it has before it asks for the next message, in bytes.
const YIELD_LEN: usize = 32 << 10;

impl Encoder for RawCodec {
    type Item = Raw;
    type Error = Status;

    fn encode(&mut self, Raw(bytes): Raw, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.reserve(bytes.len());
        dst.put_slice(&bytes);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_LEN, YIELD_LEN)
    }
}

impl Decoder for RawCodec {
    type Item = Raw;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Raw>, Status> {
        Ok(Some(Raw(src.copy_to_bytes(src.remaining()))))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_LEN, YIELD_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_passes_as_it_is_and_its_memory_is_shared() {
        let bytes = Bytes::from(vec![0xff, 0, 7, 0x80]);
        let raw = Raw::decode(bytes.clone()).unwrap();
        assert_eq!(raw.0.as_ptr(), bytes.as_ptr(), "it is not copied");
        assert_eq!(raw.encoded_len(), 4);
        assert_eq!(raw.encode_to_vec(), bytes);
    }

    #[test]
    fn what_is_no_message_passes_too() {
        // A field number of zero, which no message has.
        assert_eq!(Raw::decode(&[0, 1][..]).unwrap().0[..], [0, 1]);
        assert_eq!(Raw::decode(&[][..]).unwrap(), Raw::default());
    }
}
