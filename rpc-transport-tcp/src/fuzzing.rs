//! Entry points for fuzz targets only: record decoding and PROXY headers, without a socket.

use std::net::SocketAddr;

use bytes::Bytes;
use rpc_core::pool::Pool;
use rpc_core::transport::Admission;
use rpc_core::wire::ProtocolError;

use crate::codec::decoder::{Decoder, DecoderEvent, VECTOR, joined};
use crate::proxy::{self, Decoded};

/// Reads a PROXY header from `bytes`, in the steps in which a socket would be read. Returns the
/// client and the header's length, or `None` if there is no complete header.
#[must_use]
pub fn read_proxy_header(bytes: &[u8]) -> Option<(Option<SocketAddr>, usize)> {
    let mut len = 0;
    loop {
        match proxy::decode(bytes.get(..len)?) {
            Ok(Decoded::Needs(more)) => len += more,
            Ok(Decoded::Known { client, len }) => return Some((client, len)),
            Err(_) => return None,
        }
    }
}

/// The result of decoding a record stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Reassembled {
    /// The complete frames, in order.
    pub frames: Vec<Bytes>,
    /// The counts of the acks, in order.
    pub acks: Vec<u64>,
    /// The violation that ended the stream, if any.
    pub error: Option<ProtocolError>,
}

/// Decodes `bytes`, read at most `step` at a time. Admits large frames of up to `admitted_len_max`
/// bytes.
#[must_use]
pub fn reassemble(mut bytes: &[u8], step: usize, admitted_len_max: u64) -> Reassembled {
    let mut decoder = Decoder::new(Pool::new(0));
    let (mut frames, mut acks) = (Vec::new(), Vec::new());
    while !bytes.is_empty() {
        decoder.read(&mut bytes, step);
        if let Err(error) = take(&mut decoder, &mut frames, &mut acks, admitted_len_max) {
            return Reassembled { frames, acks, error: Some(error) };
        }
        decoder.release_if_empty();
    }
    Reassembled { frames, acks, error: None }
}

fn take(
    decoder: &mut Decoder,
    frames: &mut Vec<Bytes>,
    acks: &mut Vec<u64>,
    admitted_len_max: u64,
) -> Result<(), ProtocolError> {
    while let Some(event) = decoder.next()? {
        match event {
            DecoderEvent::Announced { len, .. } if len <= admitted_len_max => {
                decoder.admit(Admission::Accept { deadline: None, detacher: Some(VECTOR) });
            }
            DecoderEvent::Announced { .. } => decoder.admit(Admission::Refuse),
            DecoderEvent::Frame { frame, delivery } => frames.push(joined(frame, delivery)),
            DecoderEvent::Ack { read } => acks.push(read),
        }
    }
    Ok(())
}
