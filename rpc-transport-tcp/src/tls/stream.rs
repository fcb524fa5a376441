//! A TCP stream and the TLS session around it.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use rustls::Connection;
use tokio::net::TcpStream;

use super::alpn::Protocols;
use super::session::Session;
use crate::connection::socket::Socket as _;

/// A TCP stream with TLS around it.
pub(super) struct TlsStream {
    pub(super) tcp: TcpStream,
    /// Held while records are encrypted and decrypted, never while waiting.
    session: Mutex<Session>,
}

impl TlsStream {
    /// The stream before its handshake.
    pub(super) fn new(tcp: TcpStream, tls: Connection, protocols: Protocols) -> Self {
        Self { tcp, session: Mutex::new(Session::new(tls, protocols)) }
    }

    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        // rustls leaves no state half-changed but in a panic, which is a bug of its own.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the records that wait to leave.
    pub(super) fn poll_records(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.session().flush(&self.tcp)? {
                return Poll::Ready(Ok(()));
            }
            ready!(self.tcp.poll_write_ready(cx))?;
        }
    }

    /// Ends the own direction of the stream, with TLS's word for it.
    pub(super) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session().close();
        ready!(self.poll_records(cx))?;
        self.tcp.poll_end_writing(cx)
    }
}
