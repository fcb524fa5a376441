//! What the driver asks of a connected socket, so that it is written once for TCP and Unix sockets.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;
use std::task::{Context, Poll};

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

/// A connected stream socket that can be read and written from any task.
pub(crate) trait Socket:
    Sized + AsFd + AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin + 'static
{
    /// The transport's name.
    const NAME: &'static str;

    /// Whether there may be something to read. One task at a time can wait.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether there may be room to write. One task at a time can wait.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Runs an operation while the socket is ready for it, and takes note when it is not any more.
    fn try_io(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()>;

    /// Reads what there is. An end of the stream moves nothing.
    fn try_read(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        let room = buffers.iter().map(|buffer| buffer.len()).sum();
        moved(self, Interest::READABLE, room, || match buffers {
            [buffer] => (&*SockRef::from(self)).read(buffer),
            buffers => (&*SockRef::from(self)).read_vectored(buffers),
        })
    }

    /// Writes as much as fits.
    fn try_write(&self, buffers: &[IoSlice<'_>]) -> io::Result<Moved> {
        let len = buffers.iter().map(|buffer| buffer.len()).sum();
        moved(self, Interest::WRITABLE, len, || match buffers {
            [buffer] => (&*SockRef::from(self)).write(buffer),
            buffers => (&*SockRef::from(self)).write_vectored(buffers),
        })
    }
}

/// Runs an operation on up to `max` bytes. One that falls short has exhausted the socket, which
/// the runtime is told at once: to learn it from another attempt would cost a call more.
fn moved<S: Socket>(
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

macro_rules! socket {
    ($stream:ty, $name:literal) => {
        impl Socket for $stream {
            const NAME: &'static str = $name;

            fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_read_ready(cx)
            }

            fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_write_ready(cx)
            }

            fn try_io(
                &self,
                interest: Interest,
                operation: impl FnOnce() -> io::Result<()>,
            ) -> io::Result<()> {
                <$stream>::try_io(self, interest, operation)
            }
        }
    };
}

socket!(TcpStream, "tcp");
socket!(UnixStream, "unix");
