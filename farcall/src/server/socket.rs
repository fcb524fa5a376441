//! The sockets that a server accepts connections from.

use std::io;
use std::net::IpAddr;

use futures::future::BoxFuture;
use rpc_core::connect::Bootstrap;
use rpc_core::inproc::InprocListener;
use rpc_core::server::Listen as _;
use rpc_transport_tcp::{SocketAccess, TcpListener, UnixListener};

use crate::Address;
use crate::address::NO_SOCKET_SCHEME;

/// A listening socket that the program made: a `TcpListener` or `UnixListener` of tokio or the
/// standard library.
///
/// A listener of the standard library is made non-blocking. That includes the listeners that a
/// service manager hands over (systemd's socket activation). The file of a Unix socket stays.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a listening socket",
    note = "a `TcpListener` or `UnixListener` of tokio or the standard library is one"
)]
pub trait SocketListener: Send + 'static {
    /// Returns the socket, ready to accept, and its address.
    #[doc(hidden)]
    fn into_socket(self) -> io::Result<(Address, Socket)>;
}

impl SocketListener for tokio::net::TcpListener {
    fn into_socket(self) -> io::Result<(Address, Socket)> {
        Socket::tcp(self.into())
    }
}

impl SocketListener for std::net::TcpListener {
    fn into_socket(self) -> io::Result<(Address, Socket)> {
        Socket::tcp(self.try_into()?)
    }
}

impl SocketListener for tokio::net::UnixListener {
    fn into_socket(self) -> io::Result<(Address, Socket)> {
        Ok(Socket::unix(self.try_into()?))
    }
}

impl SocketListener for std::os::unix::net::UnixListener {
    fn into_socket(self) -> io::Result<(Address, Socket)> {
        Ok(Socket::unix(self.try_into()?))
    }
}

/// A socket that accepts connections.
#[derive(Debug)]
pub enum Socket {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
    /// A name inside the process.
    Inproc(InprocListener),
}

impl Socket {
    /// Listens on `address`. Returns the address with the port that the operating system chose.
    pub(super) async fn bind(
        address: &Address,
        access: &SocketAccess,
    ) -> io::Result<(Address, Self)> {
        let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidInput, message);
        if !access.is_default() && !matches!(address, Address::Unix(_)) {
            let message = "socket_mode and socket_owner are for the file of unix:///path";
            return Err(invalid(message.to_owned()));
        }
        match address {
            Address::Inproc(name) => {
                let listener = InprocListener::bind(name.clone())?;
                Ok((address.clone(), Self::Inproc(listener)))
            }
            Address::Unix(name) => {
                let listener = UnixListener::bind_with(name.clone(), access)?;
                Ok((address.clone(), Self::Unix(listener)))
            }
            Address::Auto(authority) | Address::Rdma(authority) | Address::Tcp(authority) => {
                let listener = TcpListener::bind(authority.as_str()).await?;
                let local = listener.local_addr()?.to_string();
                Ok((address.with_authority(local), Self::Tcp(listener)))
            }
            Address::Grpc(authority) | Address::Grpcs(authority) => {
                let message = format!("only channels use it: listen at tcp://{authority}");
                Err(invalid(message))
            }
            Address::Custom(_) => Err(invalid(NO_SOCKET_SCHEME.to_owned())),
            Address::Dns(_) | Address::List(_) => {
                let message = "the address names several servers, which is for channels";
                Err(invalid(message.to_owned()))
            }
        }
    }

    fn tcp(listener: TcpListener) -> io::Result<(Address, Self)> {
        let address = Address::Auto(listener.local_addr()?.to_string());
        Ok((address, Self::Tcp(listener)))
    }

    fn unix(listener: UnixListener) -> (Address, Self) {
        (Address::Unix(listener.name().to_owned()), Self::Unix(listener))
    }

    pub(super) fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        match self {
            Self::Tcp(listener) => listener.accept(),
            Self::Unix(listener) => listener.accept(),
            Self::Inproc(listener) => listener.accept(),
        }
    }

    /// Returns the address that clients connect to, unless it is every address of this host.
    pub(super) fn local_ip(&self) -> Option<IpAddr> {
        let Self::Tcp(listener) = self else { return None };
        let local = listener.local_addr().ok()?.ip();
        Some(local).filter(|local| !local.is_unspecified())
    }
}
