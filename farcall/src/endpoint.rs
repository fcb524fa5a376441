//! From an address to a place where connections come in.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use rpc_core::connect::{self, Bootstrap, Declined};
use rpc_core::inproc::InprocListener;
use rpc_core::server::{Listen, ListenerSettings};
use rpc_transport_tcp::{TcpListener, UnixListener};
use thiserror::Error;
use tokio::runtime::Handle;

use crate::server::IntoIncoming;
use crate::{Address, AddressError, Config};

/// An address that cannot be listened on.
#[derive(Debug, Error)]
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
    /// A listener that the program has made cannot be served.
    #[error("cannot serve the listener: {reason}")]
    Listener {
        /// The operating system's reason.
        reason: io::Error,
    },
}

/// A listening address. A [`Server`](crate::Server) that serves it offers the paths that the
/// address names, under the [`Config`] that the endpoint was bound with. A setting of its builder
/// takes precedence over the `Config`'s.
#[derive(Debug)]
pub struct Endpoint {
    address: Address,
    config: Config,
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
    Inproc(InprocListener),
}

async fn listen(address: &Address) -> io::Result<(Address, Listener)> {
    match address {
        Address::Inproc(name) => {
            let listener = InprocListener::bind(name.clone())?;
            Ok((address.clone(), Listener::Inproc(listener)))
        }
        Address::Unix(name) => {
            let listener = UnixListener::bind(name.clone())?;
            Ok((address.clone(), Listener::Unix(listener)))
        }
        Address::Auto(authority) | Address::Rdma(authority) | Address::Tcp(authority) => {
            let listener = TcpListener::bind(authority.as_str()).await?;
            let local = listener.local_addr()?.to_string();
            Ok((address.with_authority(local), Listener::Tcp(listener)))
        }
    }
}

impl Endpoint {
    /// Listens on `address` under the default rules. At an `auto://` or `rdma://` address it writes
    /// one line of INFO with the target `farcall::server`: which RDMA ports clients can have, or
    /// why none.
    ///
    /// A server at an `rdma://` address takes clients that stay on TCP, too: which path is required
    /// is the client's decision.
    ///
    /// # Errors
    ///
    /// When the address means nothing or the operating system refuses it, and for an `rdma://`
    /// address when RDMA is impossible, unless [`Config::with_rdma_required`] says otherwise.
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
    pub async fn bind<A>(address: A) -> Result<Self, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
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
    pub async fn bind_with<A>(address: A, config: &Config) -> Result<Self, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address: Address = address.try_into().map_err(AddressError::from)?;
        let listened = listen(&address).await;
        let (local, listener) = match listened {
            Ok(listened) => listened,
            Err(reason) => return Err(BindError::Refused { address, reason }),
        };
        let endpoint = Endpoint { address: local, config: config.clone(), listener };
        match endpoint.check_rdma().await {
            Ok(()) => Ok(endpoint),
            Err(Declined { reason, .. }) => Err(BindError::NoRdma { address, reason }),
        }
    }

    /// Asks which RDMA ports clients can have here, and logs it. Only where the answer decides
    /// whether to listen is it waited for: a device may take long to open.
    async fn check_rdma(&self) -> Result<(), Declined> {
        let is_required = matches!(self.address, Address::Rdma(_)) && self.config.rdma_required();
        if !is_required {
            self.announce_rdma();
            return Ok(());
        }
        let upgrade = self.config.rdma_upgrade();
        let offered = connect::offered(Arc::clone(&upgrade), self.local_ip()).await;
        if offered.is_ok() {
            connect::announce(&self.address, upgrade.name(), &offered);
        }
        offered.map(drop)
    }

    /// Has a task say which RDMA ports clients can have here, where a subscriber listens.
    fn announce_rdma(&self) {
        let offers = matches!(self.address, Address::Auto(_) | Address::Rdma(_));
        let runtime = Handle::try_current().ok().filter(|_| offers && connect::is_announced());
        let Some(runtime) = runtime else { return };
        let (upgrade, address) = (self.config.rdma_upgrade(), self.address.clone());
        let local = self.local_ip();
        runtime.spawn(async move {
            let offered = connect::offered(Arc::clone(&upgrade), local).await;
            connect::announce(&address, upgrade.name(), &offered);
        });
    }

    /// The address that clients connect to, unless it is every address of this host.
    fn local_ip(&self) -> Option<IpAddr> {
        let Listener::Tcp(listener) = &self.listener else { return None };
        let local = listener.local_addr().ok()?.ip();
        Some(local).filter(|local| !local.is_unspecified())
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
    pub fn from_listener<K>(
        listener: impl IntoIncoming<K, Incoming = Self>,
        config: &Config,
    ) -> Result<Self, BindError> {
        listener.into_incoming(config)
    }

    pub(crate) fn of_tcp(listener: TcpListener, config: &Config) -> io::Result<Self> {
        let address = Address::Auto(listener.local_addr()?.to_string());
        let endpoint = Self { address, config: config.clone(), listener: Listener::Tcp(listener) };
        endpoint.announce_rdma();
        Ok(endpoint)
    }

    pub(crate) fn of_unix(listener: UnixListener, config: &Config) -> Self {
        let address = Address::Unix(listener.name().to_owned());
        Self { address, config: config.clone(), listener: Listener::Unix(listener) }
    }

    /// The address listened on, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Listen for Endpoint {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        match &mut self.listener {
            Listener::Tcp(listener) => listener.accept(),
            Listener::Unix(listener) => listener.accept(),
            Listener::Inproc(listener) => listener.accept(),
        }
    }

    fn settings(&self) -> ListenerSettings {
        let rdma = match self.address {
            Address::Auto(_) | Address::Rdma(_) => Some(self.config.rdma_upgrade()),
            Address::Tcp(_) | Address::Unix(_) | Address::Inproc(_) => None,
        };
        let mut settings = self.config.server();
        settings.upgrades = rdma.into_iter().collect();
        settings
    }
}
