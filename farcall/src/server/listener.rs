//! A server at its address.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use rpc_core::InvalidSetting;
use rpc_core::connect::{self, Bootstrap, Declined};
use rpc_core::server::{Listen, Offers, OtherProtocol};
use rpc_transport_tcp::{ProxyNetworks, SocketAccess};

use super::admin::AdminState;
#[cfg(feature = "grpc")]
use super::admin::pages;
use super::error::ServeFault;
use super::offer::Offer;
use super::socket::{Socket, SocketListener};
use super::{Serve, ServeError, Server, ServerSettings};
use crate::rdma::Refusal;
use crate::{Address, tls};

/// A server that listens, and accepts no connection until its [`Serve`] is polled.
///
/// Connections that clients make meanwhile wait in the operating system's backlog.
///
/// # Examples
///
/// A server at a port that the operating system chooses, as tests want it:
///
/// ```
/// # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn std::error::Error>> {
/// let listener = farcall::Server::builder().add_service(service).bind("tcp://127.0.0.1:0").await?;
/// let address = listener.local_address().to_string();
/// let serving = tokio::spawn(listener.serve());
/// let channel = farcall::Channel::connect(&address).await?;
/// # drop((channel, serving));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    server: Server,
    address: Address,
    socket: Socket,
    /// RDMA, if clients at this address may ask for it.
    offer: Option<Offer>,
    /// True if the log has the ports of `offer`.
    is_announced: bool,
}

impl Listener {
    pub(super) async fn bind(server: Server, requested: Address) -> Result<Self, ServeError> {
        let settings = &server.settings;
        let owner = settings.socket_owner.clone();
        let access = SocketAccess { mode: settings.socket_mode, owner };
        let bound = Socket::bind(&requested, &access).await;
        let (address, socket) = match bound {
            Ok(bound) => bound,
            Err(reason) => return Err(ServeFault::Refused { address: requested, reason }.into()),
        };
        let is_required = matches!(address, Address::Rdma(_)) && settings.base.rdma_required;
        let mut listener = Self::new(server, &requested, address, socket)?;
        if is_required && let Some(offer) = &listener.offer {
            let refused =
                |Declined { reason, .. }| ServeFault::NoRdma { address: requested, reason };
            offer.check().await.map_err(refused)?;
            listener.is_announced = true;
        }
        Ok(listener)
    }

    pub(super) fn from_socket(
        server: Server,
        socket: impl SocketListener,
    ) -> Result<Self, ServeError> {
        let socket = socket.into_socket();
        let (address, socket) = socket.map_err(|reason| ServeFault::Listener { reason })?;
        Self::new(server, &address.clone(), address, socket)
    }

    /// Rejects settings of `server` that exclude each other there. Errors name the address as
    /// `requested`.
    fn new(
        server: Server,
        requested: &Address,
        address: Address,
        socket: Socket,
    ) -> Result<Self, ServeError> {
        let (settings, is_tcp) = (&server.settings, matches!(socket, Socket::Tcp(_)));
        let is_encrypted = settings.base.require_encryption;
        if !is_tcp && !settings.proxy_protocol.from.is_empty() {
            let (address, reason) = (requested.clone(), PROXIES_WITHOUT_TCP);
            return Err(ServeFault::ProxyProtocol { address, reason }.into());
        }
        if let Some(reason) = refusal(is_tcp, server.tls.is_some(), is_encrypted) {
            return Err(ServeFault::Encryption { address: requested.clone(), reason }.into());
        }
        let offers_rdma = matches!(address, Address::Auto(_) | Address::Rdma(_));
        let offer = offers_rdma.then(|| Offer {
            address: address.clone(),
            local: socket.local_ip(),
            upgrade: match is_encrypted {
                true => Arc::new(Refusal::by_setting()),
                false => server.rdma.upgrade(),
            },
        });
        Ok(Self { server, address, socket, offer, is_announced: false })
    }

    /// Returns the address with the port that was taken.
    #[must_use]
    pub fn local_address(&self) -> &Address {
        &self.address
    }

    /// Returns the server, which tells later what it is doing.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Serves the connections of this listener; [`Serve`] says until when.
    pub fn serve(self) -> Serve {
        Serve::new(|shutdown| self.run(shutdown))
    }

    pub(super) async fn run(self, shutdown: BoxFuture<'static, ()>) -> Result<(), ServeError> {
        let (server, address) = (self.server.clone(), self.address.clone());
        let served = server.serve_until(self.into_incoming(), shutdown).await;
        served.map_err(|reason| ServeFault::Accept { address, reason }.into())
    }

    /// Logs where the server listens, and prepares the socket. It is public for tests that accept
    /// connections themselves.
    #[doc(hidden)]
    #[must_use]
    pub fn into_incoming(self) -> Incoming {
        let Self { server, address, socket, offer, is_announced } = self;
        let Server { settings, tls, admin, .. } = server;
        let mut offers = Offers::default();
        offers.upgrades.extend(offer.as_ref().map(|offer| Arc::clone(&offer.upgrade)));
        match offer {
            None => connect::announce(&address, None),
            Some(_) if is_announced => {}
            Some(offer) => offer.announce(),
        }
        // No client of gRPC comes from inside the process.
        if !matches!(socket, Socket::Inproc(_)) {
            offers.protocols = protocols(&settings, admin.as_ref());
        }
        let socket = match socket {
            Socket::Tcp(listener) => {
                let proxies = checked(ProxyNetworks::new(&settings.proxy_protocol.from));
                let listener = listener.with_proxies(proxies);
                Socket::Tcp(tls::listener(listener, tls, &offers.protocols))
            }
            socket => socket,
        };
        Incoming { socket, offers }
    }
}

/// Returns a setting that was checked when it was set.
fn checked<T>(setting: Result<T, InvalidSetting>) -> T {
    setting.unwrap_or_else(|error| unreachable!("it was checked: {error}"))
}

/// Returns the protocols beside farcall's own.
#[cfg(feature = "grpc")]
fn protocols(
    settings: &ServerSettings,
    admin: Option<&Arc<AdminState>>,
) -> Vec<Arc<dyn OtherProtocol>> {
    use rpc_transport_grpc::{GrpcPort, Http1Port, WebOrigins};

    if !settings.grpc_clients {
        return Vec::new();
    }
    let origins = checked(WebOrigins::new(&settings.grpc_web_origins));
    let port = GrpcPort::default().with_web_origins(&origins).with_pages(pages(admin));
    let http1 = Http1Port::default().with_web_origins(&origins).with_pages(pages(admin));
    vec![Arc::new(port), Arc::new(http1)]
}

#[cfg(not(feature = "grpc"))]
fn protocols(_: &ServerSettings, _: Option<&Arc<AdminState>>) -> Vec<Arc<dyn OtherProtocol>> {
    Vec::new()
}

/// The reason why connections that do not come over TCP cannot have a proxy's header.
pub(super) const PROXIES_WITHOUT_TCP: &str =
    "proxy_protocol needs TCP, and connections there have no address: remove it";

/// Returns the reason why connections cannot be encrypted as required.
pub(super) fn refusal(is_tcp: bool, has_tls: bool, is_required: bool) -> Option<&'static str> {
    match has_tls {
        true if !is_tcp => {
            Some("connections there do not leave the host and have no TLS: remove `tls`")
        }
        false if is_tcp && is_required => {
            Some("require_encryption is set, but the server has no `tls`")
        }
        _ => None,
    }
}

/// A socket with what its clients may ask for.
#[derive(Debug)]
pub struct Incoming {
    socket: Socket,
    offers: Offers,
}

impl Listen for Incoming {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        self.socket.accept()
    }

    fn offers(&self) -> Offers {
        self.offers.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use futures::channel::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_server_listens_takes_a_client_and_shuts_down() {
        let listener = Server::builder().bind("tcp://127.0.0.1:0").await.unwrap();
        let address = listener.local_address().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(listener.serve().with_graceful_shutdown(async {
            let _ = stopped.await;
        }));
        let channel = crate::Channel::connect(&address).await.unwrap();
        stop.send(()).unwrap();
        serving.await.unwrap().unwrap();
        drop(channel);
    }

    #[tokio::test]
    async fn a_socket_address_is_auto() {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Server::builder().bind(address).await.unwrap();
        let bound = listener.local_address().to_string();
        assert!(bound.starts_with("auto://127.0.0.1:") && !bound.ends_with(":0"), "{bound}");
    }

    #[tokio::test]
    async fn an_address_in_use_is_named_and_its_reason_is_said_once() {
        let first = Server::builder().bind("tcp://127.0.0.1:0").await.unwrap();
        let address = first.local_address().to_string();
        let error = Server::builder().serve(&address).await.unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&format!("cannot listen on {address}: ")), "{message}");
        assert!(error.source().is_none(), "a report with causes would repeat it: {error:?}");
    }
}
