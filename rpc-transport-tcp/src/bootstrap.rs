//! The byte stream on which every connection starts.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rpc_core::connect::{Bootstrap, Link};
use rpc_core::pool::Pool;
use rpc_core::transport::Addresses;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::transport::TcpTransport;

/// A TCP stream before and, when an upgrade keeps it, beside its connection.
#[derive(Debug)]
pub(crate) struct TcpBootstrap {
    stream: TcpStream,
    addresses: Addresses,
    pool: Pool,
}

impl TcpBootstrap {
    /// Prepares a stream: no delay of small writes, and its addresses while they can be asked.
    pub(crate) fn new(stream: TcpStream, pool: Pool) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
        let addresses = Addresses { local: Some(local), peer: Some(peer) };
        Ok(Self { stream, addresses, pool })
    }
}

impl Bootstrap for TcpBootstrap {
    fn addresses(&self) -> Addresses {
        self.addresses.clone()
    }

    fn into_link(self: Box<Self>) -> Box<dyn Link> {
        Box::new(TcpTransport::new(self.stream, self.pool))
    }
}

impl AsyncRead for TcpBootstrap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TcpBootstrap {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
