//! A request body that tonic's server code can read safely: a truncated body never looks complete.
//!
//! tonic turns two failures into a clean end: a body error with the code `CANCELLED`, which a
//! client causes by cancelling its call, and a body that stops right after a message's prefix.
//! hyper does the same for a stream that the client has reset with `NO_ERROR`. A handler would
//! treat the truncated requests as complete.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use rpc_core::memory::{MemoryCharge, MemoryShare};
use tonic::{Code, Status};
use tower::BoxError;

use super::framing::{Framing, Held, TooLong};
use super::limit::{Ending, Limit};

pin_project! {
    /// A request body that checks its frames as they pass.
    #[derive(Debug)]
    pub(super) struct RequestBody<B> {
        #[pin]
        body: B,
        framing: Framing,
        memory: MemoryShare,
        // The memory charged for the incomplete message.
        charge: MemoryCharge,
        ending: Ending,
        has_failed: bool,
    }
}

/// Length in bytes from which an incomplete message counts, as for farcall's own requests.
const COUNTED_LEN: u64 = 4 << 10;

impl<B> RequestBody<B> {
    /// Creates a body that holds its messages to `limit`.
    pub(super) fn new(body: B, limit: Limit) -> Self {
        let Limit { max_message_len, memory, ending } = limit;
        let (framing, charge) = (Framing::new(max_message_len), MemoryCharge::default());
        Self { body, framing, memory, charge, ending, has_failed: false }
    }
}

/// Charges a message from its prefix until a part of the body ends after it. Then tonic has the
/// message.
///
/// A compressed message also counts the maximum length until tonic asks for the next part of the
/// body: tonic inflates every message that has ended before that.
fn count(
    held: Held,
    framing: &Framing,
    memory: &MemoryShare,
    charge: &mut MemoryCharge,
) -> Result<(), Status> {
    let inflated = if held.may_inflate { framing.max_message_len() } else { 0 };
    let coming = if held.len >= COUNTED_LEN { held.len } else { 0 };
    let len = inflated.saturating_add(coming);
    if len == 0 {
        *charge = MemoryCharge::default();
    } else if len <= charge.len() {
        charge.set(len);
    } else {
        // Releases the old charge first. Holding both would count the message twice and could
        // refuse one that fits.
        *charge = MemoryCharge::default();
        *charge = memory.try_take(len)?;
    }
    Ok(())
}

impl<B> Body for RequestBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut this = self.project();
        if *this.has_failed {
            return Poll::Ready(None);
        }
        let checked = match ready!(this.body.as_mut().poll_frame(cx)) {
            // A reset with `NO_ERROR` ends an HTTP/2 body like END_STREAM does, and only
            // `is_end_stream` tells them apart. Without this arm, the handler would run on part of
            // the requests.
            None if *this.ending == Ending::Confirmed && !this.body.is_end_stream() => {
                Err(broken(Status::cancelled("its stream was reset")))
            }
            None if this.framing.is_between_messages() => return Poll::Ready(None),
            None => Err(Status::internal("the request's body ends inside a message")),
            Some(Err(error)) => Err(broken(Status::from_error(error.into()))),
            Some(Ok(frame)) => {
                let frame = frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
                let data = frame.data_ref().map_or(&[][..], |data| data);
                let held = this.framing.push(data).map_err(too_long);
                let counted =
                    held.and_then(|held| count(held, this.framing, this.memory, this.charge));
                counted.map(|()| frame)
            }
        };
        *this.has_failed = checked.is_err();
        Poll::Ready(Some(checked))
    }

    fn is_end_stream(&self) -> bool {
        // A body that ended inside a message still has an error to yield.
        self.has_failed || (self.body.is_end_stream() && self.framing.is_between_messages())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the status of a body that failed.
fn broken(status: Status) -> Status {
    if status.code() != Code::Cancelled {
        return status;
    }
    // The same status as for a farcall client that cancels its call mid-request.
    Status::aborted(format!("the client cancelled the call: {}", status.message()))
}

/// Replaces the status of a message that tonic refused to inflate: tonic's own names no setting.
pub(super) fn named(status: Status, max_message_len: u64) -> Status {
    if status.code() != Code::ResourceExhausted || !status.message().starts_with(INFLATE_REFUSAL) {
        return status;
    }
    Status::resource_exhausted(format!(
        "the request's message, inflated, is over the server's limit of {max_message_len} bytes \
         (limits.max_message_len)"
    ))
}

/// Prefix of tonic's message when it stops inflating.
const INFLATE_REFUSAL: &str = "Error decompressing: size limit";

fn too_long(TooLong { len, max }: TooLong) -> Status {
    Status::resource_exhausted(format!(
        "the request's message of {len} bytes is over the server's limit of {max} \
         (limits.max_message_len)"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use futures::FutureExt;
    use tonic::Streaming;

    use http::Version;

    use super::*;
    use crate::raw::{Raw, RawCodec};

    /// A body of these pieces. `confirms_end` is its `is_end_stream` after the last one.
    struct Script {
        pieces: VecDeque<Result<&'static [u8], Status>>,
        confirms_end: bool,
    }

    impl Body for Script {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            let next = self.pieces.pop_front();
            Poll::Ready(next.map(|next| Ok(Frame::data(Bytes::from_static(next?)))))
        }

        fn is_end_stream(&self) -> bool {
            self.confirms_end && self.pieces.is_empty()
        }
    }

    /// Returns the messages and the end that tonic reads from these pieces.
    fn read(pieces: impl IntoIterator<Item = Result<&'static [u8], Status>>) -> Vec<String> {
        let script = Script { pieces: pieces.into_iter().collect(), confirms_end: true };
        read_script(script, Limit::for_port(100, MemoryShare::default(), Version::HTTP_2))
    }

    fn read_script(script: Script, limit: Limit) -> Vec<String> {
        let body = RequestBody::new(script, limit);
        let mut messages = Streaming::new_request(RawCodec, body, None, None);
        let mut read = Vec::new();
        loop {
            match messages.message().now_or_never().expect("nothing is waited for") {
                Ok(Some(Raw(message))) => read.push(format!("{message:?}")),
                Ok(None) => break read.push("end".into()),
                Err(status) => break read.push(status.message().to_owned()),
            }
        }
        read
    }

    const MESSAGE: &[u8] = b"\0\0\0\0\x02hi";

    #[test]
    fn a_complete_body_is_read_to_its_end() {
        assert_eq!(read([Ok(MESSAGE), Ok(MESSAGE)]), [r#"b"hi""#, r#"b"hi""#, "end"]);
        assert_eq!(read([]), ["end"]);
    }

    #[test]
    fn a_cancelled_body_is_an_error() {
        let read = read([Ok(MESSAGE), Err(Status::cancelled("reset"))]);
        assert_eq!(read, [r#"b"hi""#, "the client cancelled the call: reset"]);
    }

    #[test]
    fn an_unconfirmed_end_at_the_port_is_an_error() {
        let read = |limit| {
            let script = Script { pieces: [Ok(MESSAGE)].into(), confirms_end: false };
            read_script(script, limit)
        };
        let at_port = read(Limit::for_port(100, MemoryShare::default(), Version::HTTP_2));
        let expected = "the client cancelled the call: its stream was reset";
        assert_eq!(at_port, [r#"b"hi""#, expected]);
        assert_eq!(read(Limit::for_process(100)), [r#"b"hi""#, "end"]);
    }

    /// tonic alone takes an end after the first five bytes for a clean one.
    #[test]
    fn a_body_that_ends_inside_a_message_is_an_error() {
        for cut in 1..MESSAGE.len() {
            let read = read([Ok(MESSAGE), Ok(&MESSAGE[..cut])]);
            let expected = ["the request's body ends inside a message"];
            assert_eq!(read[1..], expected, "{cut} bytes");
        }
    }

    #[test]
    fn an_oversized_message_is_refused_at_its_prefix() {
        let read = read([Ok(&b"\0\0\0\0\x65"[..])]);
        assert!(read[0].contains("101 bytes") && read[0].contains("max_message_len"), "{read:?}");
    }
}
