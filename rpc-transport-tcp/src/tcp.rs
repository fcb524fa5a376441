//! Listening and connecting over TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use rpc_core::client::{Connect, Connection};
use rpc_core::connect::{self, Bootstrap, ClientConfig, ConnectError, Wanted};
use rpc_core::server::Listen;
use rpc_core::transport::Addresses;
use socket2::SockRef;
use tokio::net::{TcpStream, ToSocketAddrs};

use crate::bootstrap::SocketBootstrap;

/// How much the kernel takes that it cannot send yet; what is sent and not acknowledged is not
/// counted, so that this does not slow a long way down.
///
/// Whatever the kernel has taken, a small frame waits behind. Without a bound that is up to the
/// whole send buffer, 4 MiB by default, which also falls out of the processor's caches before it is
/// sent. Two pieces of a large frame keep the socket busy while the next are on their way to it.
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// Makes a stream ready: small writes are not delayed, and what waits in the kernel is bounded.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

/// Prepares a stream, and asks for its addresses while they can be asked.
fn bootstrap(stream: TcpStream) -> io::Result<SocketBootstrap<TcpStream>> {
    prepare(&stream)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A small frame waits behind all that the kernel has taken.
    #[tokio::test]
    async fn the_kernel_takes_little_for_a_peer_that_does_not_read() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (connected, accepted) = tokio::join!(connecting, listener.accept());
        let (stream, (peer, _)) = (connected.unwrap(), accepted.unwrap());
        prepare(&stream).unwrap();
        // As much as the peer's own buffer takes is beyond this side's say.
        let peers_part = SockRef::from(&peer).recv_buffer_size().unwrap();
        stream.writable().await.unwrap();
        let (piece, mut taken) = (vec![7; 64 << 10], 0);
        while let Ok(len) = stream.try_write(&piece) {
            taken += len;
        }
        let max = peers_part + UNSENT_BYTES_MAX as usize + piece.len();
        assert!((1..=max).contains(&taken), "{taken} bytes, where {max} are the most");
    }
}
