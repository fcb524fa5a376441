//! TCP streams for tests of the connector.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use rpc_core::connect::{Bootstrap, ClientConfig, OpenStream};
use rpc_core::transport::{Addresses, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::{GrpcConnector, Scheme};

/// A connector over TCP.
pub(super) fn connector(authority: String, config: ClientConfig) -> GrpcConnector {
    GrpcConnector::new(Scheme::Plain, authority.clone(), Opener(authority), config)
}

#[derive(Debug)]
struct Opener(String);

impl OpenStream for Opener {
    fn open_stream(&self) -> BoxFuture<'_, io::Result<Box<dyn Bootstrap>>> {
        Box::pin(async {
            let stream = TcpStream::connect(&self.0).await?;
            Ok(Box::new(Stream(stream)) as Box<dyn Bootstrap>)
        })
    }
}

struct Stream(TcpStream);

impl Bootstrap for Stream {
    fn addresses(&self) -> Addresses {
        Addresses::default()
    }

    fn into_transport(self: Box<Self>) -> Box<dyn Transport> {
        unreachable!("HTTP/2 is spoken over it")
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
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
