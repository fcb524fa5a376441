//! Requests of one message that arrives whole, the common case for unary calls.
//!
//! Such a call needs no request stream. Every other request takes the streaming path as if nothing
//! had been read: a compressed body, one that arrives in parts or fails, and one with no message or
//! several.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tonic::{Code, Status};
use tower::BoxError;

use super::early::Waiting;
use super::request_body::RequestBody;

/// Length of a message's prefix: the compressed flag and the length.
const PREFIX_LEN: usize = 5;

/// Maximum number of parts read ahead: the message, and one more to see the end.
const READ_MAX: usize = 2;

type Part = Result<Frame<Bytes>, Status>;

/// A body that reads its first parts ahead. As a `Body` it yields those parts first.
pub(super) struct ReadAhead<B> {
    read: [Option<Part>; READ_MAX],
    read_count: usize,
    /// True once the body has ended.
    is_over: bool,
    body: RequestBody<B>,
    /// The limit on the wait for the rest of the body, if there is one.
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

    /// Reads the parts that are ready, without waiting. Returns true if the body has ended.
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

    /// Waits until the first parts are read, the body ends, or the wait exceeds its limit.
    pub(super) async fn wait(&mut self) {
        poll_fn(|cx| self.poll_enough(cx)).await;
    }

    /// Returns the message without its prefix if the body is one uncompressed message.
    pub(super) fn sole_message(&self) -> Option<Bytes> {
        let [Some(Ok(part)), None] = &self.read else { return None };
        let part = part.data_ref().filter(|part| self.is_over && is_message(part))?;
        let mut message = part.clone();
        message.advance(PREFIX_LEN);
        Some(message)
    }

    /// Returns the error of the body if it failed and the error is still unread.
    pub(super) fn error(&self) -> Option<&Status> {
        self.read.iter().flatten().find_map(|part| part.as_ref().err())
    }

    /// Reads until it can tell if the body is a single message.
    fn poll_enough(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_over && self.read_count < READ_MAX {
            match ready!(self.poll_part(cx)) {
                None => self.is_over = true,
                // An HTTP/2 peer may end a body with an empty DATA frame. Counting it as a part
                // would push every such unary call onto the streaming path.
                Some(Ok(part)) if part.data_ref().is_some_and(Bytes::is_empty) => {}
                Some(part) => {
                    // A body yields nothing after its error.
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
            // The body is still pending. Only the limit can end the wait now.
            let status = ready!(waiting.poll_late(cx));
            if let Some(waiting) = self.waiting.take() {
                waiting.fail(&status);
            }
            return Poll::Ready(Some(Err(status)));
        };
        match &part {
            // Each part restarts the time for the next one. A slow client keeps its call as long as
            // it makes progress.
            Some(Ok(_)) => {
                if let Some(waiting) = &mut self.waiting {
                    waiting.restart();
                }
            }
            // Releases the early permit first: the call itself takes another one, if there is one.
            None => {
                if let Some(waiting) = self.waiting.take() {
                    waiting.complete();
                }
            }
            Some(Err(status)) => {
                let waiting = self.waiting.take();
                // A client that cancelled its call gets no status, so there is none to log.
                if let Some(waiting) = waiting.filter(|_| status.code() != Code::Aborted) {
                    waiting.fail(status);
                }
            }
        }
        Poll::Ready(part)
    }
}

/// Returns true if `part` is one whole, uncompressed message.
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
    use rpc_core::{CallKind, Idempotency, MethodDescriptor};
    use tokio::time::Instant;

    use super::super::early::Early;
    use super::super::limit::Limit;
    use super::*;

    /// A body with these parts. At each `None` it makes its reader wait once.
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
        ReadAhead::new(RequestBody::new(script, Limit::for_process(100)))
    }

    const MESSAGE: &[u8] = b"\0\0\0\0\x02hi";

    #[tokio::test]
    async fn a_whole_message_is_taken_at_once() {
        for parts in [&[Some(MESSAGE)][..], &[Some(MESSAGE), Some(b"")]] {
            let mut ahead = ahead(parts);
            assert!(ahead.read_at_once().await);
            assert_eq!(ahead.sole_message().unwrap(), "hi");
        }
    }

    #[tokio::test]
    async fn a_partial_message_is_awaited() {
        for parts in [&[None, Some(MESSAGE)][..], &[Some(MESSAGE), None, None, Some(b"")]] {
            let mut ahead = ahead(parts);
            assert!(!ahead.read_at_once().await);
            assert_eq!(ahead.sole_message(), None, "the body may go on");
            ahead.wait().await;
            assert_eq!(ahead.sole_message().unwrap(), "hi");
        }
    }

    static METHOD: MethodDescriptor =
        MethodDescriptor::new("/t.T/M", CallKind::Unary, Idempotency::Unknown);

    #[tokio::test(start_paused = true)]
    async fn each_part_restarts_the_wait() {
        let began = Instant::now();
        let silent = futures::stream::iter(0..3).then(|_| async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"\0")))
        });
        let silent = silent.chain(futures::stream::pending()).boxed();
        let silent = http_body_util::StreamBody::new(silent);
        let mut ahead = ReadAhead::new(RequestBody::new(silent, Limit::for_process(100)));
        let early = Early::for_tests(Duration::from_secs(5));
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
    async fn other_bodies_are_streamed_from_their_first_byte() {
        let others: [&[Option<&'static [u8]>]; 7] = [
            &[],
            &[Some(MESSAGE), Some(MESSAGE)],
            &[Some(b"\0\0\0\0\x02hi\0\0\0\0\0")],
            &[Some(b"\0\0\0"), Some(b"\0\x02hi")],
            &[Some(MESSAGE), None, Some(MESSAGE), Some(MESSAGE)],
            &[Some(b"\x01\0\0\0\x02hi")],
            // A body that ends inside its second message.
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
