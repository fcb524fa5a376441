//! The byte stream on which an in-process connection starts.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::transport::InprocTransport;
use crate::connect::Bootstrap;
use crate::transport::{Addresses, Transport};

/// The room for handshake bytes each way; a longer Hello flows in turns.
const STREAM_LEN: usize = 16 << 10;

/// One end of an in-process connection before its handshake.
#[derive(Debug)]
pub(super) struct InprocBootstrap {
    stream: DuplexStream,
    transport: InprocTransport,
}

/// The two ends of a new connection.
pub(super) fn pair() -> (InprocBootstrap, InprocBootstrap) {
    let (a, b) = tokio::io::duplex(STREAM_LEN);
    let (left, right) = InprocTransport::pair("inproc");
    (
        InprocBootstrap { stream: a, transport: left },
        InprocBootstrap { stream: b, transport: right },
    )
}

impl Bootstrap for InprocBootstrap {
    fn addresses(&self) -> Addresses {
        Addresses::default()
    }

    fn into_transport(self: Box<Self>) -> Box<dyn Transport> {
        Box::new(self.transport)
    }
}

impl AsyncRead for InprocBootstrap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for InprocBootstrap {
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
