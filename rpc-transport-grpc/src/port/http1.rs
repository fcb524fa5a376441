//! HTTP/1 at the port: load balancer probes and grpc-web, one request per connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http_body::{Body, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use rpc_core::Limits;
use tokio::time::{Sleep, sleep};
use tower::BoxError;

/// Maximum length of request headers in bytes, whatever the server's limit on metadata. hyper
/// reserves as much for reading, and again for writing.
const HEADERS_LEN_MAX: usize = 64 << 10;

/// Minimum length, which hyper itself requires.
const HEADERS_LEN_MIN: usize = 8 << 10;

/// Returns the memory that a connection may hold, in bytes: hyper's buffers of both directions.
pub(super) fn held(limits: &Limits) -> u64 {
    2 * headers_len(limits) as u64
}

fn headers_len(limits: &Limits) -> usize {
    let len = usize::try_from(limits.max_metadata_len).unwrap_or(HEADERS_LEN_MAX);
    len.saturating_add(HEADERS_LEN_MIN).min(HEADERS_LEN_MAX)
}

/// Returns hyper's settings: one request, with a short head that arrives in time.
pub(super) fn rules(limits: &Limits, head_timeout: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(head_timeout)
        .max_buf_size(headers_len(limits));
    builder
}

/// A request body whose next piece must arrive in time. HTTP/1 has no pings that would detect a
/// dead client.
pub(super) struct Timely<B> {
    body: B,
    timeout: Duration,
    /// Present while the body waits for a piece.
    late: Option<Pin<Box<Sleep>>>,
}

impl<B> Timely<B> {
    pub(super) fn new(body: B, timeout: Duration) -> Self {
        Self { body, timeout, late: None }
    }
}

impl<B> Body for Timely<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            // A new timer for each piece. A slow upload goes on as long as it makes progress.
            self.late = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let timeout = self.timeout;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(timeout)));
        late.poll_unpin(cx).map(|()| Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that yields nothing.
    struct Silent;

    impl Body for Silent {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_body_ends_with_an_error() {
        let mut body = Timely::new(Silent, Duration::from_secs(10));
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert!(frame.expect("it has not ended").is_err());
    }
}
