//! Frames that a peer may send: mostly well-formed, and otherwise anything.

use std::io::Write;

use arbitrary::Arbitrary;
use flate2::write::ZlibEncoder;
use prost::Message;
use rpc_core::Limits;
use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN, MESSAGE_LEN_LEN};

/// Something that breaks the protocol, and so ends the script, happens once in so many times.
const RARELY: u8 = 16;

/// A rare event: true for few of the inputs.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub(crate) struct Rarely(u8);

impl Rarely {
    pub(crate) const NOW: Self = Self(1);

    pub(crate) fn is_now(self) -> bool {
        self.0 % RARELY == 1
    }
}

/// A frame for the peer to send, as the input describes it.
#[derive(Debug, Arbitrary)]
pub(crate) struct Craft {
    kind: u8,
    /// Set if any kind may be sent, including those of the other role.
    pub(crate) is_any_kind: Rarely,
    pub(crate) call: u8,
    /// Set if a request's kind does not match its method.
    is_mistaken: Rarely,
    /// Set if there is metadata, on kinds that may have some.
    has_block: bool,
    /// Set if the metadata has its maximum length, on any kind.
    pub(crate) is_burdened: Rarely,
    /// Set if the frame lacks its message, on any kind.
    pub(crate) is_empty: Rarely,
    /// Set if a frame of messages holds a single empty one.
    pub(crate) is_tiny: Rarely,
    selector: u8,
    /// The frame's argument, where it is not its place.
    argument: u16,
    is_misplaced: Rarely,
    /// Set if the body is arbitrary, not one that its kind may have.
    is_any_body: Rarely,
    bytes: Vec<u8>,
    ask: Ask,
    /// Padding of the frame's messages, in bytes.
    padding: [u16; 3],
}

/// Instructions to the service of the `server` target.
#[derive(Clone, PartialEq, Eq, Message, Arbitrary)]
pub(crate) struct Ask {
    /// Delay of the answer, in milliseconds.
    #[prost(uint32, tag = "1")]
    pub(crate) delay_ms: u32,
    /// Number of messages in the answer.
    #[prost(uint32, tag = "2")]
    pub(crate) count: u32,
    /// Length of each message, in bytes.
    #[prost(uint32, tag = "3")]
    pub(crate) len: u32,
    /// The end of the call, modulo 8: 1 fails with a status, 2 panics, 3 never ends, all others
    /// succeed.
    #[prost(uint32, tag = "4")]
    pub(crate) end: u32,
}

/// One entry, `x: ab`.
const METADATA: &[u8] = b"\x01\0\x02\0\0\0xab";

/// The frames of a call of which the handler reads one message and nothing more.
pub(crate) fn stuck_call(id: u64, is_answered_by_stream: bool) -> [Vec<u8>; 2] {
    let mut request = FrameHeader::bare(FrameKind::Request, id);
    (request.is_streaming, request.selector) = (true, if is_answered_by_stream { 3 } else { 1 });
    let message = Ask { end: 3, ..Ask::default() }.encode_to_vec();
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut messages = FrameHeader::bare(FrameKind::Messages, id);
    messages.message_len = (len.len() + message.len()) as u64;
    [request.to_bytes().to_vec(), [&messages.to_bytes()[..], &len, &message].concat()]
}

/// A way to make a compressed message.
#[derive(Debug, Clone, Copy)]
enum Zip {
    Good,
    /// Its last bytes are missing.
    Short,
    /// Bytes follow its end.
    Long,
    /// It says another length than it inflates to.
    Lying,
    /// It is of zeros, and a thousand times longer than it was.
    Bomb,
}

impl Zip {
    /// Returns the compression that a selector stands for. A third of all frames have one.
    fn of(selector: u8) -> Option<Self> {
        match selector / 16 {
            11 | 12 => Some(Self::Good),
            13 => Some(Self::Short),
            14 if selector.is_multiple_of(2) => Some(Self::Long),
            14 => Some(Self::Lying),
            15 => Some(Self::Bomb),
            _ => None,
        }
    }

    /// The message of a frame of that kind.
    fn body(self, kind: FrameKind, message: &[u8]) -> Vec<u8> {
        let zeros;
        let message = match self {
            Self::Bomb => {
                zeros = vec![0; BOMB_LEN];
                &zeros
            }
            _ => message,
        };
        let len = message.len() as u64;
        let len = if let Self::Lying = self { len / 2 + 1 } else { len };
        let begin = len.to_le_bytes().to_vec();
        let mut encoder = ZlibEncoder::new(begin, flate2::Compression::fast());
        encoder.write_all(message).expect("memory takes everything");
        let mut body = encoder.finish().expect("memory takes everything");
        match self {
            Self::Short => body.truncate(body.len() - 3),
            Self::Long => body.extend_from_slice(b"and"),
            Self::Good | Self::Lying | Self::Bomb => {}
        }
        match kind {
            FrameKind::Messages => {
                let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
                [&len.to_le_bytes()[..], &body].concat()
            }
            _ => body,
        }
    }
}

/// Inflated length of a bomb, in bytes: more than the limits of either script allow.
const BOMB_LEN: usize = 20_000;

/// Returns true if a frame with this header has a message.
fn has_message(header: &FrameHeader) -> bool {
    match header.kind {
        FrameKind::Request => !header.is_streaming,
        FrameKind::Response | FrameKind::Messages => true,
        _ => false,
    }
}

impl Craft {
    /// The whole frame, of the call `id`; `place` is what its argument has to be to be in order,
    /// `kinds` are those that the peer's role has, `limits` those of the session.
    pub(crate) fn frame(
        &self,
        id: u64,
        place: u64,
        kinds: &[FrameKind],
        limits: &Limits,
    ) -> Vec<u8> {
        let kinds = if self.is_any_kind.is_now() { FrameKind::ALL } else { kinds };
        let kind = kinds[usize::from(self.kind) % kinds.len()];
        let burden;
        let block: &[u8] = match kind {
            _ if self.is_any_body.is_now() => &self.bytes,
            _ if self.is_burdened.is_now() => {
                burden = METADATA.repeat(limits.max_metadata_len as usize / METADATA.len());
                &burden
            }
            FrameKind::Request | FrameKind::Headers if self.has_block => METADATA,
            _ => &[],
        };
        let mut header = FrameHeader::bare(kind, id);
        header.selector = u16::from(self.selector % 5);
        // Methods 1 and 3 are those whose requests are streams.
        let is_streaming = (header.selector % 2 == 1) != self.is_mistaken.is_now();
        header.is_streaming = is_streaming && kind == FrameKind::Request;
        let body = self.body(&header);
        let argument = u64::from(self.argument);
        header.argument = match kind {
            FrameKind::Window => argument >> 8 << 32 | (argument & 0xff) << 6,
            // Half of all requests have no deadline.
            FrameKind::Request => (argument % 2) * argument * 10,
            _ if self.is_misplaced.is_now() => argument,
            _ => place,
        };
        let body = match Zip::of(self.selector).filter(|_| has_message(&header)) {
            Some(zip) => {
                header.is_deflated = true;
                zip.body(kind, &self.message(self.padding[0]))
            }
            None => body,
        };
        header.metadata_len = u32::try_from(block.len()).unwrap_or(u32::MAX);
        header.message_len = body.len() as u64;
        let mut frame = Vec::with_capacity(HEADER_LEN + block.len() + body.len());
        frame.extend_from_slice(&header.to_bytes());
        frame.extend_from_slice(block);
        frame.extend_from_slice(&body);
        frame
    }

    fn body(&self, header: &FrameHeader) -> Vec<u8> {
        match header.kind {
            _ if self.is_any_body.is_now() => self.bytes.clone(),
            _ if self.is_empty.is_now() => Vec::new(),
            FrameKind::Messages if self.is_tiny.is_now() => vec![0; MESSAGE_LEN_LEN],
            FrameKind::Request if header.is_streaming => Vec::new(),
            FrameKind::Request | FrameKind::Response => self.message(self.padding[0]),
            FrameKind::Messages => {
                let count = 1 + usize::from(self.selector) % self.padding.len();
                let messages = self.padding[..count].iter().map(|len| {
                    let message = self.message(len % 600);
                    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
                    [&len.to_le_bytes()[..], &message].concat()
                });
                messages.collect::<Vec<_>>().concat()
            }
            _ => Vec::new(),
        }
    }

    /// A message that decodes, with so many bytes in a field that its type does not have.
    fn message(&self, padding: u16) -> Vec<u8> {
        // Most are short; one in four is of any length.
        let len = if padding.is_multiple_of(4) { usize::from(padding) / 4 } else { 0 };
        let mut message = self.ask.encode_to_vec();
        message.push(15 << 3 | 2);
        prost::encoding::encode_varint(len as u64, &mut message);
        message.resize(message.len() + len, 0);
        message
    }
}
