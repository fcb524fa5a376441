//! Listening and connecting over TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::RwLock;
use rpc_core::client::{
    self, ClientConfig, Connect, Connecting, Established, Handshake, OpenStream,
};
#[cfg(feature = "tls")]
use rpc_core::connect::Alpn;
use rpc_core::connect::{Bootstrap, ConnectError, ConnectFault, Wanted};
use rpc_core::server::Listen;
use rpc_core::transport::Addresses;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, ToSocketAddrs, lookup_host};
use tokio::runtime::Handle;

use super::happy_eyeballs::{self, without_address};
use crate::connection::bootstrap::SocketBootstrap;
use crate::proxy::ProxyNetworks;
#[cfg(feature = "tls")]
use crate::tls::{ClientTls, ServerTls};

/// Maximum number of unsent bytes that the kernel accepts (`TCP_NOTSENT_LOWAT`). Bytes that are
/// sent and unacknowledged do not count, so long paths stay fast.
///
/// A small frame waits behind everything that the kernel has accepted. Unbounded, that is the whole
/// send buffer, 4 MiB by default, which also drops out of the CPU's caches before it is sent. Two
/// chunks of a large frame keep the socket busy while the next ones are on their way to it.
///
/// socket2 has the option on Linux only. Elsewhere a small frame may wait behind a full send
/// buffer.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// Time without a byte after which the kernel asks the peer for a sign of life. A stream beside an
/// RDMA path carries nothing, so that nothing else would notice that its peer's host is gone, or
/// keep the entry of a firewall or an address translation alive.
const IDLE_PROBE_AFTER: Duration = Duration::from_secs(60);

/// Configures a stream: sends small writes at once, probes idle peers, and bounds the unsent bytes
/// in the kernel.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(IDLE_PROBE_AFTER);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    Ok(())
}

/// Configures a stream, and reads its addresses while the socket is certain to know them.
fn prepared(stream: &TcpStream) -> io::Result<Addresses> {
    prepare(stream)?;
    let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
    Ok(Addresses { local: Some(local), peer: Some(peer), ..Addresses::default() })
}

/// Starts a connection over a stream without TLS.
pub(crate) fn bootstrap(stream: TcpStream) -> io::Result<SocketBootstrap<TcpStream>> {
    let addresses = prepared(&stream)?;
    Ok(SocketBootstrap::new(stream, addresses))
}

/// A listener for TCP connections, on which every path starts.
#[derive(Debug)]
pub struct TcpListener {
    listener: tokio::net::TcpListener,
    proxies: ProxyNetworks,
    /// TLS, and the protocols that clients may negotiate in its handshake.
    #[cfg(feature = "tls")]
    tls: Option<(ServerTls, Arc<[Alpn]>)>,
}

impl TcpListener {
    /// Listens on an address. Port 0 picks a free port.
    ///
    /// # Errors
    ///
    /// Returns an error if the address does not resolve or if binding it fails.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: nothing stays bound.
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Ok(tokio::net::TcpListener::bind(address).await?.into())
    }

    /// Reads a PROXY header at the start of every connection from `proxies`.
    #[must_use]
    pub fn with_proxies(mut self, proxies: ProxyNetworks) -> Self {
        self.proxies = proxies;
        self
    }

    /// Wraps every connection accepted from now on in TLS. Clients negotiate farcall or one of the
    /// `others` in the TLS handshake.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(mut self, tls: ServerTls, others: impl IntoIterator<Item = Alpn>) -> Self {
        self.tls = Some((tls, std::iter::once(Alpn::FARCALL).chain(others).collect()));
        self
    }

    /// Returns the local address.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error if it does not know the address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Wraps a listener that the program has made. Its options stay as they are.
impl From<tokio::net::TcpListener> for TcpListener {
    fn from(listener: tokio::net::TcpListener) -> Self {
        Self {
            listener,
            proxies: ProxyNetworks::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// Wraps a listener that the program has made or received from a service manager. Makes it
/// non-blocking; its other options stay as they are.
///
/// # Errors
///
/// Returns an error if the operating system refuses, or if the caller is not in a tokio runtime.
impl TryFrom<std::net::TcpListener> for TcpListener {
    type Error = io::Error;

    fn try_from(listener: std::net::TcpListener) -> io::Result<Self> {
        // tokio would panic without a runtime.
        Handle::try_current().map_err(io::Error::other)?;
        listener.set_nonblocking(true)?;
        Ok(tokio::net::TcpListener::from_std(listener)?.into())
    }
}

impl Listen for TcpListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        Box::pin(async {
            let (stream, peer) = self.listener.accept().await?;
            let is_proxied = self.proxies.contains(peer.ip());
            #[cfg(feature = "tls")]
            if let Some((tls, protocols)) = &self.tls {
                let addresses = prepared(&stream)?;
                let socket = tls.accept(stream, protocols)?;
                let socket = SocketBootstrap::new(socket, addresses).proxied(is_proxied);
                return Ok(Some(Box::new(socket) as Box<_>));
            }
            let socket = bootstrap(stream)?.proxied(is_proxied);
            Ok(Some(Box::new(socket) as Box<dyn Bootstrap>))
        })
    }
}

/// A connector to a TCP address. It upgrades connections as its configuration requires.
///
/// If the server has several addresses, the connector uses the first one that accepts. It tries the
/// next address after 250 ms, or as soon as an attempt fails (RFC 8305).
#[derive(Debug)]
pub struct TcpConnector {
    address: String,
    /// Other addresses of the server.
    alternatives: RwLock<Arc<[SocketAddr]>>,
    /// The server's name in messages.
    name: Arc<str>,
    config: ClientConfig,
    /// TLS, and the default for the name in the server's certificate.
    #[cfg(feature = "tls")]
    tls: Option<(ClientTls, String)>,
    /// The protocol that the TLS handshake negotiates.
    #[cfg(feature = "tls")]
    protocol: Alpn,
}

impl TcpConnector {
    /// Creates a connector to `host:port`. Each connection resolves the name anew.
    pub fn new(address: impl Into<String>, config: ClientConfig) -> Self {
        let address = address.into();
        Self {
            name: format!("tcp://{address}").into(),
            address,
            alternatives: RwLock::default(),
            config,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            protocol: Alpn::FARCALL,
        }
    }

    /// Wraps every connection in TLS. Unless `tls` names a server, its certificate must be for
    /// `host`; without `host`, for the host of the address.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(mut self, tls: ClientTls, host: Option<&str>) -> Self {
        let address_host =
            || self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        self.tls = Some((tls, host.unwrap_or_else(address_host).to_owned()));
        self
    }

    /// Makes the TLS handshake negotiate another protocol than farcall's. For streams that
    /// [`OpenStream`] opens.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_protocol(mut self, protocol: Alpn) -> Self {
        self.protocol = protocol;
        self
    }

    /// Returns all addresses of the server.
    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let mut addresses: Vec<_> = lookup_host(&*self.address).await?.collect();
        let alternatives = self.alternatives.read().clone();
        addresses.extend(&*alternatives);
        Ok(addresses)
    }

    /// Opens a stream to the first address that accepts.
    async fn open(&self) -> io::Result<TcpStream> {
        let finish = |stream| async { Ok(stream) };
        let opened = happy_eyeballs::connect(self.addresses().await?, TcpStream::connect, finish);
        opened.await.map_err(|error| error.unwrap_or_else(without_address))
    }

    /// Starts a connection over an open stream.
    fn start(&self, stream: TcpStream) -> io::Result<Box<dyn Bootstrap>> {
        #[cfg(feature = "tls")]
        if let Some((tls, host)) = &self.tls {
            let addresses = prepared(&stream)?;
            let socket = tls.connect(stream, host, [self.protocol].into())?;
            return Ok(Box::new(SocketBootstrap::new(socket, addresses)));
        }
        Ok(Box::new(bootstrap(stream)?))
    }

    /// Sets the server's name in messages. Use it if users know the server by another address than
    /// `tcp://host:port`.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into().into();
        self
    }
}

impl OpenStream for TcpConnector {
    fn open_stream(&self) -> BoxFuture<'_, io::Result<Box<dyn Bootstrap>>> {
        Box::pin(async {
            let opened =
                tokio::time::timeout(self.config.settings.handshake_timeout, self.open()).await;
            self.start(opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?)
        })
    }

    fn connect_by<'a>(&'a self, server: &'a str, handshake: &'a Handshake<'a>) -> Connecting<'a> {
        let unreachable = move |reason| {
            ConnectError::from(ConnectFault::Unreachable { address: server.to_owned(), reason })
        };
        Box::pin(async move {
            // Tells a timeout of the handshake from one before any address accepted. The two call
            // for different remedies.
            let is_open = AtomicBool::new(false);
            let open = |address| async move {
                let stream = TcpStream::connect(address).await;
                stream.and_then(|stream| self.start(stream)).map_err(unreachable)
            };
            let finish = |stream| {
                is_open.store(true, Ordering::Relaxed);
                handshake(stream)
            };
            let connected = async {
                let addresses = self.addresses().await.map_err(unreachable)?;
                let connected = happy_eyeballs::connect(addresses, open, finish).await;
                connected.map_err(|error| error.unwrap_or_else(|| unreachable(without_address())))
            };
            let timeout = self.config.settings.handshake_timeout;
            let connected = tokio::time::timeout(timeout, connected).await;
            connected.unwrap_or_else(|_| {
                let address = server.to_owned();
                Err(match is_open.load(Ordering::Relaxed) {
                    true => ConnectError::from(ConnectFault::TimedOut { address, timeout }),
                    false => unreachable(io::ErrorKind::TimedOut.into()),
                })
            })
        })
    }

    fn set_alternatives(&self, alternatives: &Arc<[SocketAddr]>) {
        let mut known = self.alternatives.write();
        known.clone_from(alternatives);
    }
}

impl Connect for TcpConnector {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn address(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn set_alternatives(&self, alternatives: &Arc<[SocketAddr]>) {
        OpenStream::set_alternatives(self, alternatives);
    }

    fn connect(&self, wanted: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        Box::pin(async move {
            self.config.policy.check_host(&wanted, &self.name).await?;
            let handshake = |bootstrap| -> Connecting<'_> {
                Box::pin(client::connect(bootstrap, &self.name, &self.config, wanted.clone()))
            };
            self.connect_by(&self.name, &handshake).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far longer than anything here takes.
    const HOUR: Duration = Duration::from_secs(3600);

    /// Both ends of a bootstrap: the one that listens, and the one that connects.
    #[tokio::test]
    async fn idle_peers_are_probed_by_the_kernel() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (connected, accepted) = tokio::join!(connecting, listener.accept());
        for stream in [connected.unwrap(), accepted.unwrap().0] {
            prepare(&stream).unwrap();
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), IDLE_PROBE_AFTER);
        }
    }

    /// A small frame waits behind everything that the kernel has accepted.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_accepts_little_for_a_slow_peer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (connected, accepted) = tokio::join!(connecting, listener.accept());
        let (stream, (peer, _)) = (connected.unwrap(), accepted.unwrap());
        prepare(&stream).unwrap();
        // This side does not control the size of the peer's own buffer.
        let peers_part = SockRef::from(&peer).recv_buffer_size().unwrap();
        stream.writable().await.unwrap();
        let (chunk, mut taken) = (vec![7; 64 << 10], 0);
        while let Ok(len) = stream.try_write(&chunk) {
            taken += len;
        }
        let max = peers_part + UNSENT_BYTES_MAX as usize + chunk.len();
        assert!((1..=max).contains(&taken), "{taken} bytes, where {max} are the most");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_address_that_drops_syns_does_not_hide_a_live_one() {
        use socket2::{Domain, Socket, Type};

        let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        silent.listen(0).unwrap();
        let dead = silent.local_addr().unwrap().as_socket().unwrap();
        // Takes the only slot of the backlog. The kernel drops all other SYNs.
        let _first = TcpStream::connect(dead).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap();
        let connector = TcpConnector::new(dead.to_string(), ClientConfig::default());
        OpenStream::set_alternatives(&connector, &Arc::from([live]));
        let opened = connector.open_stream().await.unwrap();
        assert_eq!(opened.addresses().peer, Some(live));
    }

    /// The kernel accepts, and no program reads. Only the race ends before the handshake timeout.
    #[tokio::test]
    async fn an_address_that_accepts_in_silence_does_not_hide_a_live_one() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = ClientConfig::with_settings(|it| it.handshake_timeout = HOUR);
        let connector = TcpConnector::new(silent.local_addr().unwrap().to_string(), config);
        OpenStream::set_alternatives(&connector, &Arc::from([live.local_addr().unwrap()]));
        let server = rpc_core::server::ServerParts::default()
            .build(rpc_core::server::ServerSettings::default());
        let serving = server.serve(TcpListener::from(live));
        let connecting = Connect::connect(&connector, Wanted::Best);
        tokio::select! {
            connected = connecting => assert!(connected.unwrap().is_open()),
            ended = serving => panic!("{ended:?}"),
        }
    }

    #[tokio::test]
    async fn listeners_made_by_the_program_accept() {
        let tokios = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stds = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for mut listener in [TcpListener::from(tokios), stds.try_into().unwrap()] {
            let address = listener.local_addr().unwrap();
            assert_ne!(address.port(), 0);
            let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let accepted = accepted.unwrap().unwrap().addresses();
            assert_eq!(accepted.peer, Some(client.unwrap().local_addr().unwrap()));
        }
    }

    #[test]
    fn a_listener_outside_a_runtime_is_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(TcpListener::try_from(listener).is_err());
    }
}
