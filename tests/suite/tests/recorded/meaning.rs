//! The meaning of frames, without the parts that may differ between two runs of the same calls.
//!
//! Chunks are joined, messages that share a frame are taken apart, compressed messages are
//! inflated, and deadlines are there or not. Acks, windows and pings depend on time alone, and are
//! left out.

use std::collections::{HashMap, VecDeque};
use std::io::Read as _;

use rpc_core::wire::hello::{Hello, PREFIX_LEN};
use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN, MAGIC, MESSAGE_LEN_LEN};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Length of a record's header. The format is written down here once more, so that a change which
/// both of farcall's sides agree on fails a test.
const RECORD_HEADER_LEN: usize = 12;

/// The meaning of one frame, or of one message in a frame of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saying {
    pub(crate) kind: FrameKind,
    pub(crate) call: u64,
    is_streaming: bool,
    is_not_executed: bool,
    is_deflated: bool,
    selector: u16,
    has_deadline: bool,
    metadata: Vec<u8>,
    message: Vec<u8>,
}

/// All frames of one side of a connection.
#[derive(Debug, Default)]
pub(crate) struct Speech {
    /// Frames that have come in part, by their transfer, with their whole length.
    chunks: HashMap<u32, (usize, Vec<u8>)>,
    /// The number of the next frame of each call.
    places: HashMap<u64, u64>,
    sayings: VecDeque<Saying>,
}

/// Returns true for a handshake message, false for a record.
pub(crate) fn is_handshake(unit: &[u8]) -> bool {
    unit.starts_with(&MAGIC)
}

/// Reads a handshake message or a record; `None` where the peer has closed.
///
/// # Cancel safety
///
/// Cancelled, a part may have been read.
pub(crate) async fn read_unit(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut unit = vec![0; RECORD_HEADER_LEN];
    stream.read_exact(&mut unit).await.ok()?;
    let mut len_at = 4;
    if is_handshake(&unit) {
        unit.resize(PREFIX_LEN, 0);
        stream.read_exact(&mut unit[RECORD_HEADER_LEN..]).await.ok()?;
        len_at = 12;
    }
    let head_len = unit.len();
    unit.resize(head_len + u32_at(&unit, len_at), 0);
    stream.read_exact(&mut unit[head_len..]).await.ok()?;
    Some(unit)
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

/// Gives a record another call, where it begins a frame of that call.
pub(crate) fn set_call(record: &mut [u8], calls: &HashMap<u64, u64>) {
    let frame_at = match record[0] {
        1 => RECORD_HEADER_LEN,
        2 => RECORD_HEADER_LEN + 8,
        _ => return,
    };
    let call_at = frame_at + 8;
    let call = &mut record[call_at..call_at + 8];
    let recorded = u64::from_le_bytes((&*call).try_into().expect("eight bytes"));
    if let Some(today) = calls.get(&recorded) {
        call.copy_from_slice(&today.to_le_bytes());
    }
}

/// Decodes a Hello, and checks that today's encoder makes the same bytes of it.
pub(crate) fn hello(unit: &[u8]) -> Hello {
    assert_eq!(unit[8..12], [1, 0, 1, 0], "versions 1 to 1 are spoken");
    let hello: Hello = prost::Message::decode(&unit[PREFIX_LEN..]).expect("a Hello decodes");
    let again = rpc_core::wire::hello::encode(&hello).expect("a Hello encodes");
    assert_eq!(again, unit, "a field of the Hello has moved");
    assert_ne!(hello.message_len_max, 0, "a Hello says how long messages may be");
    assert_ne!(hello.calls_max, 0, "a Hello says how many calls there may be");
    hello
}

impl Speech {
    /// Takes a record.
    pub(crate) fn take(&mut self, record: &[u8]) {
        let (head, body) = record.split_at(RECORD_HEADER_LEN);
        assert_eq!((&head[2..4], u32_at(head, 4)), (&[0, 0][..], body.len()), "a record's header");
        let transfer = u32::from_le_bytes(head[8..].try_into().expect("four bytes"));
        match head[0] {
            1 => self.take_frame(body),
            2 => {
                let len = u64::from_le_bytes(body[..8].try_into().expect("eight bytes"));
                let len = usize::try_from(len).expect("recordings are short");
                self.chunks.insert(transfer, (len, Vec::new()));
                self.take_chunk(transfer, &body[8..]);
            }
            3 => self.take_chunk(transfer, body),
            4 => {}
            other => panic!("a record of kind {other}"),
        }
    }

    /// Returns what was said first and not returned yet.
    pub(crate) fn next(&mut self) -> Option<Saying> {
        self.sayings.pop_front()
    }

    fn take_chunk(&mut self, transfer: u32, chunk: &[u8]) {
        let (len, frame) = self.chunks.get_mut(&transfer).expect("a first chunk");
        frame.extend_from_slice(chunk);
        if frame.len() == *len {
            let (_, frame) = self.chunks.remove(&transfer).expect("it is there");
            self.take_frame(&frame);
        }
    }

    fn take_frame(&mut self, frame: &[u8]) {
        let header = FrameHeader::parse_whole(frame).expect("a frame as it should be");
        assert_eq!(frame[..HEADER_LEN], header.to_bytes(), "a header's bytes");
        self.check_place(&header);
        let (metadata, message) = frame[HEADER_LEN..].split_at(header.metadata_len as usize);
        let saying = |message: &[u8]| Saying {
            kind: header.kind,
            call: header.call,
            is_streaming: header.is_streaming,
            is_not_executed: header.is_not_executed,
            is_deflated: header.is_deflated,
            selector: header.selector,
            has_deadline: header.kind == FrameKind::Request && header.argument != 0,
            metadata: metadata.to_vec(),
            message: if header.is_deflated { inflated(message) } else { message.to_vec() },
        };
        match header.kind {
            FrameKind::Window | FrameKind::Ping | FrameKind::Pong => {}
            FrameKind::Messages => {
                let mut rest = message;
                while !rest.is_empty() {
                    let end = MESSAGE_LEN_LEN + u32_at(rest, 0);
                    self.sayings.push_back(saying(&rest[MESSAGE_LEN_LEN..end]));
                    rest = &rest[end..];
                }
            }
            _ => self.sayings.push_back(saying(message)),
        }
    }

    /// Checks that the frames of a call are numbered.
    fn check_place(&mut self, header: &FrameHeader) {
        use FrameKind::{HalfClose, Headers, Messages, Response};
        if let Headers | Messages | HalfClose | Response = header.kind {
            let place = self.places.entry(header.call).or_default();
            assert_eq!(header.argument, *place, "the place of {header:?}");
            *place += 1;
        }
    }
}

fn inflated(message: &[u8]) -> Vec<u8> {
    let (len, deflated) = message.split_at(8);
    let mut inflated = Vec::new();
    flate2::read::ZlibDecoder::new(deflated).read_to_end(&mut inflated).expect("it inflates");
    assert_eq!(len, (inflated.len() as u64).to_le_bytes());
    inflated
}
