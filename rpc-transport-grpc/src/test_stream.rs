//! A byte stream that poses as the beginning of a connection, for tests.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rpc_core::connect::Bootstrap;
use rpc_core::transport::{Addresses, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A byte stream that only speaks HTTP.
pub(crate) struct Stream<S>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Bootstrap for Stream<S> {
    fn addresses(&self) -> Addresses {
        Addresses::default()
    }

    fn reregister(self: Box<Self>) -> io::Result<Box<dyn Bootstrap>> {
        Ok(self)
    }

    fn into_transport(self: Box<Self>) -> Box<dyn Transport> {
        unreachable!("HTTP/2 is spoken over it")
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
