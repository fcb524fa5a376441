//! Listening and connecting over TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use rpc_core::client::{Connect, Connection};
use rpc_core::connect::{self, Bootstrap, ClientConfig, ConnectError, Wanted};
use rpc_core::server::Listen;
use rpc_core::transport::Addresses;
use tokio::net::{TcpStream, ToSocketAddrs};

use crate::bootstrap::SocketBootstrap;

/// Prepares a stream: no delay of small writes, and its addresses while they can be asked.
fn bootstrap(stream: TcpStream) -> io::Result<SocketBootstrap<TcpStream>> {
    stream.set_nodelay(true)?;
    let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
    let addresses = Addresses { local: Some(local), peer: Some(peer), ..Addresses::default() };
    Ok(SocketBootstrap::new(stream, addresses))
}

/// Accepts TCP connections, for every path that starts on TCP.
#[derive(Debug)]
pub struct TcpListener {
    listener: tokio::net::TcpListener,
}

impl TcpListener {
    /// Listens on an address; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// When the address does not resolve or cannot be listened on.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is left behind.
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Ok(Self { listener: tokio::net::TcpListener::bind(address).await? })
    }

    /// The address listened on.
    ///
    /// # Errors
    ///
    /// When the operating system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Listen for TcpListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Bootstrap>>> {
        Box::pin(async {
            let (stream, _) = self.listener.accept().await?;
            Ok(Box::new(bootstrap(stream)?) as Box<dyn Bootstrap>)
        })
    }
}

/// Connects to a TCP address, and upgrades as its configuration says.
#[derive(Debug)]
pub struct TcpConnector {
    address: String,
    config: ClientConfig,
}

impl TcpConnector {
    /// A connector to `host:port`; the name is resolved anew at each connection.
    pub fn new(address: impl Into<String>, config: ClientConfig) -> Self {
        Self { address: address.into(), config }
    }
}

impl Connect for TcpConnector {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn connect(&self, wanted: Wanted) -> BoxFuture<'_, Result<Arc<dyn Connection>, ConnectError>> {
        Box::pin(async move {
            let unreachable = |source| {
                let address = format!("tcp://{}", self.address);
                ConnectError::Unreachable { address, source }
            };
            let opening = TcpStream::connect(&self.address);
            let timeout = self.config.handshake_timeout;
            let opened = tokio::time::timeout(timeout, opening).await;
            let stream = opened
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
                .map_err(unreachable)?;
            let bootstrap = bootstrap(stream).map_err(unreachable)?;
            connect::connect(Box::new(bootstrap), &self.config, wanted).await
        })
    }
}
