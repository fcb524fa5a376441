//! A TCP stream with TLS, as a socket for the driver.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rpc_core::connect::HandshakeError;
use rpc_core::memory::MemoryShare;
use rpc_core::transport::TlsInfo;
use rustls::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::alpn::Protocols;
use super::handshake::handshake;
use super::session::{Sink, Unread};
use super::stream::TlsStream;
use crate::connection::socket::{Moved, Socket};

/// A TCP stream with TLS.
pub(crate) struct TlsSocket(TlsStream);

impl TlsSocket {
    /// Creates a stream before its handshake, which negotiates one of `protocols`.
    pub(super) fn new(tcp: TcpStream, tls: Connection, protocols: Protocols) -> Self {
        Self(TlsStream::new(tcp, tls, protocols))
    }
}

impl Socket for TlsSocket {
    const NAME: &'static str = "tls";
    const WAKES: bool = false;
    const CARRIES_COMPRESSED: bool = true;

    fn reregister(self) -> io::Result<Self> {
        self.0.reregister().map(Self)
    }

    fn charge_memory(&mut self, share: &MemoryShare) {
        self.0.session().handshake_charge = share.take(0);
    }

    fn open(&mut self) -> BoxFuture<'_, Result<Option<TlsInfo>, HandshakeError>> {
        handshake(&self.0).map(|info| info.map(Some)).boxed()
    }

    fn export(
        &self,
        label: &'static [u8],
        context: &[u8],
    ) -> Result<Option<[u8; 32]>, HandshakeError> {
        let exported = self.0.session().tls.export_keying_material([0; 32], label, Some(context));
        let failed = |error| HandshakeError::Tls { reason: format!("TLS gives no key: {error}") };
        exported.map(Some).map_err(failed)
    }

    fn tcp(&self) -> Option<&TcpStream> {
        Some(&self.0.tcp)
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut session = self.0.session();
        match session.unread() {
            Unread::Nothing => {
                // The lock is never held while waiting.
                drop(session);
                self.0.tcp.poll_read_ready(cx)
            }
            Unread::Something => Poll::Ready(Ok(())),
            Unread::NextTurn => {
                // Yields once. Without that, a peer that sends empty records would occupy the
                // thread.
                session.begin_turn();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Also waits until all encrypted records are written.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_records(cx)
    }

    fn try_read(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        self.0.session().read(&self.0.tcp, &mut Sink::new(buffers))
    }

    fn try_write(&self, buffers: &[IoSlice<'_>]) -> io::Result<Moved> {
        self.0.session().write(&self.0.tcp, buffers)
    }

    fn has_unread(&self) -> bool {
        self.0.session().unread() != Unread::Nothing || self.0.tcp.has_unread()
    }

    fn poll_end_writing(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_end(cx)
    }

    fn end(&self) {
        self.0.tcp.end();
    }
}

impl fmt::Debug for TlsSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSocket").field("tcp", &self.0.tcp).finish_non_exhaustive()
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Without room, `try_read` would be refused forever, and the loop would not end.
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.poll_readable(cx))?;
            match self.try_read(&mut [IoSliceMut::new(buf.initialize_unfilled())]) {
                Ok(Moved { len, .. }) => {
                    buf.advance(len);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.0.poll_records(cx))?;
        let written = self.try_write(&[IoSlice::new(buf)]);
        Poll::Ready(written.map(|moved| moved.len))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.0.poll_records(cx))?;
        Poll::Ready(self.try_write(buffers).map(|moved| moved.len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_records(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_end(cx)
    }
}
