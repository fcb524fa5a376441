//! A byte stream on which the peer has to speak HTTP/2: its first frame is looked at.
//!
//! An HTTP/2 client may begin its requests before it has heard a word of the server. A peer of
//! another protocol would then fail calls instead of the attempt to connect, and with words that
//! help no one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// The header of an HTTP/2 frame: length (3), type, flags, stream (4).
const HEADER_LEN: usize = 9;

/// The type of SETTINGS, with which each side begins.
const SETTINGS: u8 = 4;

/// The type of GOAWAY, by which a server refuses that takes no connection.
const GO_AWAY: u8 = 7;

/// Why a peer's first bytes are not HTTP/2's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Foreign {
    /// It closed the stream before a whole frame had come.
    Closed,
    /// They are something else.
    Bytes(Vec<u8>),
}

/// A stream whose first frame is looked at as it is read.
#[derive(Debug)]
pub(super) struct FirstFrame<S> {
    stream: S,
    first: Vec<u8>,
    told: Option<oneshot::Sender<Result<(), Foreign>>>,
}

impl<S> FirstFrame<S> {
    /// The stream, and where it is told what the peer speaks.
    pub(super) fn new(stream: S) -> (Self, oneshot::Receiver<Result<(), Foreign>>) {
        let (told, heard) = oneshot::channel();
        (Self { stream, first: Vec::with_capacity(HEADER_LEN), told: Some(told) }, heard)
    }

    /// Looks at what was read next; nothing is the stream's end.
    fn look(&mut self, read: &[u8]) {
        let Some(told) = self.told.take() else { return };
        let wanted = HEADER_LEN - self.first.len();
        self.first.extend_from_slice(&read[..read.len().min(wanted)]);
        let verdict = match judge(&self.first) {
            None if read.is_empty() => Err(Foreign::Closed),
            None => {
                self.told = Some(told);
                return;
            }
            Some(true) => Ok(()),
            Some(false) => Err(Foreign::Bytes(std::mem::take(&mut self.first))),
        };
        // An attempt that was given up hears nothing.
        let _ = told.send(verdict);
    }
}

/// Whether a stream begins with the frame by which HTTP/2 ends.
pub(super) fn is_go_away(first: &[u8]) -> bool {
    matches!(first, [0, _, _, GO_AWAY, ..])
}

/// Whether a stream that begins so is HTTP/2's; `None` where that cannot be said yet.
fn judge(first: &[u8]) -> Option<bool> {
    match first.get(3) {
        // A frame of a text protocol's first letters would be longer than a server's settings.
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
        if self.told.is_some() {
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

    /// What is told of a stream that begins so and is read in pieces of that length.
    async fn told(bytes: &[u8], piece: usize) -> Result<(), Foreign> {
        let (mut stream, heard) = FirstFrame::new(bytes);
        let mut buf = vec![0; piece];
        while stream.read(&mut buf).await.unwrap() > 0 {}
        heard.await.expect("it is told by the end at the latest")
    }

    #[tokio::test]
    async fn a_server_of_http2_begins_with_settings() {
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];
        for piece in 1..=settings.len() {
            assert_eq!(told(&settings, piece).await, Ok(()));
        }
    }

    #[tokio::test]
    async fn another_protocol_is_told_by_its_first_bytes() {
        assert_eq!(told(b"HTTP/1.1 400", 64).await, Err(Foreign::Bytes(b"HTTP/1.1 ".to_vec())));
        assert_eq!(told(b"H", 1).await, Err(Foreign::Bytes(b"H".to_vec())));
        // A frame of another type, and settings of a stream.
        assert!(matches!(told(&[0, 0, 0, 1, 0, 0, 0, 0, 0], 9).await, Err(Foreign::Bytes(_))));
        assert!(matches!(told(&[0, 0, 0, 4, 0, 0, 0, 0, 1], 9).await, Err(Foreign::Bytes(_))));
        assert_eq!(told(&[], 9).await, Err(Foreign::Closed));
        assert_eq!(told(&[0, 0, 6, 4], 9).await, Err(Foreign::Closed));
    }
}
