//! From an address to a place where connections come in.

use std::io;

use futures::future::BoxFuture;
use rpc_core::connect::Bootstrap;
use rpc_core::inproc::InprocListener;
use rpc_core::server::{Listen, ListenerSettings};
use rpc_transport_tcp::{TcpListener, UnixListener};
use thiserror::Error;

use crate::server::SocketListener;
use crate::{Address, AddressError, Config, Rdma};

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
    /// A listener that the program has made cannot be served.
    #[error("cannot serve the listener: {reason}")]
    Listener {
        /// The operating system's reason.
        reason: io::Error,
    },
}

/// A listening address. A [`Server`](crate::Server) that serves it offers the paths that the
/// address names, under the [`Config`] that the endpoint was bound with. A setting of its builder
/// takes precedence over the `Config`'s. Its RDMA devices are the server's, unless
/// [`with_rdma`](Self::with_rdma) gives it others.
#[derive(Debug)]
pub struct Endpoint {
    address: Address,
    config: Config,
    rdma: Option<Rdma>,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
    Inproc(InprocListener),
}

async fn listen(address: &Address) -> io::Result<(Address, Socket)> {
    match address {
        Address::Inproc(name) => {
            let listener = InprocListener::bind(name.clone())?;
            Ok((address.clone(), Socket::Inproc(listener)))
        }
        Address::Unix(name) => {
            let listener = UnixListener::bind(name.clone())?;
            Ok((address.clone(), Socket::Unix(listener)))
        }
        Address::Auto(authority) | Address::Rdma(authority) | Address::Tcp(authority) => {
            let listener = TcpListener::bind(authority.as_str()).await?;
            let local = listener.local_addr()?.to_string();
            Ok((address.with_authority(local), Socket::Tcp(listener)))
        }
    }
}

impl Endpoint {
    /// Listens on `address` under the default rules. A server at an `rdma://` address takes clients
    /// that stay on TCP, too: which path is required is the client's decision.
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
        match listened {
            Ok((address, socket)) => {
                Ok(Endpoint { address, config: config.clone(), rdma: None, socket })
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
        Ok(Self { address, config: config.clone(), rdma: None, socket: Socket::Tcp(listener) })
    }

    pub(crate) fn of_unix(listener: UnixListener, config: &Config) -> Self {
        let address = Address::Unix(listener.name().to_owned());
        Self { address, config: config.clone(), rdma: None, socket: Socket::Unix(listener) }
    }

    /// Uses the RDMA devices of this handle, and not the server's.
    #[must_use]
    pub fn with_rdma(mut self, rdma: &Rdma) -> Self {
        self.rdma = Some(rdma.clone());
        self
    }

    /// The address listened on, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Prepares it to be served by a server with these RDMA devices.
    pub(crate) fn into_listener(self, rdma_of_server: &Rdma) -> EndpointListener {
        let Self { address, config, rdma, socket } = self;
        let mut settings = config.server();
        if let Address::Auto(_) | Address::Rdma(_) = address {
            settings.upgrades.push(rdma.as_ref().unwrap_or(rdma_of_server).upgrade());
        }
        EndpointListener { socket, settings }
    }
}

/// An endpoint that is being served.
#[derive(Debug)]
pub struct EndpointListener {
    socket: Socket,
    settings: ListenerSettings,
}

impl Listen for EndpointListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        match &mut self.socket {
            Socket::Tcp(listener) => listener.accept(),
            Socket::Unix(listener) => listener.accept(),
            Socket::Inproc(listener) => listener.accept(),
        }
    }

    fn settings(&self) -> ListenerSettings {
        self.settings.clone()
    }
}
