//! Messages in encoded form.
//!
//! tonic's client and server code is generic over a codec. farcall's stubs and services are generic
//! over prost messages. [`Raw`] and [`RawCodec`] satisfy both without encoding or decoding:
//! received memory is sent as it is.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType};
use prost::{DecodeError, Message};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// An encoded message that takes the place of the decoded one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Raw(pub Bytes);

impl Message for Raw {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    /// Never called: `merge` takes the whole message and decodes no fields.
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

    /// Takes the rest of `buf`, without a copy if it is `Bytes`.
    fn merge(&mut self, mut buf: impl Buf) -> Result<(), DecodeError> {
        self.0 = buf.copy_to_bytes(buf.remaining());
        Ok(())
    }
}

/// A tonic codec for [`Raw`] messages.
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

/// Initial size of the send and receive buffers in bytes. tonic allocates both for each call before
/// there is a message. A small message and its prefix fit.
const BUFFER_LEN: usize = 512;

/// Number of buffered bytes from which tonic sends before it polls the next message.
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
    fn a_message_passes_without_a_copy() {
        let bytes = Bytes::from(vec![0xff, 0, 7, 0x80]);
        let raw = Raw::decode(bytes.clone()).unwrap();
        assert_eq!(raw.0.as_ptr(), bytes.as_ptr(), "it is not copied");
        assert_eq!(raw.encoded_len(), 4);
        assert_eq!(raw.encode_to_vec(), bytes);
    }

    #[test]
    fn malformed_messages_pass_unchanged() {
        // A field with number zero, which protobuf forbids.
        assert_eq!(Raw::decode(&[0, 1][..]).unwrap().0[..], [0, 1]);
        assert_eq!(Raw::decode(&[][..]).unwrap(), Raw::default());
    }
}
