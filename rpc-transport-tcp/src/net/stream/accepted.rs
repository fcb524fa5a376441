//! The start of a connection on a stream that the program made.

use std::any::Any;
use std::io;
use std::net::SocketAddr;

use rpc_core::connect::Bootstrap;
use rpc_core::transport::Addresses;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::polled::PolledStream;
use crate::connection::bootstrap::SocketBootstrap;
use crate::net::{socket_file, tcp, unix};

/// Starts a connection over `stream`, which messages call `name`. Recognizes tokio's sockets and
/// uses them directly instead of polling them.
///
/// # Errors
///
/// Returns an error if `stream` is a socket and the operating system refuses to configure it.
pub(super) fn bootstrap<IO>(
    stream: IO,
    name: &str,
    peer: Option<SocketAddr>,
) -> io::Result<Box<dyn Bootstrap>>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut stream = Some(stream);
    if let Some(tcp) = take::<TcpStream>(&mut stream) {
        return Ok(Box::new(tcp::bootstrap(tcp)?));
    }
    if let Some(unix) = take::<UnixStream>(&mut stream) {
        let socket = SockRef::from(&unix);
        // Only the listener's end of a connection is bound to the name.
        let local = socket_file::name_of(&socket.local_addr()?);
        let path = local.or_else(|| socket_file::name_of(&socket.peer_addr().ok()?));
        return Ok(match path {
            Some(path) => Box::new(unix::bootstrap(unix, &path)),
            None => Box::new(SocketBootstrap::new(unix, addresses(name, peer))),
        });
    }
    let stream = stream.ok_or(io::ErrorKind::NotConnected)?;
    Ok(Box::new(SocketBootstrap::new(PolledStream::new(stream), addresses(name, peer))))
}

fn addresses(name: &str, peer: Option<SocketAddr>) -> Addresses {
    Addresses { stream: Some(name.to_owned()), peer, ..Addresses::default() }
}

/// Takes `stream` if it is a `T`.
fn take<T: 'static>(stream: &mut dyn Any) -> Option<T> {
    stream.downcast_mut::<Option<T>>()?.take()
}
