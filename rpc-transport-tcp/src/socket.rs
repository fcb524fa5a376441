//! What the driver asks of a connected socket, so that it is written once for TCP and Unix sockets.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A connected stream socket that can be read and written from any task.
///
/// The methods do what tokio's of the same names do.
pub(crate) trait Socket:
    AsFd + AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin + 'static
{
    /// The transport's name.
    const NAME: &'static str;

    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send;

    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send;

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize>;
}

macro_rules! socket {
    ($stream:ty, $name:literal) => {
        impl Socket for $stream {
            const NAME: &'static str = $name;

            async fn readable(&self) -> io::Result<()> {
                <$stream>::readable(self).await
            }

            async fn writable(&self) -> io::Result<()> {
                <$stream>::writable(self).await
            }

            fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                <$stream>::try_read(self, buffer)
            }

            fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                <$stream>::try_read_vectored(self, buffers)
            }

            fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
                <$stream>::try_write_vectored(self, buffers)
            }
        }
    };
}

socket!(TcpStream, "tcp");
socket!(UnixStream, "unix");
