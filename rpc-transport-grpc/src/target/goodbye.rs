//! The reason of a server's GOAWAY, read before a socket error hides it.
//!
//! A server that ends a connection sends the reason, then closes. A client that is just writing
//! finds the socket broken, and h2 stops with that error while the reason lies unread in the
//! socket. This stream therefore reports a write to a closed peer as done, so that h2 reads on to
//! the end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use rpc_core::wire::PeerText;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::ping_pace::PingPace;
use crate::frames::{Frames, GO_AWAY};

/// Maximum length of a stored payload in bytes: the last stream (4), the reason (4) and the
/// beginning of the debug data.
const PAYLOAD_LEN_MAX: usize = 8 + 256;

/// Maximum wait for the rest of a stream that is no longer writable. The rest has arrived by then:
/// the kernel learns of the break from a packet that follows it.
const REST_TIMEOUT: Duration = Duration::from_secs(1);

/// The debug data of a GOAWAY for too many pings (gRFC A8).
const TOO_MANY_PINGS: &[u8] = b"too_many_pings";

/// The GOAWAY of one connection.
#[derive(Debug)]
pub(super) struct Goodbye {
    /// The server's address as the user wrote it.
    server: Arc<str>,
    pace: Arc<PingPace>,
    message: Mutex<Option<String>>,
}

impl Goodbye {
    pub(super) fn new(server: Arc<str>, pace: Arc<PingPace>) -> Self {
        Self { server, pace, message: Mutex::new(None) }
    }

    /// Appends the server's reason to a message about the end of the connection.
    pub(super) fn explain(&self, message: String) -> String {
        match &*self.message.lock() {
            Some(goodbye) => format!("{message}; {goodbye}"),
            None => message,
        }
    }

    /// Records the payload of a GOAWAY.
    fn note(&self, payload: &[u8]) {
        let Some(([_, _, _, _, code @ ..], debug)) = payload.split_first_chunk::<8>() else {
            return;
        };
        let reason = h2::Reason::from(u32::from_be_bytes(*code));
        if reason == h2::Reason::ENHANCE_YOUR_CALM && debug.starts_with(TOO_MANY_PINGS) {
            self.pace.slow_down(&self.server);
        }
        let mut text = format!("the server had sent GOAWAY ({reason:?}");
        if !debug.is_empty() {
            let debug = String::from_utf8_lossy(debug);
            text = format!("{text}, \"{}\"", PeerText::new(&debug));
        }
        text.push(')');
        // A graceful shutdown sends two GOAWAYs, and an error may follow. An error always replaces
        // a clean reason, never the other way round.
        let mut message = self.message.lock();
        if reason != h2::Reason::NO_ERROR {
            *message = Some(text);
        } else if message.is_none() {
            *message = Some(format!("{text}: it is draining, or the connection was old or idle"));
        }
    }
}

/// A server's stream that is read to its end, even after a failed write.
pub(super) struct ReadToEnd<S> {
    stream: S,
    frames: Frames,
    payload: Vec<u8>,
    goodbye: Arc<Goodbye>,
    /// The error of the write that failed. Only reads follow it.
    broken: Option<io::Error>,
    rest_timer: Option<Pin<Box<Sleep>>>,
}

impl<S> ReadToEnd<S> {
    pub(super) fn new(stream: S, goodbye: Arc<Goodbye>) -> Self {
        let (frames, payload) = (Frames::from_server(), Vec::new());
        Self { stream, frames, payload, goodbye, broken: None, rest_timer: None }
    }

    /// Looks for a GOAWAY in the received bytes.
    fn follow(&mut self, read: &mut [u8]) {
        let Self { frames, payload, goodbye, .. } = self;
        frames.follow(read, |part| {
            if part.kind != GO_AWAY {
                return;
            }
            // A peer may send GOAWAY several times. Each one starts a new payload.
            if part.at == 0 {
                payload.clear();
            }
            // Bounded: the length of the debug data is the peer's choice.
            let room = PAYLOAD_LEN_MAX.saturating_sub(payload.len());
            payload.extend_from_slice(&part.bytes[..part.bytes.len().min(room)]);
            if part.at + part.bytes.len() == part.len {
                goodbye.note(payload);
            }
        });
    }

    /// Reports a write of `len` bytes as done if the peer is gone.
    fn forgive<T>(
        &mut self,
        cx: &Context<'_>,
        polled: Poll<io::Result<T>>,
        done: T,
    ) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(Err(error)) if is_peer_gone(&error) => {
                self.broken = Some(error);
                // The reader may be waiting for a socket event that never comes. This wakes it.
                cx.waker().wake_by_ref();
                Poll::Ready(Ok(done))
            }
            polled => polled,
        }
    }
}

/// Returns true for a write error after which there may still be data to read.
fn is_peer_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadToEnd<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => {
                self.follow(&mut buf.filled_mut()[before..]);
                Poll::Ready(Ok(()))
            }
            // The socket has no more data although the peer is gone. Without the timer, the
            // connection would wait for an end that may never arrive.
            Poll::Pending if self.broken.is_some() => {
                let timer = self.rest_timer.get_or_insert_with(|| Box::pin(sleep(REST_TIMEOUT)));
                ready!(timer.poll_unpin(cx));
                Poll::Ready(self.broken.take().map_or(Ok(()), Err))
            }
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadToEnd<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        // Pretends to write. h2 would stop at the error and never read the rest.
        if self.broken.is_some() {
            return Poll::Ready(Ok(buf.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.forgive(cx, polled, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        if self.broken.is_some() {
            return Poll::Ready(Ok(len));
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.forgive(cx, polled, len)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.broken.is_some() {
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.forgive(cx, polled, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.broken.is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use rpc_core::policy::keepalive::Keepalive;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn goodbye() -> Arc<Goodbye> {
        let pace = Arc::new(PingPace::new(Keepalive::default()));
        Arc::new(Goodbye::new("grpc://a:1".into(), pace))
    }

    fn go_away(reason: h2::Reason, debug: &[u8]) -> Vec<u8> {
        let payload = [&[0; 4][..], &u32::from(reason).to_be_bytes(), debug].concat();
        let [_, len @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&len[..], &[GO_AWAY, 0, 0, 0, 0, 0], &payload].concat()
    }

    /// A stream with data to read on which every write fails.
    struct Broken(&'static [u8]);

    impl AsyncRead for Broken {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match self.0.is_empty() {
                true => Poll::Pending,
                false => Pin::new(&mut self.0).poll_read(cx, buf),
            }
        }
    }

    impl AsyncWrite for Broken {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn goodbye_is_read_after_a_failed_write() {
        let frame = go_away(h2::Reason::ENHANCE_YOUR_CALM, b"");
        let goodbye = goodbye();
        let mut stream = ReadToEnd::new(Broken(frame.clone().leak()), Arc::clone(&goodbye));
        stream.write_all(b"request").await.unwrap();
        let mut read = vec![0; frame.len()];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(read, frame);
        let explained = goodbye.explain("it has ended".into());
        assert_eq!(explained, "it has ended; the server had sent GOAWAY (ENHANCE_YOUR_CALM)");
        // A stream whose end never arrives ends all the same.
        let error = stream.read(&mut read).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn reasons_are_named() {
        type Case<'a> = (&'a [(h2::Reason, &'a [u8])], &'a str);
        let cases: [Case<'_>; 4] = [
            (
                &[(h2::Reason::NO_ERROR, b"")],
                "NO_ERROR): it is draining, or the connection was \
                                        old",
            ),
            (&[(h2::Reason::NO_ERROR, b"max_age")], "(NO_ERROR, \"max_age\"): it is draining"),
            (
                &[(h2::Reason::NO_ERROR, b""), (h2::Reason::INTERNAL_ERROR, b"a\nb")],
                "(INTERNAL_ERROR, \"a\\nb\")",
            ),
            (
                &[(h2::Reason::ENHANCE_YOUR_CALM, b"too_many_pings"), (h2::Reason::NO_ERROR, b"")],
                "(ENHANCE_YOUR_CALM, \"too_many_pings\")",
            ),
        ];
        for (frames, expected) in cases {
            let sent = frames.iter().map(|(reason, debug)| go_away(*reason, debug));
            let sent = sent.collect::<Vec<_>>().concat();
            let goodbye = goodbye();
            let mut stream = ReadToEnd::new(&sent[..], Arc::clone(&goodbye));
            let mut piece = [0; 3];
            while stream.read(&mut piece).await.unwrap() > 0 {}
            let explained = goodbye.explain(String::new());
            assert!(explained.contains(expected), "{explained}");
            let is_slower = goodbye.pace.keepalive().interval.unwrap().as_secs() > 300;
            assert_eq!(is_slower, expected.contains("too_many_pings"));
        }
    }
}
