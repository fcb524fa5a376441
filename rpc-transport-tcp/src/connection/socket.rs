//! The driver's interface to a connected byte stream: TCP sockets, Unix sockets, and the program's
//! streams (`stream`).

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

use bytes::BufMut;
use futures::future::BoxFuture;
use rpc_core::connect::HandshakeError;
use rpc_core::memory::MemoryShare;
use rpc_core::transport::TlsInfo;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};

/// Maximum number of bytes that one read appends, where it zeroes them first: as much as a TLS
/// session keeps decrypted.
const APPENDED_LEN_MAX: usize = 16 << 10;

/// The progress of a read or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) len: usize,
    /// True if the socket had less, or accepted less, than offered: another attempt would fail.
    pub(crate) is_exhausted: bool,
}

/// A connected byte stream that any task can read and write.
pub(crate) trait Socket:
    AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin + 'static
{
    /// The transport's name.
    const NAME: &'static str;

    /// True if a read or a write may wake a task of this process, as the other end of a pipe does.
    const WAKES: bool;

    /// True if the stream carries compressed messages. A Unix socket does not: copying the bytes
    /// between processes takes less time than compressing them.
    const CARRIES_COMPRESSED: bool;

    /// Returns the stream as one of the current runtime. See
    /// [`Bootstrap::reregister`](rpc_core::connect::Bootstrap::reregister).
    fn reregister(self) -> io::Result<Self>
    where
        Self: Sized,
    {
        Ok(self)
    }

    /// Prepares the stream before its first byte. See
    /// [`Bootstrap::open`](rpc_core::connect::Bootstrap::open).
    fn open(&mut self) -> BoxFuture<'_, Result<Option<TlsInfo>, HandshakeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Charges the memory that [`Socket::open`] holds. See
    /// [`Bootstrap::charge_memory`](rpc_core::connect::Bootstrap::charge_memory).
    fn charge_memory(&mut self, _share: &MemoryShare) {}

    /// Returns a secret of the TLS session. See
    /// [`Bootstrap::export`](rpc_core::connect::Bootstrap::export).
    fn export(
        &self,
        label: &'static [u8],
        context: &[u8],
    ) -> Result<Option<[u8; 32]>, HandshakeError> {
        let _ = (label, context);
        Ok(None)
    }

    /// Returns the underlying TCP stream, from which a PROXY header is read before anything else.
    fn tcp(&self) -> Option<&TcpStream> {
        None
    }

    /// Waits until there may be data to read. Only one task at a time can wait.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Waits until there may be room to write. Only one task at a time can wait.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads the available data. Moves nothing at the end of the stream.
    fn try_read(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved>;

    /// Reads the available data behind the end of `to`: at most `max` bytes, for which it has
    /// capacity. Moves nothing at the end of the stream.
    fn try_append(&self, to: &mut Vec<u8>, max: usize) -> io::Result<Moved> {
        let start = to.len();
        to.resize(start + max.min(APPENDED_LEN_MAX), 0);
        let read = self.try_read(&mut [IoSliceMut::new(&mut to[start..])]);
        to.truncate(start + read.as_ref().map_or(0, |moved| moved.len));
        read
    }

    /// Writes as much as fits.
    fn try_write(&self, buffers: &[IoSlice<'_>]) -> io::Result<Moved>;

    /// Returns true if there may be unread data, including an end or an error.
    fn has_unread(&self) -> bool;

    /// Shuts down this side's direction.
    fn poll_end_writing(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Shuts down both directions at once. The stream may already be dead.
    fn end(&self);
}

/// A socket of the kernel.
trait KernelSocket: AsFd {
    /// Runs an operation while the socket is ready for it, and clears the readiness afterwards if
    /// the operation would block.
    fn try_io(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()>;

    /// Reads into memory that is not initialised.
    fn try_read_buf(&self, buf: &mut impl BufMut) -> io::Result<usize>;
}

fn read<S: KernelSocket>(socket: &S, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
    let room = buffers.iter().map(|buffer| buffer.len()).sum();
    moved(socket, Interest::READABLE, room, || match buffers {
        [buffer] => (&*SockRef::from(socket)).read(buffer),
        buffers => (&*SockRef::from(socket)).read_vectored(buffers),
    })
}

fn append<S: KernelSocket>(socket: &S, to: &mut Vec<u8>, max: usize) -> io::Result<Moved> {
    moved(socket, Interest::READABLE, max, || socket.try_read_buf(&mut to.limit(max)))
}

fn write<S: KernelSocket>(socket: &S, buffers: &[IoSlice<'_>]) -> io::Result<Moved> {
    let len = buffers.iter().map(|buffer| buffer.len()).sum();
    moved(socket, Interest::WRITABLE, len, || match buffers {
        [buffer] => (&*SockRef::from(socket)).write(buffer),
        buffers => (&*SockRef::from(socket)).write_vectored(buffers),
    })
}

/// Runs an operation on up to `max` bytes.
///
/// An operation that falls short has exhausted the socket. Reporting `WouldBlock` clears the
/// runtime's readiness at once. Finding out by another attempt would cost a system call.
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
        // Without a length, the operation has failed.
        (None, Ok(())) => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Asks the kernel, since the reading task may not have run yet.
fn has_unread(socket: &impl KernelSocket) -> bool {
    let peeked = SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]);
    // An end or an error also counts: the connection's task has to find it.
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

            fn try_read_buf(&self, buf: &mut impl BufMut) -> io::Result<usize> {
                <$stream>::try_read_buf(self, buf)
            }
        }

        impl Socket for $stream {
            const NAME: &'static str = $name;
            const WAKES: bool = false;
            const CARRIES_COMPRESSED: bool = $carries;

            fn reregister(self) -> io::Result<Self> {
                <$stream>::from_std(self.into_std()?)
            }

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

            fn try_append(&self, to: &mut Vec<u8>, max: usize) -> io::Result<Moved> {
                append(self, to, max)
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
                // The socket may already be dead.
                let _ = SockRef::from(self).shutdown(Shutdown::Both);
            }
        }
    };
}

kernel_socket!(TcpStream, "tcp", carries_compressed: true, tcp: Some);
kernel_socket!(UnixStream, "unix", carries_compressed: false, tcp: |_| None);
