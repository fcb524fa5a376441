//! The settings of a channel.

mod encryption;
mod getters;
#[cfg(feature = "settings")]
mod live;
mod registries;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rpc_core::client::endpoints::Endpoints;
use rpc_core::client::{
    CallRules, ChannelParts, ConfiguredNames, Credentials, Subchannel, Target, TargetRules, Watched,
};
use rpc_core::connect::{ClientConfig, UpgradePolicy};
use rpc_core::inproc::InprocConnector;
use rpc_core::settings::expect_valid;
#[cfg(feature = "grpc")]
use rpc_transport_grpc::{GrpcConnector, Scheme};
use rpc_transport_tcp::{StreamConnector, TcpConnector, UnixConnector};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::Channel;
use super::encryption::{Encryption, RequiredBy};
use super::live::{Live, attempts};
use crate::balance::{BalanceConfig, Endpoint};
use crate::rdma::Rdma;
use crate::resolve::Resolve;
use crate::retry::ServiceConfig;
#[cfg(feature = "grpc")]
use crate::tls;
use crate::tls::ClientTls;
use crate::{
    Address, AddressError, Backoff, Compression, Config, ConnectBackoff, ConnectError, Keepalive,
    Limits, Readiness, ReplayLimits,
};

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
    config: Config,
    rdma: Option<Rdma>,
    tls: Option<ClientTls>,
    credentials: Credentials,
    /// Whether they may go over connections that are not encrypted.
    are_credentials_shown: bool,
    calls: CallRules,
    /// The target of settings that may change, in the place of `address` and `calls`.
    live: Option<Live>,
    balance: BalanceConfig,
    service: ServiceConfig,
}

/// Whether there is TLS around HTTP/2.
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
        let (config, calls) = (Config::default(), CallRules::default());
        let credentials = Credentials::default();
        Self {
            address,
            config,
            rdma: None,
            tls: None,
            credentials,
            are_credentials_shown: false,
            calls,
            live: None,
            balance: BalanceConfig::default(),
            service: ServiceConfig::default(),
        }
    }

    /// Sets the rules that `config` has, in the place of all that were set before.
    pub fn config(mut self, config: &Config) -> Self {
        self.config = config.clone();
        self
    }

    /// Uses the RDMA devices of this handle, which other channels and servers may share. Without
    /// one the channel makes its own, with pinned memory of its own: see [`Rdma`]. An address that
    /// asks for no RDMA leaves the handle alone.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    pub fn rdma(mut self, rdma: &Rdma) -> Self {
        self.rdma = Some(rdma.clone());
        self
    }

    /// Sets what this side accepts from the server.
    ///
    /// # Panics
    ///
    /// When a limit is out of its range: see [`Limits::check`].
    #[track_caller]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config = self.config.with_limits(limits);
        self
    }

    /// Sets what is done with compressed messages; nothing by default. Requests are compressed
    /// where the server accepts it, and its responses where this side says so and the server
    /// compresses. A stub's `compress_from`, or a method's in
    /// [`service_config`](Self::service_config), comes before what is said here of requests. It
    /// holds over TCP, and never over RDMA.
    ///
    /// # Panics
    ///
    /// When the setting needs farcall's feature `compression`: see [`Compression::check`].
    #[track_caller]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.config = self.config.with_compression(compression);
        self
    }

    /// Sets the longest response message accepted, in bytes of its encoding; 4 MiB by default. The
    /// server's own limit holds for requests.
    ///
    /// # Panics
    ///
    /// When `bytes` is 0.
    #[track_caller]
    pub fn max_message_len(self, bytes: u64) -> Self {
        let limits = self.config.limits().with_max_message_len(bytes);
        self.limits(limits)
    }

    /// Sets how a server that is gone is found; `None` leaves that to the operating system, which
    /// may take hours. On by default.
    ///
    /// At `grpc://` and `grpcs://` the default is an interval of 5 minutes, as gRPC's servers ask
    /// for, and there are no pings without calls. Each end of a connection for too many pings
    /// doubles the interval of its channel.
    ///
    /// # Panics
    ///
    /// When a time is out of its range: see [`Keepalive::check`].
    #[track_caller]
    pub fn keepalive(mut self, keepalive: impl Into<Option<Keepalive>>) -> Self {
        self.config = self.config.with_keepalive(keepalive);
        self
    }

    /// Sets the bound on opening a connection, upgrade included; 10 s by default.
    ///
    /// # Panics
    ///
    /// Unless the timeout is from 1 ms to 365 days.
    #[track_caller]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.config = self.config.with_handshake_timeout(timeout);
        self
    }

    /// Sets how long the server may take nothing of the requests that wait for it, or send nothing
    /// more of a large frame that it has begun, before the connection is ended; 60 s by default,
    /// never with `None`.
    ///
    /// # Panics
    ///
    /// Unless the timeout is from 1 ms to 365 days.
    #[track_caller]
    pub fn progress_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config = self.config.with_progress_timeout(timeout);
        self
    }

    /// Sets the delays before the channel connects again to a server that cannot be reached, or
    /// whose connections are of no use; gRPC's by default.
    ///
    /// # Panics
    ///
    /// When a value is out of its range: see [`ConnectBackoff::check`].
    #[track_caller]
    pub fn connect_backoff(mut self, backoff: ConnectBackoff) -> Self {
        self.config = self.config.with_connect_backoff(backoff);
        self
    }

    /// Sets the delays before an RDMA path that has failed is tried again.
    ///
    /// # Panics
    ///
    /// When a delay is out of its range: see [`Backoff::check`].
    #[track_caller]
    pub fn path_backoff(mut self, backoff: Backoff) -> Self {
        self.config = self.config.with_path_backoff(backoff);
        self
    }

    /// Sets the bound on the idempotent calls that the channel makes once more after their
    /// connection ended under them.
    ///
    /// # Panics
    ///
    /// When a value is out of its range: see [`ReplayLimits::check`].
    #[track_caller]
    pub fn replays(mut self, replays: ReplayLimits) -> Self {
        self.config = self.config.with_replays(replays);
        self
    }

    /// Sets a timeout for calls of every kind that set none themselves; none by default. A stream
    /// that is still open then ends with `DEADLINE_EXCEEDED`, and
    /// [`unary_timeout`](Self::unary_timeout) leaves streams alone. Zero ends every such call at
    /// once. Calls that a handler makes end with the handler's own call at the latest, see
    /// [`crate::Deadline::detached`]. A stub's `with_timeout` precedes it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.calls.timeout = Some(timeout);
        self.change_watched(|watched| watched.timeout = Some(timeout));
        self
    }

    /// Sets a timeout for unary calls that set none themselves, and none for calls with a stream in
    /// either direction; none by default. For unary calls it takes the place of
    /// [`timeout`](Self::timeout), so that the two together give each kind its own. Zero ends every
    /// such call at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use farcall::{AddressError, Channel};
    ///
    /// /// A lookup is a matter of seconds, and a subscription may go on for ever.
    /// fn patient(address: &str) -> Result<Channel, AddressError> {
    ///     Ok(Channel::builder(address)?.unary_timeout(Duration::from_secs(5)).connect_lazy())
    /// }
    /// ```
    pub fn unary_timeout(mut self, timeout: Duration) -> Self {
        self.calls.unary_timeout = Some(timeout);
        self.change_watched(|watched| watched.unary_timeout = Some(timeout));
        self
    }

    /// Sets a rule for calls that are made while there is no connection and the channel backs off;
    /// [`Readiness::FailFast`] by default. A stub's `with_wait_for_ready` precedes it.
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        let waits = readiness == Readiness::WaitForReady;
        self.calls.wait_for_ready = waits;
        self.change_watched(|watched| watched.wait_for_ready = Some(waits));
        self
    }

    /// Sets whether each call that fails has a line in the log; on by default. The line has the
    /// target `farcall::call`, and names the method, the server's address as it was written, the
    /// status and how long the call took.
    ///
    /// It is WARN where something does not work (`UNKNOWN`, `DEADLINE_EXCEEDED`,
    /// `RESOURCE_EXHAUSTED`, `UNIMPLEMENTED`, `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS`): of each of
    /// these statuses ten lines at once, then one every ten seconds with a count of those that were
    /// left out. Any other status is an answer of the application, and its line is DEBUG. A call
    /// that the program gives up has no line, and neither has one that a layer of its own answers.
    pub fn log_failed_calls(mut self, is_logged: bool) -> Self {
        self.config = self.config.with_log_failed_calls(is_logged);
        self
    }

    /// Sets how the endpoint of each call is chosen, where the channel has many. A channel to one
    /// server has no use for it.
    ///
    /// # Panics
    ///
    /// When a value is out of its range: see [`BalanceConfig::check`].
    #[track_caller]
    pub fn balance(mut self, balance: BalanceConfig) -> Self {
        expect_valid(balance.check());
        self.balance = balance;
        self
    }

    /// Sets what applies to calls by their method: timeouts, retries and hedging. Nothing by
    /// default.
    ///
    /// # Panics
    ///
    /// When a value is out of its range: see [`ServiceConfig::check`].
    #[track_caller]
    pub fn service_config(mut self, config: ServiceConfig) -> Self {
        expect_valid(config.check());
        self.service = config;
        self.change_watched(|watched| watched.has_own_policies = true);
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
        if let Some(live) = &self.live {
            let resolver = live.resolver();
            return self.connect_with_resolver(resolver);
        }
        if self.is_balanced() {
            let resolver = Self::resolver_of(&self.address);
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
    /// When no server accepts at the address, the handshake fails, or RDMA is required and not
    /// possible.
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
            return Err(ConnectError::Address { address, reason: reason.to_owned() });
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
        let Self { config, rdma, balance, .. } = self;
        let rdma = rdma.unwrap_or_default();
        let make = move |endpoint: &Endpoint| match endpoint.address.parse::<Address>() {
            Ok(address) => {
                let mut rules = config.client(encryption.policy_of(&address, Some(&rdma)));
                rules.names.clone_from(&names);
                subchannel_to(&address, rules, &encryption)
            }
            Err(error) => subchannel_to_none(&endpoint.address, &error, &config),
        };
        let target = Target::Balanced(Endpoints::new(resolver, balance, make));
        Channel(rpc_core::Channel::from_parts(target, parts))
    }

    /// Makes a channel whose connections are the byte streams that `open` opens, one at each
    /// attempt to connect: through a proxy, by TLS, to a virtual socket or in memory. The address
    /// is what messages call the server. Under `auto://` and `rdma://` a stream that is a
    /// `TcpStream` of tokio is upgraded to RDMA as the address says; any other has no addresses,
    /// and under `rdma://` that is an error.
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
        let subchannel = match made.encryption.refusal_of_streams() {
            Some(reason) => refusing(&address, rules, reason.to_owned()),
            None => Subchannel::new(StreamConnector::new(address, rules, open)),
        };
        made.finish(subchannel)
    }

    /// Returns true if calls go to many servers, or over several connections.
    fn is_balanced(&self) -> bool {
        self.address.names_many() || self.balance.connections > 1
    }

    /// Changes what the program sets in code beside the rules of a watched target.
    fn change_watched(&mut self, change: impl FnOnce(&mut Watched)) {
        if let Some(live) = &mut self.live {
            change(&mut live.watched);
        }
    }

    /// What is asked of the encryption of connections.
    fn encryption(&self) -> Encryption {
        let required_by = if self.config.require_encryption() {
            Some(RequiredBy::Setting)
        } else if self.credentials.are_there() && !self.are_credentials_shown {
            Some(RequiredBy::Credentials)
        } else {
            None
        };
        Encryption::new(required_by, self.tls.clone(), &self.address)
    }

    /// The names in the service config, which all connections of the channel share.
    fn names(&self) -> Option<Arc<ConfiguredNames>> {
        let shared = self.live.as_ref().and_then(Live::names);
        shared.or_else(|| Some(Arc::new(ConfiguredNames::new(&self.service))))
    }

    /// Returns the parts of the channel beside its target.
    fn parts(&self) -> ChannelParts {
        let calls = CallRules { log_failures: self.config.log_failed_calls(), ..self.calls };
        ChannelParts {
            rules: TargetRules { calls, policies: attempts(self.service.clone()) },
            watched: self.live.as_ref().map(|live| live.watched.clone()),
            credentials: self.credentials.clone(),
        }
    }

    /// What the connector needs, and what is left for the channel.
    fn prepare(self) -> (ClientConfig, Prepared) {
        let (encryption, names, parts) = (self.encryption(), self.names(), self.parts());
        let Self { address, config, rdma, .. } = self;
        let rdma = match address {
            Address::Auto(_) | Address::Rdma(_) => Some(rdma.unwrap_or_default()),
            _ => None,
        };
        let policy = encryption.policy_of(&address, rdma.as_ref());
        let rules = ClientConfig { names, ..config.client(policy) };
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
        Address::Dns(_) | Address::Etcd(_) | Address::Xds(_) | Address::List(_) => {
            refusing(&address.to_string(), rules, "it names several servers".to_owned())
        }
    }
}

/// Returns a subchannel to an endpoint whose address is none. Calls are not sent there, since it
/// never connects.
fn subchannel_to_none(address: &str, error: &AddressError, config: &Config) -> Subchannel {
    refusing(address, config.client(UpgradePolicy::Never), error.to_string())
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
        let words = "cannot connect to http://10.0.0.1:7000: a server of farcall is \
                     tcp://10.0.0.1:7000 or auto://10.0.0.1:7000; one of gRPC is \
                     grpc://10.0.0.1:7000 (feature `grpc`)";
        assert_eq!(error, words);
    }

    #[test]
    #[should_panic(expected = "limits.max_message_len is 0: at least 1")]
    fn a_limit_out_of_its_range_panics_where_it_is_set() {
        let _ = Channel::builder("tcp://127.0.0.1:1").unwrap().max_message_len(0);
    }

    #[tokio::test]
    async fn a_name_without_a_server_is_said_to_have_none() {
        let error = Channel::connect("inproc://none").await.unwrap_err().to_string();
        let words = "cannot connect to inproc://none: no server in this process listens there";
        assert_eq!(error, words);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_as_the_user_named_it() {
        for scheme in ["tcp", "auto", "rdma"] {
            // Port 1 of loopback: nothing listens there.
            let address = format!("{scheme}://127.0.0.1:1");
            let error = Channel::connect(&address).await.unwrap_err().to_string();
            let words = format!("cannot connect to {address}: Connection refused");
            assert!(error.starts_with(&words), "{error}");
        }
    }

    #[tokio::test]
    async fn a_channel_goes_over_streams_that_the_program_opens() {
        let (here, there) = tokio::io::duplex(1 << 16);
        let incoming = futures::stream::iter([Ok::<_, io::Error>(there)]);
        let served = tokio::spawn(crate::Server::builder().build().serve_incoming(incoming));
        let stream = std::sync::Mutex::new(Some(here));
        let builder = Channel::builder("tcp://in-memory:1").unwrap();
        let channel = builder.connect_with_connector(move || {
            let stream = stream.lock().unwrap().take();
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
