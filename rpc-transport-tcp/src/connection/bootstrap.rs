//! The byte stream on which every connection starts.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use rpc_core::connect::{Bootstrap, HandshakeError};
use rpc_core::memory::MemoryShare;
use rpc_core::pool::Pool;
use rpc_core::transport::{Addresses, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::socket::Socket;
use crate::connection::transport::SocketTransport;
use crate::proxy::read_client;

/// Maximum unused memory that the process keeps for large frames on all socket connections: four
/// times the 64 MiB of the examples' largest message, which is also the default budget of one
/// connection.
const KEPT_BYTES_MAX: usize = 256 << 20;

fn pool() -> Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(KEPT_BYTES_MAX)).clone()
}

/// A socket before its connection, and next to it if an upgrade keeps the socket.
#[derive(Debug)]
pub(crate) struct SocketBootstrap<S> {
    stream: S,
    addresses: Addresses,
    /// True until the header of a proxy in front has been read.
    is_proxied: bool,
}

impl<S> SocketBootstrap<S> {
    pub(crate) fn new(stream: S, addresses: Addresses) -> Self {
        Self { stream, addresses, is_proxied: false }
    }

    /// Marks the stream as one that begins with a PROXY header, if `is_proxied`.
    pub(crate) fn proxied(mut self, is_proxied: bool) -> Self {
        self.is_proxied = is_proxied;
        self
    }
}

impl<S: Socket> Bootstrap for SocketBootstrap<S> {
    fn addresses(&self) -> Addresses {
        self.addresses.clone()
    }

    fn is_proxied(&self) -> bool {
        self.is_proxied
    }

    fn read_proxy_header(&mut self) -> BoxFuture<'_, Result<(), HandshakeError>> {
        Box::pin(async {
            if let Some(tcp) = self.stream.tcp() {
                // A proxy that speaks for itself remains the peer.
                let client = read_client(tcp, self.addresses.peer).await?;
                self.addresses.peer = client.or(self.addresses.peer);
            }
            self.is_proxied = false;
            Ok(())
        })
    }

    fn charge_memory(&mut self, share: &MemoryShare) {
        self.stream.charge_memory(share);
    }

    fn open(&mut self) -> BoxFuture<'_, Result<(), HandshakeError>> {
        Box::pin(async {
            self.addresses.tls = self.stream.open().await?.map(Arc::new);
            Ok(())
        })
    }

    fn export(
        &self,
        label: &'static [u8],
        context: &[u8],
    ) -> Result<Option<[u8; 32]>, HandshakeError> {
        self.stream.export(label, context)
    }

    fn carries_compressed(&self) -> bool {
        S::CARRIES_COMPRESSED
    }

    fn reregister(self: Box<Self>) -> io::Result<Box<dyn Bootstrap>> {
        let Self { stream, addresses, is_proxied } = *self;
        let stream = stream.reregister()?;
        Ok(Box::new(Self { stream, addresses, is_proxied }))
    }

    fn into_transport(self: Box<Self>) -> Box<dyn Transport> {
        Box::new(SocketTransport::new(self.stream, pool()))
    }
}

impl<S: Socket> AsyncRead for SocketBootstrap<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: Socket> AsyncWrite for SocketBootstrap<S> {
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
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
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
