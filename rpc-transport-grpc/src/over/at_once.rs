//! A request of one message that comes whole, as most requests of unary calls do.
//!
//! Such a call needs no stream of requests. Every other request goes the way of streams, as if
//! nothing of it had been read: one that is compressed, comes in parts, breaks off, or has no
//! message or several.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tonic::{Code, Status};
use tower::BoxError;

use super::early::Waiting;
use super::request_body::RequestBody;

/// The prefix of a message: the compressed flag and the length.
const PREFIX_LEN: usize = 5;

/// How many parts of a body are read ahead: the message, and what stands in the place of the end.
const READ_MAX: usize = 2;

type Part = Result<Frame<Bytes>, Status>;

/// A body of which the first parts are read ahead. As a body it begins with its first part.
pub(super) struct ReadAhead<B> {
    read: [Option<Part>; READ_MAX],
    read_count: usize,
    /// Whether the end has been read.
    is_over: bool,
    body: RequestBody<B>,
    /// Present while more is waited for, where that is limited.
    waiting: Option<Waiting>,
}

impl<B> ReadAhead<B>
where
    B: Body<Error: Into<BoxError>> + Unpin,
{
    pub(super) fn new(body: RequestBody<B>) -> Self {
        Self {
            read: [const { None }; READ_MAX],
            read_count: 0,
            is_over: false,
            body,
            waiting: None,
        }
    }

    /// Reads what is there, and waits for nothing. Returns true if the body has come to its end.
    pub(super) async fn read_at_once(&mut self) -> bool {
        poll_fn(|cx| {
            let _ = self.poll_enough(cx);
            Poll::Ready(self.is_over)
        })
        .await
    }

    /// Limits the wait for the rest of the body.
    pub(super) fn set_waiting(&mut self, waiting: Waiting) {
        self.waiting = Some(waiting);
    }

    /// Waits for enough, or for the end of the wait.
    pub(super) async fn wait(&mut self) {
        poll_fn(|cx| self.poll_enough(cx)).await;
    }

    /// The one message, without its prefix, if the whole body is one that is not compressed.
    pub(super) fn sole_message(&self) -> Option<Bytes> {
        let [Some(Ok(part)), None] = &self.read else { return None };
        let part = part.data_ref().filter(|part| self.is_over && is_message(part))?;
        let mut message = part.clone();
        message.advance(PREFIX_LEN);
        Some(message)
    }

    /// The error that the body has broken off with, if it has and is not yet read.
    pub(super) fn error(&self) -> Option<&Status> {
        self.read.iter().flatten().find_map(|part| part.as_ref().err())
    }

    /// Reads until it is known whether the body is one message.
    fn poll_enough(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_over && self.read_count < READ_MAX {
            match ready!(self.poll_part(cx)) {
                None => self.is_over = true,
                // HTTP/2 may end a body by one.
                Some(Ok(part)) if part.data_ref().is_some_and(Bytes::is_empty) => {}
                Some(part) => {
                    // Nothing follows an error.
                    self.is_over |= part.is_err();
                    self.read[self.read_count] = Some(part);
                    self.read_count += 1;
                }
            }
        }
        Poll::Ready(())
    }
}

impl<B> ReadAhead<B>
where
    B: Body<Error: Into<BoxError>> + Unpin,
{
    /// Reads the next part, within the limit on the wait.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        let Poll::Ready(part) = Pin::new(&mut self.body).poll_frame(cx) else {
            let Some(waiting) = &mut self.waiting else { return Poll::Pending };
            let status = ready!(waiting.poll_late(cx));
            if let Some(waiting) = self.waiting.take() {
                waiting.fail(&status);
            }
            return Poll::Ready(Some(Err(status)));
        };
        match &part {
            Some(Ok(_)) => {
                if let Some(waiting) = &mut self.waiting {
                    waiting.restart();
                }
            }
            // The call takes a permit of its own, if there is one.
            None => {
                if let Some(waiting) = self.waiting.take() {
                    waiting.complete();
                }
            }
            Some(Err(status)) => {
                let waiting = self.waiting.take();
                // One that its client has given up has no status.
                if let Some(waiting) = waiting.filter(|_| status.code() != Code::Aborted) {
                    waiting.fail(status);
                }
            }
        }
        Poll::Ready(part)
    }
}

/// Whether a part of a body is one whole message that is not compressed.
fn is_message(part: &[u8]) -> bool {
    let Some(([flag, len @ ..], message)) = part.split_first_chunk::<PREFIX_LEN>() else {
        return false;
    };
    *flag == 0 && u32::from_be_bytes(*len) as usize == message.len()
}

impl<B> Body for ReadAhead<B>
where
    B: Body<Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        match self.read.iter_mut().find_map(Option::take) {
            Some(part) => Poll::Ready(Some(part)),
            None if self.is_over => Poll::Ready(None),
            None => self.poll_part(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        let has_none = self.read.iter().all(Option::is_none);
        has_none && (self.is_over || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::time::Duration;

    use futures::{FutureExt, StreamExt};
    use http_body_util::BodyExt;
    use rpc_core::{CallKind, Detach, Idempotency, MethodDescriptor};
    use tokio::time::Instant;

    use super::super::early::Early;
    use super::super::limit::Limit;
    use super::*;

    /// A body of these parts, in the place of `None` of which it lets its reader wait once.
    struct Script(VecDeque<Option<&'static [u8]>>);

    impl Body for Script {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                Some(Some(part)) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(part))))),
                Some(None) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                None => Poll::Ready(None),
            }
        }
    }

    fn ahead(parts: &[Option<&'static [u8]>]) -> ReadAhead<Script> {
        let script = Script(parts.iter().copied().collect());
        ReadAhead::new(RequestBody::new(script, Limit::of_process(100)))
    }

    const MESSAGE: &[u8] = b"\0\0\0\0\x02hi";

    #[tokio::test]
    async fn one_message_is_taken_when_it_has_come_whole() {
        for parts in [&[Some(MESSAGE)][..], &[Some(MESSAGE), Some(b"")]] {
            let mut ahead = ahead(parts);
            assert!(ahead.read_at_once().await);
            assert_eq!(ahead.sole_message().unwrap(), "hi");
        }
    }

    #[tokio::test]
    async fn one_message_is_waited_for() {
        for parts in [&[None, Some(MESSAGE)][..], &[Some(MESSAGE), None, None, Some(b"")]] {
            let mut ahead = ahead(parts);
            assert!(!ahead.read_at_once().await);
            assert_eq!(ahead.sole_message(), None, "the body may go on");
            ahead.wait().await;
            assert_eq!(ahead.sole_message().unwrap(), "hi");
        }
    }

    static METHOD: MethodDescriptor = MethodDescriptor {
        path: "/t.T/M",
        kind: CallKind::Unary,
        idempotency: Idempotency::Unknown,
        detach: Detach::NONE,
    };

    #[tokio::test(start_paused = true)]
    async fn each_part_of_a_message_is_waited_for() {
        let began = Instant::now();
        let silent = futures::stream::iter(0..3).then(|_| async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"\0")))
        });
        let silent = silent.chain(futures::stream::pending()).boxed();
        let silent = http_body_util::StreamBody::new(silent);
        let mut ahead = ReadAhead::new(RequestBody::new(silent, Limit::of_process(100)));
        let early = Early::of_tests(Duration::from_secs(5));
        ahead.set_waiting(early.admit(&METHOD, None).unwrap());
        let mut parts = 0;
        let late = loop {
            match ahead.frame().await.unwrap() {
                Ok(_) => parts += 1,
                Err(late) => break late,
            }
        };
        assert_eq!((parts, began.elapsed()), (3, Duration::from_secs(17)));
        assert!(late.message().contains("handshake_timeout"), "{late}");
    }

    #[tokio::test]
    async fn every_other_body_is_as_if_nothing_of_it_had_been_read() {
        let others: [&[Option<&'static [u8]>]; 7] = [
            &[],
            &[Some(MESSAGE), Some(MESSAGE)],
            &[Some(b"\0\0\0\0\x02hi\0\0\0\0\0")],
            &[Some(b"\0\0\0"), Some(b"\0\x02hi")],
            &[Some(MESSAGE), None, Some(MESSAGE), Some(MESSAGE)],
            &[Some(b"\x01\0\0\0\x02hi")],
            // One that breaks off.
            &[Some(MESSAGE), Some(b"\0\0")],
        ];
        for parts in others {
            let mut ahead = ahead(parts);
            let is_over = ahead.read_at_once().await;
            assert_eq!(ahead.sole_message(), None, "{parts:?}");
            if !is_over {
                ahead.wait().await;
                assert_eq!(ahead.sole_message(), None, "{parts:?}");
            }
            let mut read = Vec::new();
            let end = loop {
                match ahead.frame().now_or_never().expect("nothing is waited for") {
                    Some(Ok(part)) => read.extend_from_slice(&part.into_data().unwrap()),
                    Some(Err(status)) => break Err(status.message().to_owned()),
                    None => break Ok(()),
                }
            };
            assert_eq!(read, parts.iter().flatten().copied().collect::<Vec<_>>().concat());
            let breaks_off = parts.last() == Some(&Some(b"\0\0"));
            assert_eq!(end.is_err(), breaks_off, "{parts:?}");
        }
    }
}
