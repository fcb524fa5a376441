//! Listening and connecting over Unix sockets.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rpc_core::client::{self, ClientConfig, Connect, Established, OpenStream};
use rpc_core::connect::{Bootstrap, ConnectError, ConnectFault, Wanted};
use rpc_core::server::Listen;
use rpc_core::transport::Addresses;
use socket2::SockRef;
use tokio::net::UnixStream;
use tokio::runtime::Handle;

use crate::connection::bootstrap::SocketBootstrap;
use crate::net::socket_access::SocketAccess;
use crate::net::socket_file::{self, SocketFile};

/// Interval between attempts to connect to a listener whose queue is full. The kernel does not
/// report when it has room.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

pub(crate) fn bootstrap(stream: UnixStream, name: &str) -> SocketBootstrap<UnixStream> {
    // Only an unconnected socket has no credentials.
    let (unix, credentials) = (Some(name.to_owned()), stream.peer_cred().ok());
    let addresses = Addresses { unix, credentials, ..Addresses::default() };
    SocketBootstrap::new(stream, addresses)
}

/// A listener on a Unix socket. On drop it removes the socket's file, if it created it.
///
/// The file gets the permissions that the process's umask leaves, unless a [`SocketAccess`] sets
/// others. Every process that may write to the file may connect.
#[derive(Debug)]
pub struct UnixListener {
    name: String,
    listener: tokio::net::UnixListener,
    _file: Option<SocketFile>,
}

impl UnixListener {
    /// Listens on a path, or on an abstract name after an `@` (Linux only).
    ///
    /// Replaces a socket file without a listener.
    ///
    /// # Errors
    ///
    /// * [`io::ErrorKind::AddrInUse`] if a process listens there or the file is not a socket.
    /// * [`io::ErrorKind::InvalidInput`] if the path is empty or longer than 107 bytes (103 on
    ///   macOS), or if the name is abstract on a system other than Linux.
    /// * The operating system's error otherwise.
    pub fn bind(name: impl Into<String>) -> io::Result<Self> {
        Self::bind_with(name, &SocketAccess::default())
    }

    /// Listens like [`bind`](Self::bind), and gives the file the mode and owner in `access` before
    /// the first client can connect.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`bind`](Self::bind). Returns [`io::ErrorKind::InvalidInput`] if the
    /// user or group does not exist, or if an abstract name has a mode or an owner. Returns the
    /// operating system's error if it refuses the change.
    pub fn bind_with(name: impl Into<String>, access: &SocketAccess) -> io::Result<Self> {
        let name = name.into();
        let (listener, file) = socket_file::bind(&name, access)?;
        Ok(Self { name, listener, _file: file })
    }

    /// Returns the path, or the abstract name after an `@`.
    ///
    /// A path that is not UTF-8 has replacement characters. The name is empty if the program has
    /// made the listener without one.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Wraps a listener that the program has made. Its file stays when it is dropped.
///
/// # Errors
///
/// Returns the operating system's error if it does not know the name.
impl TryFrom<tokio::net::UnixListener> for UnixListener {
    type Error = io::Error;

    fn try_from(listener: tokio::net::UnixListener) -> io::Result<Self> {
        let name = socket_file::name_of(&SockRef::from(&listener).local_addr()?);
        Ok(Self { name: name.unwrap_or_default(), listener, _file: None })
    }
}

/// Wraps a listener that the program has made or received from a service manager. Makes it
/// non-blocking. Its file stays when it is dropped.
///
/// # Errors
///
/// Returns an error if the operating system refuses, or if the caller is not in a tokio runtime.
impl TryFrom<std::os::unix::net::UnixListener> for UnixListener {
    type Error = io::Error;

    fn try_from(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        // tokio would panic without a runtime.
        Handle::try_current().map_err(io::Error::other)?;
        listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(listener)?.try_into()
    }
}

impl Listen for UnixListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        Box::pin(async {
            let (stream, _) = self.listener.accept().await?;
            Ok(Some(Box::new(bootstrap(stream, &self.name)) as Box<dyn Bootstrap>))
        })
    }
}

/// A connector to a Unix socket.
#[derive(Debug)]
pub struct UnixConnector {
    name: String,
    config: ClientConfig,
}

impl UnixConnector {
    /// Creates a connector to a path, or to an abstract name after an `@`.
    pub fn new(name: impl Into<String>, config: ClientConfig) -> Self {
        Self { name: name.into(), config }
    }

    async fn open(&self) -> io::Result<UnixStream> {
        let path = socket_file::native(&self.name)?;
        loop {
            match UnixStream::connect(&path).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                other => return other,
            }
        }
    }
}

impl OpenStream for UnixConnector {
    fn open_stream(&self) -> BoxFuture<'_, io::Result<Box<dyn Bootstrap>>> {
        Box::pin(async {
            let opened =
                tokio::time::timeout(self.config.settings.handshake_timeout, self.open()).await;
            let stream = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
            Ok(Box::new(bootstrap(stream, &self.name)) as Box<dyn Bootstrap>)
        })
    }
}

impl Connect for UnixConnector {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn address(&self) -> Arc<str> {
        format!("unix://{}", self.name).into()
    }

    fn connect(&self, wanted: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        Box::pin(async move {
            let unreachable = |reason| {
                let address = self.address().to_string();
                ConnectError::from(ConnectFault::Unreachable { address, reason })
            };
            let bootstrap = self.open_stream().await.map_err(unreachable)?;
            client::connect(bootstrap, &self.address(), &self.config, wanted).await
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net;

    use super::*;

    #[tokio::test]
    async fn listeners_made_by_the_program_keep_their_files() {
        let name = format!("farcall-made-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let tokios = tokio::net::UnixListener::bind(&path).unwrap();
        let address = net::SocketAddr::from_abstract_name(&name).unwrap();
        let stds = net::UnixListener::bind_addr(&address).unwrap();
        let listeners = [
            (UnixListener::try_from(tokios).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixListener::try_from(stds).unwrap(), format!("@{name}")),
        ];
        for (mut listener, name) in listeners {
            assert_eq!(listener.name(), name);
            let connector = UnixConnector::new(name.clone(), ClientConfig::default());
            let (client, accepted) = tokio::join!(connector.open(), listener.accept());
            client.unwrap();
            assert_eq!(accepted.unwrap().unwrap().addresses().unix, Some(name));
        }
        std::fs::remove_file(path).expect("who made it removes it");
    }
}
