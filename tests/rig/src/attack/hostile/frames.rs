//! The bytes of frames that hostile peers send, good ones and others.

use farcall::Limits;
use prost::Message;
use rpc_core::wire::hello::{self, Declined, Hello, Offer};
use rpc_core::wire::{FrameHeader, FrameKind};

use farcall_suite::proto::probe_rpc::SERVICE;
use farcall_suite::proto::{EchoRequest, ProduceRequest};
use farcall_suite::raw_peer::{frame, record};

pub(super) const WHOLE: u8 = 1;
pub(super) const FIRST: u8 = 2;
pub(super) const NEXT: u8 = 3;

/// The flag of a request whose messages follow, at its place in a frame.
const FLAGS_AT: usize = 1;
const STREAMING: u8 = 1;

/// The id of no method.
pub(super) const NO_METHOD: u16 = u16::MAX;

/// The id of a method of the suite's service, which is the first of its server.
pub(super) fn method(name: &str) -> u16 {
    let index = SERVICE.methods.iter().position(|method| method.path.ends_with(name));
    index.and_then(|index| u16::try_from(index).ok()).unwrap_or(NO_METHOD)
}

/// The paths of the suite's service, as its server's Hello has them.
pub(super) fn methods() -> Vec<String> {
    SERVICE.methods.iter().map(|method| method.path.to_owned()).collect()
}

/// A frame with all its parts, in a record. The header's lengths are set here.
pub(super) fn whole(mut header: FrameHeader, block: &[u8], message: &[u8]) -> Vec<u8> {
    header.metadata_len = u32::try_from(block.len()).unwrap_or(u32::MAX);
    header.message_len = message.len() as u64;
    record(WHOLE, 0, &[&header.to_bytes()[..], block, message].concat())
}

/// A request of one message.
pub(super) fn request(call: u64, method: u16, message: &impl Message) -> Vec<u8> {
    record(WHOLE, 0, &frame(FrameKind::Request, call, method, &message.encode_to_vec()))
}

/// A small request of the method that answers with the same.
pub(super) fn echo(call: u64) -> Vec<u8> {
    request(call, method("/Echo"), &EchoRequest::default())
}

/// A request for an answer of that length.
pub(super) fn produce(call: u64, len: u64) -> Vec<u8> {
    request(call, method("/Produce"), &ProduceRequest { seed: call, len })
}

/// A request whose messages follow.
pub(super) fn streaming_request(call: u64, method: u16) -> Vec<u8> {
    let mut request = frame(FrameKind::Request, call, method, b"");
    request[FLAGS_AT] = STREAMING;
    record(WHOLE, 0, &request)
}

/// The first piece of a request of `len` bytes whose messages follow.
pub(super) fn begun_request(call: u64, method: u16, len: usize, piece: usize) -> Vec<u8> {
    let mut request = frame(FrameKind::Request, call, method, &vec![0; len]);
    request[FLAGS_AT] = STREAMING;
    first_piece(1, &request, piece)
}

/// The first `piece` bytes of a large frame.
pub(super) fn first_piece(transfer: u32, frame: &[u8], piece: usize) -> Vec<u8> {
    let len = (frame.len() as u64).to_le_bytes();
    record(FIRST, transfer, &[&len[..], &frame[..piece.min(frame.len())]].concat())
}

/// Messages of a stream, as they are given: each behind its length.
pub(super) fn messages(call: u64, seq: u64, block: &[u8], messages: &[u8]) -> Vec<u8> {
    let header = FrameHeader { argument: seq, ..FrameHeader::bare(FrameKind::Messages, call) };
    whole(header, block, messages)
}

/// A frame of the connection, or of a call, that has neither block nor message.
pub(super) fn bare(kind: FrameKind, call: u64, argument: u64) -> Vec<u8> {
    whole(FrameHeader { argument, ..FrameHeader::bare(kind, call) }, b"", b"")
}

/// The answer that no handler has seen the call, `UNAVAILABLE`.
pub(super) fn not_executed(call: u64) -> Vec<u8> {
    let unavailable = FrameHeader {
        is_not_executed: true,
        selector: 14,
        ..FrameHeader::bare(FrameKind::Response, call)
    };
    whole(unavailable, b"", b"")
}

/// The answer of a handler, an empty message.
pub(super) fn answered(call: u64) -> Vec<u8> {
    whole(FrameHeader::bare(FrameKind::Response, call), b"", b"")
}

/// A Hello of a client that offers upgraded paths.
pub(super) fn offering(offers: Vec<Offer>) -> Vec<u8> {
    let hello = Hello { offers, ..Hello::new(&Limits::default()) };
    hello::encode(&hello).unwrap_or_default()
}

/// A Hello of a server that answers offers as it likes.
pub(super) fn answering(accepted: Option<Offer>, declined: Vec<Declined>) -> Vec<u8> {
    let methods = methods();
    let hello = Hello { accepted, declined, methods, ..Hello::new(&Limits::default()) };
    hello::encode(&hello).unwrap_or_default()
}
