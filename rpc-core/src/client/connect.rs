//! The making of a channel's connections: its connector, the byte streams that this opens, and the
//! client's side of the handshake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::{fmt, io};

use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::{ChannelSettings, ClientSetup, ConfiguredNames, Established, Session};
use crate::Negotiated;
use crate::connect::info::{Failures, Fallback};
use crate::connect::upgrade::{self, End, PathBinding};
use crate::connect::{
    Bootstrap, Candidate, ConnectError, ConnectFault, Declined, Obstacle, PendingOffer, Upgrade,
    UpgradePolicy, Wanted, handshake, handshake_failed,
};
use crate::memory::MemoryCharge;
use crate::transport::Addresses;
use crate::wire::PeerText;
use crate::wire::hello::{self, Hello, Offer, PREFIX_LEN, Verdict};

/// Makes a connection of an open stream.
pub type Handshake<'a> = dyn Fn(Box<dyn Bootstrap>) -> Connecting<'a> + Send + Sync + 'a;

/// A connection that is being made.
pub type Connecting<'a> = BoxFuture<'a, Result<Established, ConnectError>>;

/// The configuration of a client's connections.
#[derive(Debug, Clone, Default)]
pub struct ClientConfig {
    /// The settings of its channel.
    pub settings: Arc<ChannelSettings>,
    /// Upgraded paths to try.
    pub policy: UpgradePolicy,
    /// The names that are compared with the methods of the first server.
    pub names: Option<Arc<ConfiguredNames>>,
}

impl ClientConfig {
    /// Connects without upgraded paths, by the default settings after `change`.
    #[must_use]
    pub fn with_settings(change: impl FnOnce(&mut ChannelSettings)) -> Self {
        let mut settings = ChannelSettings::default();
        change(&mut settings);
        settings.into()
    }
}

impl From<ChannelSettings> for ClientConfig {
    /// Connects without upgraded paths.
    fn from(settings: ChannelSettings) -> Self {
        Self { settings: Arc::new(settings), ..Self::default() }
    }
}

/// Makes connections to one server.
pub trait Connect: fmt::Debug + Send + Sync + 'static {
    /// The rules of its connections, which are the channel's too.
    fn config(&self) -> &ClientConfig;

    /// The server's address as the user wrote it, for messages and the log.
    fn address(&self) -> Arc<str>;

    /// Returns true if its connections speak another protocol, as [`Established::Encoded`]. A
    /// channel encodes calls before it has a connection.
    fn is_encoded(&self) -> bool {
        false
    }

    /// Sets further addresses of the server for later attempts. A connector without addresses of
    /// the network ignores them.
    fn set_alternatives(&self, _alternatives: &Arc<[SocketAddr]>) {}

    /// Makes a new connection over the path that is wanted, as far as the rules allow it.
    ///
    /// # Errors
    ///
    /// Returns an error if no connection can be made.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the attempt is torn down.
    fn connect(&self, wanted: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>>;
}

/// Gives its connection to the channel that asks first, and to none after that.
#[derive(Debug)]
pub(crate) struct OneConnection {
    name: Arc<str>,
    config: ClientConfig,
    connection: Mutex<Option<Established>>,
}

impl OneConnection {
    pub(crate) fn new(name: Arc<str>, connection: Established) -> Self {
        let (config, connection) = (ClientConfig::default(), Mutex::new(Some(connection)));
        Self { name, config, connection }
    }
}

impl Connect for OneConnection {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn address(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn connect(&self, _: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        // Taken: a channel that connects again finds that its link has ended.
        let connection = self.connection.lock().take();
        let connection = connection.ok_or_else(|| {
            ConnectError::from(ConnectFault::Unreachable {
                address: self.name.to_string(),
                reason: io::Error::new(io::ErrorKind::NotConnected, "its connection has ended"),
            })
        });
        Box::pin(std::future::ready(connection))
    }
}

/// Opens byte streams to a server, for connections of any protocol.
pub trait OpenStream: fmt::Debug + Send + Sync {
    /// Opens one. What TLS has to do is left to [`Bootstrap::open`].
    fn open_stream(&self) -> BoxFuture<'_, io::Result<Box<dyn Bootstrap>>>;

    /// Opens a stream to `server`, as the user wrote it, and has `handshake` make a connection of
    /// it. Where the server has several addresses, they may take part in one race, so that one
    /// which accepts and says nothing does not hide another.
    ///
    /// # Errors
    ///
    /// Returns the error of the stream, or of the handshake.
    fn connect_by<'a>(&'a self, server: &'a str, handshake: &'a Handshake<'a>) -> Connecting<'a> {
        Box::pin(async move {
            let unreachable = |reason| {
                ConnectError::from(ConnectFault::Unreachable { address: server.to_owned(), reason })
            };
            handshake(self.open_stream().await.map_err(unreachable)?).await
        })
    }

    /// Sets further addresses of the server for later streams. A connector without addresses of
    /// the network ignores them.
    fn set_alternatives(&self, _alternatives: &Arc<[SocketAddr]>) {}
}

/// An offer under way, with what is known of those that failed.
#[derive(Default)]
struct Offers {
    pending: Vec<(&'static str, Box<dyn PendingOffer>)>,
    failures: Failures,
    /// Why this side offers none, for the server.
    unoffered: Failures,
}

impl Offers {
    /// Offers nothing, because the last path broke for `reason`, and is not due yet.
    fn skip(&mut self, reason: &Arc<str>) {
        for failures in [&mut self.failures, &mut self.unoffered] {
            failures.add_known(reason, Obstacle::Broken);
        }
    }

    /// Notes what the server declined, and why.
    fn take_declined(&mut self, answer: &mut Hello) {
        for declined in std::mem::take(&mut answer.declined) {
            // What is declined has no part in the rest: dropping it frees what was prepared for it.
            self.pending.retain(|(name, _)| !declined.is_about(name));
            let (name, reason) = (declined.name(), declined.reason());
            let can_pass = !declined.is_final();
            self.failures.add_peers(name.as_str(), &reason, can_pass);
        }
        if answer.accepted.is_none() {
            // A server that knows nothing of it declines nothing either.
            for (name, _) in self.pending.drain(..) {
                let unknown = Declined::with(
                    Obstacle::Incompatible,
                    "the server does not support \
                                                                      it",
                );
                self.failures.add_declined(name, "", &unknown);
            }
        }
    }
}

/// Makes a connection of an open byte stream to `server`, the address as the user wrote it.
///
/// # Errors
///
/// Returns `ConnectError` if the handshake fails or takes too long, or if a required upgrade is not
/// possible.
///
/// # Cancel safety
///
/// If it is cancelled, the stream is closed and a prepared path is torn down.
pub async fn connect(
    bootstrap: Box<dyn Bootstrap>,
    server: &Arc<str>,
    config: &ClientConfig,
    wanted: Wanted,
) -> Result<Established, ConnectError> {
    let handshake = negotiate(bootstrap, config, wanted, server);
    // The proof of an upgraded path is within this time, too.
    match tokio::time::timeout(config.settings.handshake_timeout, handshake).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let (address, timeout) = (server.to_string(), config.settings.handshake_timeout);
            Err(ConnectError::from(ConnectFault::TimedOut { address, timeout }))
        }
    }
}

async fn negotiate(
    mut bootstrap: Box<dyn Bootstrap>,
    config: &ClientConfig,
    wanted: Wanted,
    server: &Arc<str>,
) -> Result<Established, ConnectError> {
    let required = config.policy.required(&wanted);
    let failed = |error| handshake_failed(server, error);
    bootstrap.open().await.map_err(failed)?;
    let upgrades = config.policy.upgrades(&wanted);
    let mut offers = prepare_offers(upgrades, &bootstrap.addresses()).await;
    if let (Wanted::Bootstrap(reason), UpgradePolicy::Prefer(_)) = (&wanted, &config.policy) {
        // The path is broken. The client offers none, and both sides log the reason.
        offers.skip(reason);
    }
    let mut hello = Hello::new(&config.settings.limits.announced_by_client());
    hello.encodings = bootstrap.accepted_encodings(config.settings.compression);
    let offer = |(name, offer): &(&'static str, Box<dyn PendingOffer>)| Offer {
        name: (*name).to_owned(),
        blob: offer.blob().into(),
    };
    hello.offers = offers.pending.iter().map(offer).collect();
    hello.set_fallback(&offers.unoffered.join());
    // A required upgrade that this host cannot offer needs no question to the peer.
    check_required(required, &offers, server)?;
    // Encoded once: the binding of the path is over the bytes as they were sent.
    let said = hello::encode(&hello).map_err(|error| failed(error.into()))?;
    handshake::write_encoded(&mut *bootstrap, &said).await.map_err(failed)?;
    // A client has no budget.
    let (shape, mut charge) = (hello::SERVER_HELLO, MemoryCharge::default());
    let read = handshake::read_with_body(&mut *bootstrap, &shape, &mut charge).await;
    let (mut answer, heard): (Hello, _) = read.map_err(failed)?;
    offers.take_declined(&mut answer);
    let candidate = match answer.accepted.take() {
        Some(accepted) => {
            let binding = PathBinding::of(&*bootstrap, End::Client, &said[PREFIX_LEN..], &heard);
            // The server waits for the verdict, good or bad: it holds what it prepared until then.
            let proven = prove(&mut offers, &accepted, binding.map_err(failed)?).await;
            let verdict = match &proven {
                Ok(_) => Verdict::good(),
                Err(declined) => Verdict::failed(&declined.reason),
            };
            handshake::write(&mut *bootstrap, &verdict).await.map_err(failed)?;
            let name = PeerText::new(&accepted.name);
            let failed = |it: Declined| offers.failures.add_declined(name.as_str(), "", &it);
            proven.map_err(failed).ok()
        }
        None => None,
    };
    if candidate.is_none() {
        // What they hold of a device is free again, and a required upgrade finds none left.
        offers.pending.clear();
        check_required(required, &offers, server)?;
    }
    let fallback: Option<Fallback> = match &candidate {
        None => offers.failures.fallback(),
        Some(_) => None,
    };
    let addresses = bootstrap.addresses();
    let setup = ClientSetup {
        limits: config.settings.limits,
        compression: match candidate {
            // An upgraded path carries messages as they are.
            Some(_) => Negotiated::default(),
            None => bootstrap.negotiated(config.settings.compression, answer.encodings),
        },
        keepalive: config.settings.keepalive,
        progress_timeout: config.settings.progress_timeout,
        peer: answer,
        server: Arc::clone(server),
        addresses,
        fallback,
        is_upgraded: candidate.is_some(),
    };
    let transport = match candidate {
        Some(candidate) => candidate.into_transport(bootstrap),
        None => bootstrap.into_transport(),
    };
    Ok(Established::Session(Session::start(transport, setup)))
}

async fn prepare_offers(upgrades: &[Arc<dyn Upgrade>], addresses: &Addresses) -> Offers {
    let mut offers = Offers::default();
    for upgrade in upgrades {
        let (this, addresses) = (Arc::clone(upgrade), addresses.clone());
        // Opening a device blocks: it must not hold up the other tasks of this thread.
        match upgrade::blocking(move || this.offer(&addresses)).await {
            Ok(offer) => offers.pending.push((upgrade.name(), offer)),
            Err(declined) => {
                offers.failures.add_declined(upgrade.name(), "this host: ", &declined);
                offers.unoffered.add_declined(upgrade.name(), "", &declined);
            }
        }
    }
    offers
}

async fn prove(
    offers: &mut Offers,
    accepted: &Offer,
    binding: Option<PathBinding>,
) -> Result<Box<dyn Candidate>, Declined> {
    // The server chooses, and may name anything: an upgrade that was not offered is declined.
    let named = offers.pending.iter().position(|(name, _)| *name == accepted.name);
    let index = named.ok_or_else(|| {
        Declined::new(
            "the peer accepted an upgrade that was not \
                                                   offered",
        )
    })?;
    let (_, offer) = offers.pending.swap_remove(index);
    let blob = accepted.blob.clone();
    let mut candidate = upgrade::blocking(move || offer.connect(&blob)).await?;
    if let Some(binding) = binding {
        // Before the proof, whose probes carry the binding.
        candidate.bind(binding)?;
    }
    candidate.prove().await?;
    Ok(candidate)
}

fn check_required(
    required: Option<&Arc<dyn Upgrade>>,
    offers: &Offers,
    address: &str,
) -> Result<(), ConnectError> {
    match required {
        Some(upgrade) if offers.pending.is_empty() => {
            let mut reason = offers.failures.join();
            if reason.is_empty() {
                reason.push_str("the server does not support it");
            }
            // Whose name the message has already.
            if let Some(rest) = reason.strip_prefix(upgrade.name()) {
                reason = rest.strip_prefix(": ").unwrap_or(&reason).to_owned();
            }
            let address = address.to_owned();
            let (upgrade, can_pass) = (upgrade.name(), offers.failures.can_pass());
            let reason = reason.into();
            Err(ConnectError::from(ConnectFault::UpgradeRequired {
                address,
                upgrade,
                reason,
                can_pass,
            }))
        }
        _ => Ok(()),
    }
}
