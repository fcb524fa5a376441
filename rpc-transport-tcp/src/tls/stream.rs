//! A TCP stream and its TLS session.

use std::io;
use std::task::{Context, Poll, ready};

use parking_lot::{Mutex, MutexGuard};
use rustls::Connection;
use tokio::net::TcpStream;

use super::alpn::Protocols;
use super::session::Session;
use crate::connection::socket::Socket as _;

/// A TCP stream with TLS.
pub(super) struct TlsStream {
    pub(super) tcp: TcpStream,
    /// Held while records are encrypted and decrypted, never while waiting.
    session: Mutex<Session>,
}

impl TlsStream {
    /// Creates a stream before its handshake.
    pub(super) fn new(tcp: TcpStream, tls: Connection, protocols: Protocols) -> Self {
        Self { tcp, session: Mutex::new(Session::new(tls, protocols)) }
    }

    /// Returns the stream as one of the current runtime.
    pub(super) fn reregister(self) -> io::Result<Self> {
        Ok(Self { tcp: self.tcp.reregister()?, ..self })
    }

    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        // Only a panic of rustls leaves its state half changed, and that would be a bug in it.
        self.session.lock()
    }

    /// Writes all pending records.
    pub(super) fn poll_records(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.session().flush(&self.tcp)? {
                return Poll::Ready(Ok(()));
            }
            ready!(self.tcp.poll_write_ready(cx))?;
        }
    }

    /// Shuts down this side's direction, after close_notify.
    pub(super) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session().close();
        ready!(self.poll_records(cx))?;
        self.tcp.poll_end_writing(cx)
    }
}
