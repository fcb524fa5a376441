//! The byte stream on which a connection starts, and the protocols that may begin on it.
//!
//! Eight bytes tell a connection's protocol, and are read for the handshake anyway: a farcall
//! connection pays nothing for there being others.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::handshake::HandshakeError;
use crate::memory::MemoryShare;
use crate::transport::{Addresses, Transport};
use crate::wire::hello::DEFLATE;
use crate::{Compression, Negotiated};

/// A byte stream on which a connection starts, and which can carry it.
pub trait Bootstrap: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// The stream's two ends.
    fn addresses(&self) -> Addresses;

    /// Returns true if a proxy in front first says who the client is. Until
    /// [`read_proxy_header`](Self::read_proxy_header) has returned,
    /// [`addresses`](Self::addresses) name the proxy.
    fn is_proxied(&self) -> bool {
        false
    }

    /// Reads the PROXY header of a stream that [`is_proxied`](Self::is_proxied). Nothing else is
    /// read before it. Afterwards [`addresses`](Self::addresses) name the client.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the stream is of no use.
    fn read_proxy_header(&mut self) -> BoxFuture<'_, Result<(), HandshakeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the stream as one of the current runtime, which waits for its readiness from now on.
    /// Nothing was read or written before. A stream that no runtime waits for stays as it is.
    ///
    /// # Errors
    ///
    /// Returns `io::Error` if the operating system refuses.
    fn reregister(self: Box<Self>) -> io::Result<Box<dyn Bootstrap>>;

    /// Does what has to be done before the Hello: a TLS handshake, on a stream that has TLS.
    /// [`addresses`](Self::addresses) tell the peer's identity afterwards. A stream without TLS
    /// is open from the start.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the stream is of no use.
    fn open(&mut self) -> BoxFuture<'_, Result<(), HandshakeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Counts the memory that [`Bootstrap::open`] holds in a server's budget. By default nothing
    /// is held.
    fn charge_memory(&mut self, _share: &MemoryShare) {}

    /// A secret that both ends of the stream's TLS session can derive, and no other: another one
    /// for each label and context. None on a stream without TLS.
    ///
    /// # Errors
    ///
    /// Returns `HandshakeError` if TLS is there, and gives none.
    fn export(
        &self,
        label: &'static [u8],
        context: &[u8],
    ) -> Result<Option<[u8; 32]>, HandshakeError> {
        let _ = (label, context);
        Ok(None)
    }

    /// Returns true if the stream carries compressed messages as a transport without an upgrade.
    /// Streams between hosts do.
    fn carries_compressed(&self) -> bool {
        false
    }

    /// The encodings that this side says it accepts over the stream, with these settings.
    fn accepted_encodings(&self, own: Compression) -> u32 {
        let is_accepted = own.accept && self.carries_compressed();
        if is_accepted { DEFLATE } else { 0 }
    }

    /// Returns the agreement with a peer that accepts `heard` over the stream, with these settings.
    fn negotiated(&self, own: Compression, heard: u32) -> Negotiated {
        match self.carries_compressed() {
            true => Negotiated::new(own, self.accepted_encodings(own), heard),
            false => Negotiated::default(),
        }
    }

    /// Turns the stream, after the handshake, into the transport that it is without an upgrade.
    fn into_transport(self: Box<Self>) -> Box<dyn Transport>;
}

/// A protocol that may be agreed on in a TLS handshake (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alpn {
    /// Name in the handshake.
    pub id: &'static str,
    /// Name in messages.
    pub name: &'static str,
}

impl Alpn {
    /// farcall's own protocol.
    pub const FARCALL: Self = Self { id: "farcall/1", name: "farcall" };

    /// gRPC over HTTP/2.
    pub const GRPC: Self = Self { id: "h2", name: "gRPC" };

    /// HTTP/1. It is also what a client speaks that agrees on nothing.
    pub const HTTP1: Self = Self { id: "http/1.1", name: "HTTP/1.1" };
}

/// A byte stream of which the beginning has been read, from its beginning on.
pub struct Replayed {
    /// Bytes that were read and are not used yet.
    first: Vec<u8>,
    stream: Box<dyn Bootstrap>,
}

impl Replayed {
    pub(crate) fn new(first: Vec<u8>, stream: Box<dyn Bootstrap>) -> Self {
        Self { first, stream }
    }

    /// The stream's two ends, and who the client is where TLS has verified it.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.stream.addresses()
    }
}

impl fmt::Debug for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replayed").field("first", &self.first).finish_non_exhaustive()
    }
}

impl AsyncRead for Replayed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut *self.stream).poll_read(cx, buf);
        }
        let len = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first[..len]);
        self.first.drain(..len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Replayed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(cx)
    }
}
