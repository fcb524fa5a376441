//! The settings of a channel.

mod encryption;
#[cfg(feature = "settings")]
mod live;
mod methods;
mod schemes;

use std::io;
use std::sync::Arc;

use rpc_core::client::attempts::ServiceConfig;
use rpc_core::client::endpoints::Endpoints;
use rpc_core::client::{
    CallRules, ChannelParts, ChannelSettings, ClientConfig, ConfiguredNames, Credentials,
    Subchannel, Target, TargetRules, Watched,
};
use rpc_core::connect::{ConnectFault, UpgradePolicy};
use rpc_core::inproc::InprocConnector;
use rpc_core::metrics::ChannelMeters;
use rpc_core::settings::{Layers, expect_valid};
#[cfg(feature = "grpc")]
use rpc_transport_grpc::{GrpcConnector, Scheme};
use rpc_transport_tcp::{StreamConnector, TcpConnector, UnixConnector};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::Channel;
use super::encryption::{Encryption, RequiredBy, ServiceName};
use super::live::{LiveTarget, attempts};
use super::resolvers::resolver_of;
use crate::balance::Endpoint;
use crate::rdma::Rdma;
use crate::resolve::{CustomSchemes, Resolve};
#[cfg(feature = "grpc")]
use crate::tls;
use crate::tls::ClientTls;
use crate::{Address, ConnectError, Limits};

/// The settings of a channel; made by [`Channel::builder`].
///
/// # Examples
///
/// ```no_run
/// # fn example() -> Result<(), farcall::AddressError> {
/// use std::time::Duration;
///
/// let channel = farcall::Channel::builder("auto://inventory:7000")?
///     .max_message_len(64 << 20)
///     .timeout(Duration::from_secs(2))
///     .connect_lazy();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ChannelBuilder {
    address: Address,
    /// Boxed, since a future that connects holds the builder.
    layers: Box<Layers<ChannelSettings>>,
    rdma: Option<Rdma>,
    tls: Option<ClientTls>,
    credentials: Credentials,
    /// Set if the credentials may travel over unencrypted connections.
    are_credentials_shown: bool,
    /// The target of settings that may change, in the place of `address` and of the file's layer.
    live: Option<Arc<LiveTarget>>,
    service: ServiceLayers,
    /// The schemes of addresses beside farcall's own.
    schemes: CustomSchemes,
}

/// The layers of settings by method. Code takes precedence over the file.
#[derive(Debug, Clone, Default)]
struct ServiceLayers {
    file: ServiceConfig,
    code: Option<ServiceConfig>,
}

impl ServiceLayers {
    fn resolve(&self) -> &ServiceConfig {
        self.code.as_ref().unwrap_or(&self.file)
    }

    /// Changes the layer of code, which begins with what the file has.
    fn change(&mut self, change: impl FnOnce(ServiceConfig) -> ServiceConfig) {
        let service = self.code.take().unwrap_or_else(|| self.file.clone());
        self.code = Some(change(service));
    }
}

/// Returns the scheme of an address: HTTP/2 with or without TLS.
#[cfg(feature = "grpc")]
fn scheme(address: &Address) -> Scheme {
    match address {
        Address::Grpcs(_) => Scheme::Tls,
        _ => Scheme::Plain,
    }
}

impl ChannelBuilder {
    /// The default settings of a channel to `address`; [`Channel::builder`] takes text, too.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            layers: Box::default(),
            rdma: None,
            tls: None,
            credentials: Credentials::default(),
            are_credentials_shown: false,
            live: None,
            service: ServiceLayers::default(),
            schemes: CustomSchemes::default(),
        }
    }

    rpc_core::channel_settings! { rpc_core::builder_setters [layers.code] }

    /// Returns the settings: what the setters set, over what a settings file says, over the
    /// defaults.
    #[must_use]
    pub fn settings(&self) -> ChannelSettings {
        self.layers.resolve()
    }

    /// Uses the RDMA devices of this handle, which other channels and servers may share. Without
    /// one the channel uses the process-wide handle, [`Rdma::default`]. An address that asks for no
    /// RDMA leaves the handle alone.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    pub fn rdma(mut self, rdma: &Rdma) -> Self {
        self.rdma = Some(rdma.clone());
        self
    }

    /// Sets the longest response message accepted, in bytes of its encoding; 4 MiB by default. The
    /// server's own limit holds for requests.
    ///
    /// # Panics
    ///
    /// Panics if `bytes` is 0.
    #[track_caller]
    pub fn max_message_len(mut self, bytes: u64) -> Self {
        expect_valid(Limits::default().with_max_message_len(bytes).check());
        self.layers.code.limits.max_message_len = Some(bytes);
        self
    }

    /// The address that the channel will connect to.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Makes a channel that connects at its first call.
    #[must_use]
    pub fn connect_lazy(self) -> Channel {
        if let Some(target) = &self.live {
            let resolver = target.resolver(&self.schemes);
            return self.connect_with_resolver(resolver);
        }
        if self.is_balanced() {
            let resolver = resolver_of(&self.address, &self.schemes);
            return self.connect_with_resolver(resolver);
        }
        let (rules, made) = self.prepare();
        let subchannel = subchannel_to(&made.address, rules, &made.encryption);
        made.finish(subchannel)
    }

    /// Connects now; to many servers, until one is connected.
    ///
    /// # Errors
    ///
    /// Returns [`ConnectError`] if no server accepts at the address, the handshake fails, or RDMA
    /// is required and not possible.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: cancelled, it closes what it has opened.
    pub async fn connect(self) -> Result<Channel, ConnectError> {
        let address = self.address.to_string();
        if self.live.is_none()
            && !self.is_balanced()
            && let Some(reason) = self.encryption().refusal(&self.address)
        {
            return Err(ConnectError::from(ConnectFault::Address {
                address,
                reason: reason.to_owned(),
            }));
        }
        let channel = self.connect_lazy();
        channel.0.connected(&address).await?;
        Ok(channel)
    }

    /// Makes a channel to the servers that `resolver` tells, each call to one of them. The
    /// addresses of its endpoints are those of single servers, as `auto://10.0.0.1:7000`. The
    /// builder's own address is not used.
    ///
    /// The channel resolves and connects at its first call.
    #[must_use]
    pub fn connect_with_resolver(self, resolver: impl Resolve) -> Channel {
        let (encryption, names, parts) = (self.encryption(), self.names(), self.parts());
        let settings = Arc::new(self.settings());
        let (rdma, balance) = (self.rdma.unwrap_or_default(), settings.balance.clone());
        let make = move |endpoint: &Endpoint| {
            let config = |policy| {
                let (settings, names) = (Arc::clone(&settings), names.clone());
                ClientConfig { settings, policy, names }
            };
            match endpoint.address.parse::<Address>() {
                Ok(address) => {
                    let config = config(encryption.policy_of(&address, Some(&rdma)));
                    subchannel_to(&address, config, &encryption)
                }
                // Calls are not sent there, since it never connects.
                Err(error) => {
                    refusing(&endpoint.address, config(UpgradePolicy::Never), error.to_string())
                }
            }
        };
        let target = Target::Balanced(Endpoints::new(resolver, balance, make));
        Channel(rpc_core::Channel::from_parts(target, parts))
    }

    /// Makes a channel whose connections are the byte streams that `open` opens, one at each
    /// attempt to connect: through a proxy, by TLS, to a virtual socket or in memory. The address
    /// is what messages call the server. Under `grpc://` and `grpcs://` the streams carry gRPC over
    /// HTTP/2; the program encrypts those of `grpcs://`.
    ///
    /// Under `auto://` and `rdma://` a stream that is a `TcpStream` of tokio is upgraded to RDMA as
    /// the address says; any other has no addresses, and under `rdma://` that is an error.
    ///
    /// The channel connects at its first call. An attempt that is not over within the handshake
    /// timeout is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example() -> Result<(), farcall::AddressError> {
    /// use tokio::net::TcpStream;
    ///
    /// let channel = farcall::Channel::builder("tcp://backend:7000")?
    ///     .connect_with_connector(|| async { TcpStream::connect("10.0.0.1:7000").await });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn connect_with_connector<F, Fut, IO>(self, open: F) -> Channel
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<IO>> + Send + 'static,
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (rules, made) = self.prepare();
        let address = made.address.to_string();
        let subchannel = match (made.encryption.stream_refusal(), &made.address) {
            (Some(reason), _) => refusing(&address, rules, reason.to_owned()),
            #[cfg(feature = "grpc")]
            (None, Address::Grpc(authority) | Address::Grpcs(authority)) => {
                let streams = StreamConnector::new(address.clone(), rules.clone(), open);
                let scheme = scheme(&made.address);
                let connector = GrpcConnector::new(scheme, authority.as_str(), streams, rules);
                Subchannel::new(connector.with_name(address))
            }
            #[cfg(not(feature = "grpc"))]
            (None, Address::Grpc(_) | Address::Grpcs(_)) => {
                let reason = "this program was built without farcall's feature `grpc`".to_owned();
                refusing(&address, rules, reason)
            }
            (None, _) => Subchannel::new(StreamConnector::new(address, rules, open)),
        };
        made.finish(subchannel)
    }

    /// Returns true if calls go to many servers, or over several connections.
    fn is_balanced(&self) -> bool {
        self.address.names_many() || self.settings().balance.connections > 1
    }

    /// Returns the requirements on encryption.
    fn encryption(&self) -> Encryption {
        let required_by = if self.settings().require_encryption {
            Some(RequiredBy::Setting)
        } else if self.credentials.are_there() && !self.are_credentials_shown {
            Some(RequiredBy::Credentials)
        } else {
            None
        };
        let name = ServiceName::new(&self.address, &self.schemes);
        Encryption::new(required_by, self.tls.clone(), name)
    }

    /// The names in the service config, which all connections of the channel share.
    fn names(&self) -> Option<Arc<ConfiguredNames>> {
        Some(match (&self.live, &self.service.code) {
            (Some(target), None) => Arc::clone(&target.names),
            _ => Arc::new(ConfiguredNames::new(self.service.resolve())),
        })
    }

    /// Returns the parts of the channel beside its target.
    fn parts(&self) -> ChannelParts {
        let calls = CallRules::new(&self.settings());
        let watched = |target: &Arc<LiveTarget>| Watched {
            code: Arc::new(self.layers.code.clone()),
            has_own_policies: self.service.code.is_some(),
            ..Watched::new(Arc::clone(&target.rules), Arc::clone(target) as _)
        };
        ChannelParts {
            rules: TargetRules { calls, policies: attempts(self.service.resolve().clone()) },
            watched: self.live.as_ref().map(watched),
            credentials: self.credentials.clone(),
            meters: self.meters(),
        }
    }

    /// The metrics of its calls. A target of settings has its name, since its address may change.
    #[cfg(feature = "metrics")]
    fn meters(&self) -> ChannelMeters {
        match &self.live {
            Some(target) => ChannelMeters::new(target.name.as_str()),
            None => ChannelMeters::new(self.address.to_string()),
        }
    }

    /// None in this build.
    #[cfg(not(feature = "metrics"))]
    fn meters(&self) -> ChannelMeters {
        ChannelMeters::default()
    }

    /// Splits the builder into the connector's part and the channel's part.
    fn prepare(self) -> (ClientConfig, Prepared) {
        let (encryption, names, parts) = (self.encryption(), self.names(), self.parts());
        let settings = Arc::new(self.settings());
        let Self { address, rdma, .. } = self;
        let rdma = match address {
            Address::Auto(_) | Address::Rdma(_) => Some(rdma.unwrap_or_default()),
            _ => None,
        };
        let policy = encryption.policy_of(&address, rdma.as_ref());
        let rules = ClientConfig { settings, policy, names };
        (rules, Prepared { address, encryption, parts })
    }
}

/// Returns the subchannel to one server, which connects at its first call.
fn subchannel_to(address: &Address, rules: ClientConfig, encryption: &Encryption) -> Subchannel {
    if let Some(reason) = encryption.refusal(address) {
        return refusing(&address.to_string(), rules, reason.to_owned());
    }
    match address {
        Address::Inproc(name) => Subchannel::new(InprocConnector::new(name.clone(), rules)),
        Address::Unix(name) => Subchannel::new(UnixConnector::new(name.clone(), rules)),
        Address::Auto(authority) | Address::Rdma(authority) | Address::Tcp(authority) => {
            let connector = TcpConnector::new(authority.clone(), rules);
            let connector = connector.with_name(address.to_string());
            Subchannel::new(encryption.apply(connector))
        }
        #[cfg(feature = "grpc")]
        Address::Grpc(authority) | Address::Grpcs(authority) => {
            let streams = TcpConnector::new(authority.clone(), rules.clone());
            let streams = tls::for_grpc(encryption.apply(streams));
            let named = encryption.request_authority(authority);
            let connector = GrpcConnector::new(scheme(address), named, streams, rules);
            Subchannel::new(connector.with_name(address.to_string()))
        }
        #[cfg(not(feature = "grpc"))]
        Address::Grpc(_) | Address::Grpcs(_) => {
            let reason = "this program was built without farcall's feature `grpc`".to_owned();
            refusing(&address.to_string(), rules, reason)
        }
        Address::Custom(_) => {
            let reason = "unknown scheme: use auto, rdma, tcp, unix, inproc, grpc or grpcs";
            refusing(&address.to_string(), rules, reason.to_owned())
        }
        Address::Dns(_) | Address::List(_) => {
            refusing(&address.to_string(), rules, "the address names several servers".to_owned())
        }
    }
}

/// Returns a subchannel whose attempts to connect fail with `reason`.
fn refusing(address: &str, rules: ClientConfig, reason: String) -> Subchannel {
    let refuse = move || {
        let reason = io::Error::new(io::ErrorKind::InvalidInput, reason.clone());
        std::future::ready(Err::<TcpStream, _>(reason))
    };
    Subchannel::new(StreamConnector::new(address.to_owned(), rules, refuse))
}

/// A builder without what its connector has.
struct Prepared {
    address: Address,
    encryption: Encryption,
    parts: ChannelParts,
}

impl Prepared {
    fn finish(self, subchannel: Subchannel) -> Channel {
        Channel(rpc_core::Channel::from_parts(Target::Direct(subchannel), self.parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_is_none_is_named_once_and_with_its_cure() {
        let error = Channel::connect("http://10.0.0.1:7000").await.unwrap_err().to_string();
        let message = "cannot connect to http://10.0.0.1:7000: for a farcall server, write \
                     tcp://10.0.0.1:7000 or auto://10.0.0.1:7000; for a gRPC server, \
                     grpc://10.0.0.1:7000 (feature `grpc`)";
        assert_eq!(error, message);
    }

    #[test]
    #[should_panic(expected = "limits.max_message_len is 0: at least 1")]
    fn a_limit_out_of_its_range_panics_where_it_is_set() {
        let _ = Channel::builder("tcp://127.0.0.1:1").unwrap().max_message_len(0);
    }

    #[tokio::test]
    async fn a_name_without_a_server_is_said_to_have_none() {
        let error = Channel::connect("inproc://none").await.unwrap_err().to_string();
        let message = "cannot connect to inproc://none: no server in this process has this name";
        assert_eq!(error, message);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_as_the_user_named_it() {
        for scheme in ["tcp", "auto", "rdma"] {
            // Port 1 of loopback: nothing listens there.
            let address = format!("{scheme}://127.0.0.1:1");
            let error = Channel::connect(&address).await.unwrap_err().to_string();
            let message = format!("cannot connect to {address}: Connection refused");
            assert!(error.starts_with(&message), "{error}");
        }
    }

    #[tokio::test]
    async fn a_channel_goes_over_streams_that_the_program_opens() {
        let (here, there) = tokio::io::duplex(1 << 16);
        let incoming = futures::stream::iter([Ok::<_, io::Error>(there)]);
        let served = tokio::spawn(crate::Server::builder().build().serve_incoming(incoming));
        let stream = parking_lot::Mutex::new(Some(here));
        let builder = Channel::builder("tcp://in-memory:1").unwrap();
        let channel = builder.connect_with_connector(move || {
            let stream = stream.lock().take();
            async { stream.ok_or_else(|| io::Error::other("there was one")) }
        });
        let mut ready = channel.clone();
        tower::ServiceExt::ready(&mut ready).await.unwrap();
        assert_eq!(channel.path(), crate::Path::Direct { transport: "stream" });
        drop((channel, ready));
        served.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_lazy_channel_is_not_connected_and_says_so() {
        let channel = Channel::builder("tcp://127.0.0.1:1").unwrap().connect_lazy();
        assert_eq!(channel.path().to_string(), "not connected");
    }
}
