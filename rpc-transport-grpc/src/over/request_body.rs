//! A client's body as tonic's server code may read it: one that broke never looks like one that
//! ended.
//!
//! tonic makes an orderly end of a request body's error whose code is `CANCELLED`, which is what a
//! client that gives up its call causes, and of a body that stops right behind the prefix of a
//! message. hyper makes one of a stream that its client has reset with `NO_ERROR`. A handler would
//! take what it has for all that there is.

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
    /// A request's body, checked as it passes.
    #[derive(Debug)]
    pub(super) struct RequestBody<B> {
        #[pin]
        body: B,
        framing: Framing,
        memory: MemoryShare,
        // What the message counts of which a part has come.
        charge: MemoryCharge,
        ending: Ending,
        has_failed: bool,
    }
}

/// From which length on a message counts while it comes, in bytes, as for farcall's own requests.
const COUNTED_LEN: u64 = 4 << 10;

impl<B> RequestBody<B> {
    /// A body whose messages are held to `limit`.
    pub(super) fn new(body: B, limit: Limit) -> Self {
        let Limit { max_message_len, memory, ending } = limit;
        let (framing, charge) = (Framing::new(max_message_len), MemoryCharge::default());
        Self { body, framing, memory, charge, ending, has_failed: false }
    }
}

/// Counts a message from its prefix on, until a part of the body ends behind it: then tonic has it.
/// One that is compressed counts the longest message besides, until the next part of the body is
/// asked for: tonic inflates all that has ended before that.
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
        // The old charge goes first: with both, the message would count twice, and one that fits
        // could be refused.
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
        // One that ends inside a message still has an error to give.
        self.has_failed || (self.body.is_end_stream() && self.framing.is_between_messages())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The status of a body that broke off.
fn broken(status: Status) -> Status {
    if status.code() != Code::Cancelled {
        return status;
    }
    // The same as the requests of a farcall client that gives up its call.
    Status::aborted(format!("the client has given up the call: {}", status.message()))
}

/// The status of a request's message that tonic did not take. tonic names no setting where it
/// stops to inflate.
pub(super) fn named(status: Status, max_message_len: u64) -> Status {
    if status.code() != Code::ResourceExhausted || !status.message().starts_with(TONICS_WORDS) {
        return status;
    }
    Status::resource_exhausted(format!(
        "the request's message, inflated, is over the server's limit of {max_message_len} bytes \
         (limits.max_message_len)"
    ))
}

/// How tonic's words begin when it stops to inflate a message.
const TONICS_WORDS: &str = "Error decompressing: size limit";

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

    /// A body of these pieces. `confirms_end` is what it says of its end once they are read.
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

    /// What tonic reads of a body that comes so.
    fn read(pieces: impl IntoIterator<Item = Result<&'static [u8], Status>>) -> Vec<String> {
        let script = Script { pieces: pieces.into_iter().collect(), confirms_end: true };
        read_script(script, Limit::of_port(100, MemoryShare::default(), Version::HTTP_2))
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
    fn a_body_that_ends_is_read_to_its_end() {
        assert_eq!(read([Ok(MESSAGE), Ok(MESSAGE)]), [r#"b"hi""#, r#"b"hi""#, "end"]);
        assert_eq!(read([]), ["end"]);
    }

    #[test]
    fn a_cancelled_body_is_an_error() {
        let read = read([Ok(MESSAGE), Err(Status::cancelled("reset"))]);
        assert_eq!(read, [r#"b"hi""#, "the client has given up the call: reset"]);
    }

    #[test]
    fn a_body_at_the_port_whose_end_is_not_confirmed_is_an_error() {
        let read = |limit| {
            let script = Script { pieces: [Ok(MESSAGE)].into(), confirms_end: false };
            read_script(script, limit)
        };
        let at_port = read(Limit::of_port(100, MemoryShare::default(), Version::HTTP_2));
        let words = "the client has given up the call: its stream was reset";
        assert_eq!(at_port, [r#"b"hi""#, words]);
        assert_eq!(read(Limit::of_process(100)), [r#"b"hi""#, "end"]);
    }

    /// tonic alone reads an end behind the first five bytes.
    #[test]
    fn a_body_that_stops_inside_a_message_is_an_error() {
        for cut in 1..MESSAGE.len() {
            let read = read([Ok(MESSAGE), Ok(&MESSAGE[..cut])]);
            let words = ["the request's body ends inside a message"];
            assert_eq!(read[1..], words, "{cut} bytes");
        }
    }

    #[test]
    fn a_message_over_the_limit_is_refused_by_its_prefix() {
        let read = read([Ok(&b"\0\0\0\0\x65"[..])]);
        assert!(read[0].contains("101 bytes") && read[0].contains("max_message_len"), "{read:?}");
    }
}
