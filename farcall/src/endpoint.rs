//! From an address to a place where connections come in.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use rpc_core::connect::{self, Bootstrap, Declined, Upgrade};
use rpc_core::inproc::InprocListener;
use rpc_core::server::{Listen, ListenerSettings};
use rpc_transport_tcp::{SocketAccess, TcpListener, UnixListener};
use thiserror::Error;
use tokio::runtime::Handle;

use crate::rdma::{Rdma, Refusal};
use crate::tls::{self, ServerTls};
use crate::{Address, AddressError, Config, IntoAddress};

/// An address that cannot be listened on.
#[derive(Error)]
#[non_exhaustive]
pub enum BindError {
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The operating system refuses the address.
    #[error("cannot listen on {address}: {reason}")]
    Refused {
        /// The address.
        address: Address,
        /// The operating system's reason.
        reason: io::Error,
    },
    /// RDMA is impossible here, and the address requires it.
    #[error(
        "cannot listen on {address}: RDMA is required and not possible: {reason}; to serve clients \
         over TCP, listen at auto://, or set rdma_required to false"
    )]
    NoRdma {
        /// The address.
        address: Address,
        /// What is missing.
        reason: String,
    },
    /// What the server is to do about encryption, and cannot do there.
    #[error("cannot listen on {address}: {reason}")]
    Encryption {
        /// The address.
        address: Address,
        /// The settings that exclude each other, and the fix.
        reason: &'static str,
    },
    /// Proxies are to say who the clients are, and the address is not of TCP.
    #[error("cannot listen on {address}: {reason}")]
    ProxyProtocol {
        /// The address.
        address: Address,
        /// The settings that exclude each other, and the fix.
        reason: &'static str,
    },
    /// A server with `proxy_protocol` was given byte streams that the program accepts itself.
    #[error(
        "cannot serve byte streams that the program accepts itself with proxy_protocol: the \
         program reads what their proxy says"
    )]
    ProxiedStreams,
    /// A server with `tls`, or one that requires encryption, was given byte streams that the
    /// program accepts itself.
    #[error(
        "cannot serve byte streams that the program accepts itself under `tls` or \
         require_encryption: what encrypts them is the program's business"
    )]
    Streams,
    /// A setting names a method or a service that the server does not have.
    #[error("{reason}")]
    Method {
        /// The name, where it was set if a file has it, and what the server has.
        reason: String,
    },
    /// A listener that the program has made cannot be served.
    #[error("cannot serve the listener: {reason}")]
    Listener {
        /// The operating system's reason.
        reason: io::Error,
    },
}

rpc_core::readable_debug!(BindError);

/// A listening socket that the program made: a `TcpListener` or `UnixListener` of tokio or the
/// standard library.
///
/// A listener of the standard library is made non-blocking. That includes the listeners that a
/// service manager hands over (systemd's socket activation). The file of a Unix socket stays.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no listening socket",
    note = "a `TcpListener` or `UnixListener` of tokio or the standard library is one"
)]
pub trait SocketListener {
    /// Makes it ready to be served under the rules of `config`.
    #[doc(hidden)]
    fn into_endpoint(self, config: &Config) -> Result<Endpoint, BindError>;
}

fn refused(reason: io::Error) -> BindError {
    BindError::Listener { reason }
}

impl SocketListener for tokio::net::TcpListener {
    fn into_endpoint(self, config: &Config) -> Result<Endpoint, BindError> {
        Endpoint::of_tcp(self.into(), config).map_err(refused)
    }
}

impl SocketListener for std::net::TcpListener {
    fn into_endpoint(self, config: &Config) -> Result<Endpoint, BindError> {
        let listener = self.try_into().map_err(refused)?;
        Endpoint::of_tcp(listener, config).map_err(refused)
    }
}

impl SocketListener for tokio::net::UnixListener {
    fn into_endpoint(self, config: &Config) -> Result<Endpoint, BindError> {
        Ok(Endpoint::of_unix(self.try_into().map_err(refused)?, config))
    }
}

impl SocketListener for std::os::unix::net::UnixListener {
    fn into_endpoint(self, config: &Config) -> Result<Endpoint, BindError> {
        Ok(Endpoint::of_unix(self.try_into().map_err(refused)?, config))
    }
}

/// A listening address. A [`Server`](crate::Server) that serves it offers the paths that the
/// address names, under the [`Config`] that the endpoint was bound with. A setting of its builder
/// takes precedence over the `Config`'s. Its RDMA devices are the server's, unless
/// [`with_rdma`](Self::with_rdma) gives it others.
#[derive(Debug)]
pub struct Endpoint {
    address: Address,
    /// The same as the program wrote it: errors name that.
    asked: Address,
    config: Config,
    rdma: Option<Rdma>,
    tls: Option<ServerTls>,
    rdma_check: RdmaCheck,
    socket: Socket,
}

/// Whether it has been asked, and logged, which RDMA ports clients can have here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RdmaCheck {
    Due,
    Done,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
    Inproc(InprocListener),
}

impl Socket {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        match self {
            Self::Tcp(listener) => listener.accept(),
            Self::Unix(listener) => listener.accept(),
            Self::Inproc(listener) => listener.accept(),
        }
    }

    /// Whether clients of gRPC may connect here: no such client comes from inside the process.
    fn is_shared_with_grpc(&self) -> bool {
        !matches!(self, Self::Inproc(_))
    }

    /// The address that clients connect to, unless it is every address of this host.
    fn local_ip(&self) -> Option<IpAddr> {
        let Self::Tcp(listener) = self else { return None };
        let local = listener.local_addr().ok()?.ip();
        Some(local).filter(|local| !local.is_unspecified())
    }
}

async fn listen(address: &Address, access: &SocketAccess) -> io::Result<(Address, Socket)> {
    if !access.is_default() && !matches!(address, Address::Unix(_)) {
        let message = "socket_mode and socket_owner are for the file of unix:///path";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    match address {
        Address::Inproc(name) => {
            let listener = InprocListener::bind(name.clone())?;
            Ok((address.clone(), Socket::Inproc(listener)))
        }
        Address::Unix(name) => {
            let listener = UnixListener::bind_with(name.clone(), access)?;
            Ok((address.clone(), Socket::Unix(listener)))
        }
        Address::Auto(authority) | Address::Rdma(authority) | Address::Tcp(authority) => {
            let listener = TcpListener::bind(authority.as_str()).await?;
            let local = listener.local_addr()?.to_string();
            Ok((address.with_authority(local), Socket::Tcp(listener)))
        }
        Address::Grpc(authority) | Address::Grpcs(authority) => {
            let words = format!("it is a channel's address: listen at tcp://{authority}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, words))
        }
        Address::Dns(_) | Address::Etcd(_) | Address::Xds(_) | Address::List(_) => {
            let words = "it names several servers, which a channel chooses among";
            Err(io::Error::new(io::ErrorKind::InvalidInput, words))
        }
    }
}

impl Endpoint {
    /// Listens on `address` under the default rules. A server at an `rdma://` address takes clients
    /// that stay on TCP, too: which path is required is the client's decision.
    ///
    /// A server that begins to serve an endpoint writes one line of INFO with the target
    /// `farcall::server`: the address with the port that was taken, and at `auto://` and `rdma://`
    /// which RDMA ports clients can have, or why none. At `rdma://` it ends with an error where
    /// RDMA is impossible, unless [`Config::with_rdma_required`] says otherwise.
    ///
    /// # Errors
    ///
    /// When the address means nothing or the operating system refuses it.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is left behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn std::error::Error>>
    /// { let endpoint = farcall::Endpoint::bind("auto://0.0.0.0:7000").await?;
    /// let server = farcall::Server::builder().add_service(service).build();
    /// server.serve(endpoint).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn bind(address: impl IntoAddress) -> Result<Self, BindError> {
        Self::bind_with(address, &Config::default()).await
    }

    /// Listens on `address` under the rules of `config`.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::bind`].
    ///
    /// # Cancel safety
    ///
    /// As [`Endpoint::bind`].
    pub async fn bind_with(address: impl IntoAddress, config: &Config) -> Result<Self, BindError> {
        let address = address.into_address()?;
        let listened = listen(&address, config.socket_access()).await;
        match listened {
            Ok((local, socket)) => {
                Ok(Self { asked: address, ..Self::of_socket(local, config, socket) })
            }
            Err(reason) => Err(BindError::Refused { address, reason }),
        }
    }

    /// Serves a TCP or Unix listener that the program has made, under the rules of `config`. Where
    /// it listens on TCP, clients may ask for RDMA, as at an `auto://` address.
    ///
    /// # Errors
    ///
    /// When the operating system does not tell the listener's address, or refuses to make it
    /// non-blocking; for listeners of the standard library also outside of a tokio runtime.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::error::Error;
    /// # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn Error>> {
    /// use farcall::{Config, Endpoint, Server};
    ///
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let endpoint = Endpoint::from_listener(listener, &Config::default())?;
    /// println!("listening on {}", endpoint.address());
    /// Server::builder().add_service(service).build().serve(endpoint).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_listener(
        listener: impl SocketListener,
        config: &Config,
    ) -> Result<Self, BindError> {
        listener.into_endpoint(config)
    }

    pub(crate) fn of_tcp(listener: TcpListener, config: &Config) -> io::Result<Self> {
        let address = Address::Auto(listener.local_addr()?.to_string());
        Ok(Self::of_socket(address, config, Socket::Tcp(listener)))
    }

    pub(crate) fn of_unix(listener: UnixListener, config: &Config) -> Self {
        let address = Address::Unix(listener.name().to_owned());
        Self::of_socket(address, config, Socket::Unix(listener))
    }

    fn of_socket(address: Address, config: &Config, socket: Socket) -> Self {
        let (asked, config, rdma_check) = (address.clone(), config.clone(), RdmaCheck::Due);
        Self { address, asked, config, rdma: None, tls: None, rdma_check, socket }
    }

    /// Uses the RDMA devices of this handle, and not the server's.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    #[must_use]
    pub fn with_rdma(mut self, rdma: &Rdma) -> Self {
        self.rdma = Some(rdma.clone());
        self
    }

    /// Uses this TLS, and not the server's.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(mut self, tls: &ServerTls) -> Self {
        self.tls = Some(tls.clone());
        self
    }

    /// Takes the server's TLS, unless it has its own, and refuses what cannot be together. What
    /// the server requires holds here, too, whatever the endpoint was bound with.
    pub(crate) fn secured(
        mut self,
        server: &Config,
        of_server: Option<&ServerTls>,
    ) -> Result<Self, BindError> {
        self.tls = self.tls.or_else(|| of_server.cloned());
        if server.require_encryption() {
            self.config = self.config.with_require_encryption(true);
        }
        let is_tcp = matches!(self.socket, Socket::Tcp(_));
        if !is_tcp && !self.config.proxy_protocol().is_empty() {
            let (address, reason) = (self.asked, PROXIES_WITHOUT_TCP);
            return Err(BindError::ProxyProtocol { address, reason });
        }
        match refusal(is_tcp, self.tls.is_some(), self.config.require_encryption()) {
            None => Ok(self),
            Some(reason) => Err(BindError::Encryption { address: self.asked, reason }),
        }
    }

    /// The address listened on, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Asks at once whether RDMA is possible, where the address requires it.
    pub(crate) async fn with_rdma_checked(mut self, of_server: &Rdma) -> Result<Self, BindError> {
        if let Some(offer) = self.offer(of_server).filter(|offer| offer.is_required) {
            offer.check().await?;
            self.rdma_check = RdmaCheck::Done;
        }
        Ok(self)
    }

    /// What the endpoint offers beside TCP, if its address has clients ask for it.
    fn offer(&self, of_server: &Rdma) -> Option<Offer> {
        if !matches!(self.address, Address::Auto(_) | Address::Rdma(_)) {
            return None;
        }
        let is_rdma = matches!(self.address, Address::Rdma(_));
        Some(Offer {
            address: self.address.clone(),
            asked: self.asked.clone(),
            local: self.socket.local_ip(),
            upgrade: match self.config.require_encryption() {
                true => Arc::new(Refusal::by_setting()),
                false => self.rdma.as_ref().unwrap_or(of_server).upgrade(),
            },
            is_required: is_rdma && self.config.rdma_required(),
        })
    }

    /// Prepares it to be served by a server with these RDMA devices.
    pub(crate) fn into_listener(self, of_server: &Rdma) -> EndpointListener {
        let (offer, mut settings) = (self.offer(of_server), self.config.server());
        if offer.is_none() {
            connect::announce(&self.address, None);
        }
        settings.upgrades.extend(offer.as_ref().map(|offer| Arc::clone(&offer.upgrade)));
        if self.socket.is_shared_with_grpc() {
            settings.protocols = self.config.protocols();
        }
        let unchecked = offer.filter(|_| self.rdma_check == RdmaCheck::Due);
        let socket = match self.socket {
            Socket::Tcp(listener) => {
                let listener = listener.with_proxies(self.config.proxies().clone());
                Socket::Tcp(tls::listener(listener, self.tls, &settings.protocols))
            }
            socket => socket,
        };
        EndpointListener { socket, settings, unchecked }
    }
}

/// Why connections that do not come over TCP cannot have a proxy's header.
pub(crate) const PROXIES_WITHOUT_TCP: &str =
    "proxy_protocol is for TCP, and connections there have no address: leave it out";

/// Why connections cannot be accepted with what is asked of their encryption.
pub(crate) fn refusal(is_tcp: bool, has_tls: bool, is_required: bool) -> Option<&'static str> {
    match has_tls {
        true if !is_tcp => {
            Some("TLS is for TCP, and connections there do not leave the host: leave `tls` out")
        }
        false if is_tcp && is_required => {
            Some("require_encryption is set, and the server has no `tls`")
        }
        _ => None,
    }
}

/// RDMA, as an endpoint offers it to its clients.
#[derive(Debug)]
struct Offer {
    address: Address,
    asked: Address,
    /// The address that clients connect to, unless it is every address of this host.
    local: Option<IpAddr>,
    upgrade: Arc<dyn Upgrade>,
    /// Whether the server does not start without it.
    is_required: bool,
}

impl Offer {
    /// Asks which ports clients can have, and logs it.
    async fn check(&self) -> Result<(), BindError> {
        let offered = connect::offered(Arc::clone(&self.upgrade), self.local).await;
        if offered.is_ok() {
            connect::announce(&self.address, Some(&offered));
        }
        let address = self.asked.clone();
        let refused = |Declined { reason, .. }| BindError::NoRdma { address, reason };
        offered.map(drop).map_err(refused)
    }

    /// Has a task say which ports clients can have, where a subscriber listens. The server does not
    /// wait for it: a device may take long to open.
    fn announce(self) {
        let runtime = Handle::try_current().ok().filter(|_| connect::is_announced());
        let Some(runtime) = runtime else { return };
        runtime.spawn(async move {
            let offered = connect::offered(Arc::clone(&self.upgrade), self.local).await;
            connect::announce(&self.address, Some(&offered));
        });
    }
}

/// An endpoint that is being served.
#[derive(Debug)]
pub struct EndpointListener {
    socket: Socket,
    settings: ListenerSettings,
    /// Present until it was asked and logged which RDMA ports clients can have.
    unchecked: Option<Offer>,
}

impl EndpointListener {
    /// Fails for ever where RDMA is required and impossible. Cancelled, it asks again.
    async fn check(&mut self) -> io::Result<()> {
        if let Some(offer) = self.unchecked.take_if(|offer| !offer.is_required) {
            offer.announce();
        }
        if let Some(offer) = &self.unchecked {
            let checked = offer.check().await;
            checked.map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error))?;
            self.unchecked = None;
        }
        Ok(())
    }
}

impl Listen for EndpointListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        if self.unchecked.is_none() {
            return self.socket.accept();
        }
        Box::pin(async {
            self.check().await?;
            self.socket.accept().await
        })
    }

    fn settings(&self) -> ListenerSettings {
        self.settings.clone()
    }
}
