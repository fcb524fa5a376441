//! The byte stream on which a connection starts.

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

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
    /// When TLS is there, and gives none.
    fn export(
        &self,
        label: &'static [u8],
        context: &[u8],
    ) -> Result<Option<[u8; 32]>, HandshakeError> {
        let _ = (label, context);
        Ok(None)
    }

    /// Whether the stream, as the transport that it is without an upgrade, carries compressed
    /// messages: one between hosts does.
    fn carries_compressed(&self) -> bool {
        false
    }

    /// The encodings that this side says it accepts over the stream, with these settings.
    fn accepted_encodings(&self, own: Compression) -> u32 {
        let is_accepted = own.is_accepted() && self.carries_compressed();
        if is_accepted { DEFLATE } else { 0 }
    }

    /// What is agreed on with a peer that accepts `heard` over the stream, with these settings.
    fn negotiated(&self, own: Compression, heard: u32) -> Negotiated {
        match self.carries_compressed() {
            true => Negotiated::new(own, self.accepted_encodings(own), heard),
            false => Negotiated::default(),
        }
    }

    /// Turns the stream, after the handshake, into the transport that it is without an upgrade.
    fn into_transport(self: Box<Self>) -> Box<dyn Transport>;
}
