//! Listening and connecting over Unix sockets.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rpc_core::client::{Connect, Connection};
use rpc_core::connect::{self, Bootstrap, ClientConfig, ConnectError, Wanted};
use rpc_core::server::Listen;
use rpc_core::transport::Addresses;
use tokio::net::UnixStream;

use crate::bootstrap::SocketBootstrap;
use crate::socket_file::{self, SocketFile};

/// Between two attempts to connect to a listener whose queue is full: nothing tells when it is not.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

fn bootstrap(stream: UnixStream, name: &str) -> SocketBootstrap<UnixStream> {
    let addresses = Addresses { unix: Some(name.to_owned()), ..Addresses::default() };
    SocketBootstrap::new(stream, addresses)
}

/// Accepts connections on a Unix socket. Dropped, it removes the socket's file.
///
/// The file gets the permissions that the process's umask leaves; who may write to it may connect.
#[derive(Debug)]
pub struct UnixListener {
    name: String,
    listener: tokio::net::UnixListener,
    _file: Option<SocketFile>,
}

impl UnixListener {
    /// Listens on a path, or with `@` before it on an abstract name, which Linux has.
    ///
    /// A socket file on which nobody listens any more is replaced.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`] when somebody listens there or the file is no socket,
    /// [`io::ErrorKind::InvalidInput`] when the path is empty or longer than 107 bytes, and what
    /// the operating system refuses.
    pub fn bind(name: impl Into<String>) -> io::Result<Self> {
        let name = name.into();
        let (listener, file) = socket_file::bind(&name)?;
        Ok(Self { name, listener, _file: file })
    }
}

impl Listen for UnixListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Bootstrap>>> {
        Box::pin(async {
            let (stream, _) = self.listener.accept().await?;
            Ok(Box::new(bootstrap(stream, &self.name)) as Box<dyn Bootstrap>)
        })
    }
}

/// Connects to a Unix socket.
#[derive(Debug)]
pub struct UnixConnector {
    name: String,
    config: ClientConfig,
}

impl UnixConnector {
    /// A connector to a path, or to an abstract name behind `@`.
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

impl Connect for UnixConnector {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn connect(&self, wanted: Wanted) -> BoxFuture<'_, Result<Arc<dyn Connection>, ConnectError>> {
        Box::pin(async move {
            let opened = tokio::time::timeout(self.config.handshake_timeout, self.open()).await;
            let stream = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(
                |source| {
                    let address = format!("unix://{}", self.name);
                    ConnectError::Unreachable { address, source }
                },
            )?;
            connect::connect(Box::new(bootstrap(stream, &self.name)), &self.config, wanted).await
        })
    }
}
