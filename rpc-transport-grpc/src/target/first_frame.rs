//! A byte stream that checks the peer's first frame for HTTP/2.
//!
//! An HTTP/2 client may send requests before the server's first byte. Without this check, a peer of
//! another protocol would fail calls instead of the connection attempt, with messages that explain
//! nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// Length of an HTTP/2 frame header: length (3), type, flags, stream (4).
const HEADER_LEN: usize = 9;

/// The type of SETTINGS, the first frame of each side.
const SETTINGS: u8 = 4;

/// The type of GOAWAY, which a server sends to refuse a connection.
const GO_AWAY: u8 = 7;

/// The reason why a peer's first bytes are not HTTP/2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Foreign {
    /// The peer closed the stream before a complete frame header.
    Closed,
    /// The peer sent something else.
    Bytes(Vec<u8>),
}

/// A stream that checks its first frame as it is read.
#[derive(Debug)]
pub(super) struct FirstFrame<S> {
    stream: S,
    first: Vec<u8>,
    sender: Option<oneshot::Sender<Result<(), Foreign>>>,
}

impl<S> FirstFrame<S> {
    /// Wraps a stream. The receiver yields the verdict on its first frame.
    pub(super) fn new(stream: S) -> (Self, oneshot::Receiver<Result<(), Foreign>>) {
        let (sender, receiver) = oneshot::channel();
        (Self { stream, first: Vec::with_capacity(HEADER_LEN), sender: Some(sender) }, receiver)
    }

    /// Checks the next bytes. Empty input marks the end of the stream.
    fn look(&mut self, read: &[u8]) {
        // Taken until there is a verdict, so that the verdict is sent once.
        let Some(sender) = self.sender.take() else { return };
        let wanted = HEADER_LEN - self.first.len();
        self.first.extend_from_slice(&read[..read.len().min(wanted)]);
        let verdict = match judge(&self.first) {
            None if read.is_empty() => Err(Foreign::Closed),
            None => {
                self.sender = Some(sender);
                return;
            }
            Some(true) => Ok(()),
            Some(false) => Err(Foreign::Bytes(std::mem::take(&mut self.first))),
        };
        // Fails if the attempt was abandoned, and nothing waits for the verdict.
        let _ = sender.send(verdict);
    }
}

/// Returns true if a stream begins with GOAWAY, the frame that ends HTTP/2.
pub(super) fn is_go_away(first: &[u8]) -> bool {
    matches!(first, [0, _, _, GO_AWAY, ..])
}

/// Returns true if a stream with these first bytes speaks HTTP/2, and `None` if it is too early to
/// tell.
fn judge(first: &[u8]) -> Option<bool> {
    match first.get(3) {
        // A text protocol's first letter, read as a length, exceeds any server's SETTINGS.
        None => first.first().filter(|byte| **byte != 0).map(|_| false),
        Some(kind) if first[0] != 0 || *kind != SETTINGS => Some(false),
        Some(_) => (first.len() >= HEADER_LEN).then(|| first[5..HEADER_LEN] == [0; 4]),
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstFrame<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        // Checked even after an error or at the end of the stream: a peer that closes without a
        // byte must get its verdict, too.
        if self.sender.is_some() {
            self.look(&buf.filled()[before..]);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstFrame<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Returns the verdict on a stream with these bytes, read in pieces of this length.
    async fn verdict(bytes: &[u8], piece: usize) -> Result<(), Foreign> {
        let (mut stream, receiver) = FirstFrame::new(bytes);
        let mut buf = vec![0; piece];
        while stream.read(&mut buf).await.unwrap() > 0 {}
        receiver.await.expect("there is a verdict at the end at the latest")
    }

    #[tokio::test]
    async fn an_http2_server_begins_with_settings() {
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];
        for piece in 1..=settings.len() {
            assert_eq!(verdict(&settings, piece).await, Ok(()));
        }
    }

    #[tokio::test]
    async fn other_protocols_are_detected_by_their_first_bytes() {
        assert_eq!(verdict(b"HTTP/1.1 400", 64).await, Err(Foreign::Bytes(b"HTTP/1.1 ".to_vec())));
        assert_eq!(verdict(b"H", 1).await, Err(Foreign::Bytes(b"H".to_vec())));
        // A frame of another type, and SETTINGS on a stream.
        assert!(matches!(verdict(&[0, 0, 0, 1, 0, 0, 0, 0, 0], 9).await, Err(Foreign::Bytes(_))));
        assert!(matches!(verdict(&[0, 0, 0, 4, 0, 0, 0, 0, 1], 9).await, Err(Foreign::Bytes(_))));
        assert_eq!(verdict(&[], 9).await, Err(Foreign::Closed));
        assert_eq!(verdict(&[0, 0, 6, 4], 9).await, Err(Foreign::Closed));
    }
}
