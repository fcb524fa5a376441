//! What the driver asks of a connected byte stream, so that it is written once for TCP sockets,
//! Unix sockets and the streams that programs make (`stream`).

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use rpc_core::connect::HandshakeError;
use rpc_core::memory::MemoryShare;
use rpc_core::transport::TlsInfo;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};

/// How far a read or a write got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) len: usize,
    /// Whether the socket had less, or took less, than was offered: another attempt would fail.
    pub(crate) is_exhausted: bool,
}

/// A connected byte stream that can be read and written from any task.
pub(crate) trait Socket:
    AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin + 'static
{
    /// The transport's name.
    const NAME: &'static str;

    /// Whether a read or a write may wake a task of this process, as that of a pipe's other end.
    const WAKES: bool;

    /// Whether it carries compressed messages. A Unix socket does not: its bytes are copied from
    /// one process to another, which takes less time than to compress them.
    const CARRIES_COMPRESSED: bool;

    /// Does what has to be done before the first byte; see
    /// [`Bootstrap::open`](rpc_core::connect::Bootstrap::open).
    fn open(&mut self) -> BoxFuture<'_, Result<Option<TlsInfo>, HandshakeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Has what [`Socket::open`] holds counted; see
    /// [`Bootstrap::charge_memory`](rpc_core::connect::Bootstrap::charge_memory).
    fn charge_memory(&mut self, _share: &MemoryShare) {}

    /// A secret of the TLS session; see
    /// [`Bootstrap::export`](rpc_core::connect::Bootstrap::export).
    fn export(
        &self,
        label: &'static [u8],
        context: &[u8],
    ) -> Result<Option<[u8; 32]>, HandshakeError> {
        let _ = (label, context);
        Ok(None)
    }

    /// The TCP stream below, which a PROXY header is read from before anything else.
    fn tcp(&self) -> Option<&TcpStream> {
        None
    }

    /// Whether there may be something to read. One task at a time can wait.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether there may be room to write. One task at a time can wait.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads what there is. An end of the stream moves nothing.
    fn try_read(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved>;

    /// Writes as much as fits.
    fn try_write(&self, buffers: &[IoSlice<'_>]) -> io::Result<Moved>;

    /// Whether something may have come in that was not read: also an end, or an error.
    fn has_unread(&self) -> bool;

    /// Tells the peer that nothing more will come.
    fn poll_end_writing(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends both directions at once. The stream may be dead already.
    fn end(&self);
}

/// A socket of the kernel's.
trait KernelSocket: AsFd {
    /// Runs an operation while the socket is ready for it, and records when it is not any more.
    fn try_io(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()>;
}

fn read<S: KernelSocket>(socket: &S, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
    let room = buffers.iter().map(|buffer| buffer.len()).sum();
    moved(socket, Interest::READABLE, room, || match buffers {
        [buffer] => (&*SockRef::from(socket)).read(buffer),
        buffers => (&*SockRef::from(socket)).read_vectored(buffers),
    })
}

fn write<S: KernelSocket>(socket: &S, buffers: &[IoSlice<'_>]) -> io::Result<Moved> {
    let len = buffers.iter().map(|buffer| buffer.len()).sum();
    moved(socket, Interest::WRITABLE, len, || match buffers {
        [buffer] => (&*SockRef::from(socket)).write(buffer),
        buffers => (&*SockRef::from(socket)).write_vectored(buffers),
    })
}

/// Runs an operation on up to `max` bytes. One that falls short has exhausted the socket, which
/// the runtime is told at once: to learn it from another attempt would cost a call more.
fn moved<S: KernelSocket>(
    socket: &S,
    interest: Interest,
    max: usize,
    operation: impl FnOnce() -> io::Result<usize>,
) -> io::Result<Moved> {
    let mut len = None;
    let result = socket.try_io(interest, || {
        let moved = operation()?;
        len = Some(moved);
        if moved < max && moved > 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match (len, result) {
        (Some(len), result) => Ok(Moved { len, is_exhausted: result.is_err() }),
        (None, Err(error)) => Err(error),
        // Without a length the operation has failed.
        (None, Ok(())) => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Asks the kernel, since the task that reads may not have run.
fn has_unread(socket: &impl KernelSocket) -> bool {
    let peeked = SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]);
    // An end of the stream, or an error, is for the connection's task to find.
    !matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

macro_rules! kernel_socket {
    ($stream:ty, $name:literal, carries_compressed: $carries:literal, tcp: $tcp:expr) => {
        impl KernelSocket for $stream {
            fn try_io(
                &self,
                interest: Interest,
                operation: impl FnOnce() -> io::Result<()>,
            ) -> io::Result<()> {
                <$stream>::try_io(self, interest, operation)
            }
        }

        impl Socket for $stream {
            const NAME: &'static str = $name;
            const WAKES: bool = false;
            const CARRIES_COMPRESSED: bool = $carries;

            fn tcp(&self) -> Option<&TcpStream> {
                $tcp(self)
            }

            fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_read_ready(cx)
            }

            fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_write_ready(cx)
            }

            fn try_read(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
                read(self, buffers)
            }

            fn try_write(&self, buffers: &[IoSlice<'_>]) -> io::Result<Moved> {
                write(self, buffers)
            }

            fn has_unread(&self) -> bool {
                has_unread(self)
            }

            fn poll_end_writing(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(SockRef::from(self).shutdown(Shutdown::Write))
            }

            fn end(&self) {
                // It may be dead already.
                let _ = SockRef::from(self).shutdown(Shutdown::Both);
            }
        }
    };
}

kernel_socket!(TcpStream, "tcp", carries_compressed: true, tcp: Some);
kernel_socket!(UnixStream, "unix", carries_compressed: false, tcp: |_| None);
