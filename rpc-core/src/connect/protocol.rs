//! Other protocols at a server's port.
//!
//! Eight bytes tell a connection's protocol, and are read for the handshake anyway: a farcall
//! connection pays nothing for there being others.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::Bootstrap;
use crate::limits::log::LogLimit;
use crate::memory::MemoryShare;
use crate::server::{Admission, ServerConnection};
use crate::transport::Addresses;
use crate::{Channel, Limits, MethodDescriptor};

/// A protocol that may be agreed on in a TLS handshake (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alpn {
    /// What the handshake calls it.
    pub id: &'static str,
    /// What messages call it.
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

/// A protocol that a server speaks beside farcall's, at the same port.
pub trait OtherProtocol: fmt::Debug + Send + Sync {
    /// Its name, as the list of connections and handlers have it for a transport.
    fn name(&self) -> &'static str;

    /// What a client agrees on in a TLS handshake before it speaks this.
    fn alpn(&self) -> Alpn;

    /// Whether a connection speaks it that begins with these bytes: as many as farcall's own magic
    /// has, which is eight.
    fn is_begun_by(&self, first: &[u8]) -> bool;

    /// Makes a connection of the server, which serves the stream once it is started.
    fn serve(&self, gateway: Gateway) -> Arc<dyn ServerConnection>;
}

/// What a connection of another protocol is served with.
pub struct Gateway {
    /// The byte stream from its first byte on.
    pub stream: Replayed,
    /// Makes calls to the server's own services, over a link inside the process that belongs to
    /// this connection alone.
    pub channel: Channel,
    /// The server's end of that link: a session like any other. It is started, drained and closed
    /// with the connection.
    pub session: Arc<dyn ServerConnection>,
    /// The server's methods by their paths.
    pub methods: Arc<HashMap<&'static str, &'static MethodDescriptor>>,
    /// Admits calls of which the message has not come.
    pub admission: Admission,
    /// What the connection may hold of the server's memory budget.
    pub memory: MemoryShare,
    /// Limits the lines that clients can cause.
    pub log: LogLimit,
    /// What is accepted of the client.
    pub limits: Limits,
    /// Maximum time for a client to open the connection, and for the next part of a message that
    /// a call waits for.
    pub handshake_timeout: Duration,
    /// Set when the listener is shut down.
    pub draining: CancellationToken,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("session", &self.session).finish_non_exhaustive()
    }
}

/// A byte stream of which the beginning has been read, from its beginning on.
pub struct Replayed {
    /// What is left of what was read.
    first: Vec<u8>,
    stream: Box<dyn Bootstrap>,
}

impl Replayed {
    pub(super) fn new(first: Vec<u8>, stream: Box<dyn Bootstrap>) -> Self {
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
