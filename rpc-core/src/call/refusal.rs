//! The statuses with which the runtime itself ends calls. Each names the limit and its setting.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use prost::DecodeError;
use tonic::Status;

use crate::Limits;
use crate::call::execution::ended_by;
use crate::calls::receiving::OverBudget;
use crate::calls::window::MESSAGE_LEN_MAX;
use crate::deadline::rounded;
use crate::payload::encode::NESTING_MAX;
use crate::payload::tail_field::Detacher;
use crate::transport::{CloseReason, TransportError, Withheld};
use crate::wire::messages::{MESSAGES_EXTRA, message_lens};
use crate::wire::{FrameHeader, FrameKind, ProtocolError};

/// Checks a message's length against the limits of the side that `whose` names.
#[inline]
pub(crate) fn check_message(
    what: &str,
    len: u64,
    whose: &str,
    limits: &Limits,
) -> Result<(), Status> {
    let max = limits.max_message_len;
    if len <= max { Ok(()) } else { Err(message_over(what, len, whose, max)) }
}

#[cold]
fn message_over(what: &str, len: u64, whose: &str, max: u64) -> Status {
    Status::resource_exhausted(format!(
        "the {what}'s message of {len} bytes is over the {whose} limit of {max} \
         (limits.max_message_len)"
    ))
}

/// Refuses a message that nests too deep to be encoded.
#[inline]
pub(crate) fn check_nesting<M: Any>(
    what: &str,
    message: &M,
    detacher: Option<Detacher>,
) -> Result<(), Status> {
    match detacher {
        Some(detacher) if detacher.nests_too_deep(message) => Err(nests_too_deep(what)),
        _ => Ok(()),
    }
}

#[cold]
fn nests_too_deep(what: &str) -> Status {
    Status::resource_exhausted(format!(
        "the {what}'s message nests deeper than {NESTING_MAX} messages, the limit of decoders"
    ))
}

/// A message of a request or a response, as `what` says, that does not decode.
#[cold]
pub(crate) fn undecodable(what: &str, error: &DecodeError) -> Status {
    let text = error.to_string();
    if text.ends_with(RECURSION_LIMIT) {
        return nests_too_deep(what);
    }
    Status::internal(format!("the {what}'s message does not decode: {}", shortened(&text)))
}

/// The end of prost's text about a message that nests deeper than its limit.
const RECURSION_LIMIT: &str = "recursion limit reached";

/// Parts of prost's text that are kept at either end. It names each message around the fault.
const DECODE_PARTS_KEPT: usize = 4;

fn shortened(text: &str) -> Cow<'_, str> {
    let parts: Vec<&str> = text.split(": ").collect();
    let (kept, len) = (DECODE_PARTS_KEPT, parts.len());
    if len <= 2 * kept + 1 {
        return text.into();
    }
    let (head, tail) = (parts[..kept].join(": "), parts[len - kept..].join(": "));
    format!("{head}: ({} more): {tail}", len - 2 * kept).into()
}

/// Checks the length that a compressed message of the method at `path` says it inflates to, against
/// the limit of this side.
pub(crate) fn check_inflated(what: &str, path: &str, len: u64, max: u64) -> Result<(), Status> {
    if len <= max {
        return Ok(());
    }
    let whose = if what == "request" { "server's" } else { "client's" };
    Err(Status::resource_exhausted(format!(
        "the {what}'s message of {path} inflates to {len} bytes, over the {whose} limit of {max} \
         (limits.max_message_len)"
    )))
}

/// Checks the length of a message of a stream, which a window has to be able to count too.
pub(crate) fn check_stream_message(
    what: &str,
    len: u64,
    whose: &str,
    limits: &Limits,
) -> Result<(), Status> {
    check_message(what, len, whose, limits)?;
    if len <= MESSAGE_LEN_MAX {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!(
        "the {what}'s message of {len} bytes is over the {MESSAGE_LEN_MAX} that one message of a \
         stream may have; messages of unary calls may be longer"
    )))
}

/// Checks the length of metadata, and gives it as the header holds it.
#[inline]
pub(crate) fn check_metadata(
    what: &str,
    len: usize,
    whose: &str,
    limits: &Limits,
) -> Result<u32, Status> {
    let max = limits.max_metadata_len;
    match u32::try_from(len) {
        Ok(len) if len <= max => Ok(len),
        _ => Err(metadata_over(what, len, whose, max)),
    }
}

#[cold]
fn metadata_over(what: &str, len: usize, whose: &str, max: u32) -> Status {
    Status::resource_exhausted(format!(
        "the {what}'s metadata of {len} bytes is over the {whose} limit of {max} \
         (limits.max_metadata_len)"
    ))
}

/// Checks what a frame's header says against our own limits.
#[inline(always)]
pub(crate) fn check_incoming(
    what: &str,
    header: &FrameHeader,
    whose: &str,
    limits: &Limits,
) -> Result<(), Status> {
    // A frame of a stream holds a message with its length, or short ones up to a bound. Their own
    // lengths are known when the frame has come: `check_messages`.
    match header.kind {
        FrameKind::Messages => {
            let len = header.message_len.saturating_sub(MESSAGES_EXTRA);
            check_stream_message(what, len, whose, limits)?;
        }
        FrameKind::Request
        | FrameKind::Response
        | FrameKind::Cancel
        | FrameKind::Headers
        | FrameKind::HalfClose
        | FrameKind::Window
        | FrameKind::Ping
        | FrameKind::Pong
        | FrameKind::GoAway => check_message(what, header.message_len, whose, limits)?,
    }
    check_metadata(what, header.metadata_len as usize, whose, limits).map(drop)
}

/// Checks each message of a frame that has come against our own limits. A frame that is not whole
/// is not refused here: it violates the protocol, which is told where its messages are counted.
pub(crate) fn check_messages(
    what: &str,
    frame: &[u8],
    whose: &str,
    limits: &Limits,
) -> Result<(), Status> {
    // Most frames are shorter than one message may be.
    if frame.len() as u64 <= limits.max_message_len {
        return Ok(());
    }
    let mut lens = message_lens(frame).flatten();
    lens.try_for_each(|len| check_message(what, len as u64, whose, limits))
}

/// A large message that does not fit beside those already on their way.
pub(crate) fn over_budget(what: &str, len: u64, whose: &str, over: OverBudget) -> Status {
    let OverBudget { bytes, bytes_max } = over;
    Status::resource_exhausted(format!(
        "the {what} of {len} bytes does not fit next to the {bytes} bytes in flight: the {whose} \
         limit is {bytes_max} (limits.max_receiving_bytes)"
    ))
}

/// A server's call on a connection that has ended.
pub(crate) fn closed(reason: &CloseReason) -> Status {
    ended_by(Status::unavailable(format!("the connection is closed: {reason}")), reason)
}

/// A call of a method that the server did not name in its Hello.
pub(crate) fn no_such_method(server: &str, path: &str) -> Status {
    Status::unimplemented(format!("the server at {server} has no method {path}"))
}

/// The descriptions of requests for [`other_kind`].
pub(crate) const SENT_STREAM: &str = "the client sent a stream, but the method takes one message";
pub(crate) const SENT_MESSAGE: &str = "the client sent one message, but the method takes a stream";

/// A call of a method that is of another kind on the other side, which is this call's affair.
pub(crate) fn other_kind(what: &str) -> Status {
    Status::internal(format!("{what}: client and server have different editions of the .proto"))
}

/// A call by a path alone, to a server whose Hello does not say which sides of it are streams.
pub(crate) fn kind_unknown(server: &str, path: &str) -> Status {
    Status::unimplemented(format!(
        "the server at {server} is too old to say whether {path} has streams: call it through a \
         generated stub, not a gRPC client"
    ))
}

/// A call whose requests are one message, and whose caller sent another number: `UNIMPLEMENTED`, as
/// gRPC's list of codes has it, since the sides have different methods.
pub(crate) fn not_one_message(path: &str, what: &str) -> Status {
    Status::unimplemented(format!("{path} takes one message, but the request has {what}"))
}

/// The requests of a call whose connection ended before they did. The source is the `io::Error` by
/// which tonic's handlers know a client that is gone, unless this side closed the connection.
pub(crate) fn requests_cut_short(reason: &CloseReason) -> Status {
    let mut status = closed(reason);
    if !matches!(reason, CloseReason::Local) {
        let gone = io::Error::new(io::ErrorKind::BrokenPipe, reason.clone());
        status.set_source(Arc::new(gone));
    }
    status
}

/// A call that arrived after the server had sent its client away.
pub(crate) fn going_away() -> Status {
    Status::unavailable("the server is shutting down, or the connection is old or idle")
}

/// A call on a connection that another has taken the place of.
pub(crate) fn retired() -> Status {
    Status::unavailable("another connection replaced this one")
}

/// A client's call on a connection to `server` that has ended.
pub(crate) fn lost(server: &str, reason: &CloseReason) -> Status {
    ended_by(Status::unavailable(format!("the connection to {server} has ended: {reason}")), reason)
}

/// A call that the server's end of a connection cut short, although it was in flight.
pub(crate) fn cut_short(server: &str, reason: &CloseReason) -> Status {
    let status = Status::unavailable(format!(
        "the connection to {server} has ended: {reason}; the server was draining, and the call \
         outlasted its grace period (server.drain_timeout, server.max_connection_age_grace)"
    ));
    ended_by(status, reason)
}

/// The requests of a call that its client has given up. Not a cancel: tonic's `Streaming` makes an
/// orderly end of one, and a reader must not take what there is for all.
pub(crate) fn given_up() -> Status {
    Status::aborted("the client cancelled the call")
}

/// The requests of a call that has its answer.
pub(crate) fn answered() -> Status {
    Status::aborted("the call has ended: its response was sent")
}

/// A call that waited for a connection until its time was over; `whose` names what set the limit.
pub(crate) fn not_connected_in_time(
    timeout: Duration,
    whose: &str,
    error: &dyn fmt::Display,
) -> Status {
    let timeout = rounded(timeout);
    Status::deadline_exceeded(format!(
        "the call had no connection within {timeout:?} ({whose}): {error}"
    ))
}

/// A call that took longer than it may; `whose` names what set the limit.
pub(crate) fn over_time(timeout: Duration, whose: &str) -> Status {
    if timeout.is_zero() {
        return Status::deadline_exceeded(format!(
            "the call's time was up before it began \
                                                  ({whose})"
        ));
    }
    let timeout = rounded(timeout);
    Status::deadline_exceeded(format!("the call did not end within {timeout:?} ({whose})"))
}

/// A call whose deadline has passed, where no more is known of it.
pub(crate) fn deadline_exceeded() -> Status {
    Status::deadline_exceeded("the call's deadline has passed")
}

/// A call whose large request was not received in the time that the client gave it.
pub(crate) fn not_received_in_time(timeout: Duration) -> Status {
    let timeout = rounded(timeout);
    Status::deadline_exceeded(format!(
        "the server did not receive the request within {timeout:?} (the client's deadline)"
    ))
}

/// A call whose large message was admitted and then not received.
pub(crate) fn withheld(reason: Withheld) -> Status {
    match reason {
        Withheld::Expired => deadline_exceeded(),
        Withheld::GivenUp => Status::cancelled("the sender cancelled a large message"),
        Withheld::NoMemory(reason) => Status::resource_exhausted(reason),
    }
}

/// A call whose metadata does not become a block.
pub(crate) fn unencodable(what: &str, error: &ProtocolError) -> Status {
    match error {
        ProtocolError::TooLong { .. } => Status::resource_exhausted(error.to_string()),
        // gRPC's servers answer with this code to metadata that they cannot read.
        _ => Status::internal(format!("the {what}'s {error}")),
    }
}

/// A frame that could not be sent.
pub(crate) fn unsendable(error: &TransportError) -> Status {
    match error {
        TransportError::Closed { reason } => closed(reason),
        other => Status::resource_exhausted(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_beyond_4_gib_are_kept_and_streams_have_their_own() {
        let limits = Limits { max_message_len: 6 << 30, ..Limits::default() };
        let whose = "server's";
        assert!(check_message("request", 5 << 30, whose, &limits).is_ok());
        let over = check_message("request", 7 << 30, whose, &limits).unwrap_err();
        assert!(over.message().contains("limit of 6442450944"), "{over}");
        assert!(check_stream_message("request", 1 << 30, whose, &limits).is_ok());
        let long = check_stream_message("request", 5 << 30, whose, &limits).unwrap_err();
        assert_eq!(long.code(), tonic::Code::ResourceExhausted);
        assert!(long.message().contains("5368709120 bytes"), "{long}");
    }

    #[test]
    fn decode_errors_name_both_ends_of_a_long_path() {
        let path = |len: usize| "Node.next: ".repeat(len);
        let short = format!("failed to decode: {}invalid varint", path(7));
        assert_eq!(shortened(&short), short);
        let long = format!("failed to decode: Tree.root: {}Leaf.text: invalid varint", path(90));
        let expected = "failed to decode: Tree.root: Node.next: Node.next: (86 more): Node.next: \
                        Node.next: Leaf.text: invalid varint";
        assert_eq!(shortened(&long), expected);
    }

    #[test]
    fn each_message_of_a_frame_is_held_to_the_limit() {
        let frame = |lens: &[usize]| -> Vec<u8> {
            let framed = |len: &usize| {
                let prefix = u32::try_from(*len).unwrap();
                [&prefix.to_le_bytes()[..], &vec![7; *len]].concat()
            };
            lens.iter().flat_map(framed).collect()
        };
        for max in [0, 1, 1_024, 20_000, 33_000] {
            let limits = Limits { max_message_len: max as u64, ..Limits::default() };
            let check =
                |lens: &[usize]| check_messages("request", &frame(lens), "server's", &limits);
            assert!(check(&[max, 0, max, max]).is_ok(), "{max}");
            let over = check(&[max, max + 1, max]).unwrap_err();
            assert_eq!(over.code(), tonic::Code::ResourceExhausted);
            assert!(over.message().contains(&format!("message of {} bytes", max + 1)), "{over}");
        }
    }

    #[test]
    fn an_incomplete_frame_is_left_to_the_message_counter() {
        let limits = Limits { max_message_len: 1, ..Limits::default() };
        assert!(check_messages("request", &[9, 0, 0, 0, 1], "server's", &limits).is_ok());
    }
}
