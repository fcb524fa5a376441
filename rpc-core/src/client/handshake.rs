//! The client's side of the handshake.

use std::sync::Arc;

use super::{ClientConfig, ClientSetup, Established, Session};
use crate::Negotiated;
use crate::connect::info::{Failures, Fallback};
use crate::connect::upgrade::{self, End, PathBinding};
use crate::connect::{
    Bootstrap, Candidate, ConnectError, ConnectFault, Declined, Obstacle, PendingOffer, Upgrade,
    UpgradePolicy, handshake, handshake_failed,
};
use crate::memory::MemoryCharge;
use crate::policy::failover::Wanted;
use crate::transport::Addresses;
use crate::wire::PeerText;
use crate::wire::hello::{self, Hello, Offer, PREFIX_LEN, Verdict};

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
            self.pending.retain(|(name, _)| !declined.is_about(name));
            let (name, reason) = (declined.name(), declined.reason());
            let can_pass = !declined.is_final();
            self.failures.add_peers(name.as_str(), &reason, can_pass);
        }
        if answer.accepted.is_none() {
            // A server that knows nothing of it declines nothing either.
            for (name, _) in self.pending.drain(..) {
                let unknown = Declined::with(Obstacle::Incompatible, "the server does not know it");
                self.failures.add_declined(name, "", &unknown);
            }
        }
    }
}

/// Makes a connection of an open byte stream to `server`, the address as the user wrote it.
///
/// # Errors
///
/// When the handshake fails or takes too long, and when a required upgrade is not possible.
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
    let named = offers.pending.iter().position(|(name, _)| *name == accepted.name);
    let index = named.ok_or_else(|| Declined::new("the peer accepts what was not offered"))?;
    let (_, offer) = offers.pending.swap_remove(index);
    let blob = accepted.blob.clone();
    let mut candidate = upgrade::blocking(move || offer.connect(&blob)).await?;
    if let Some(binding) = binding {
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
                reason.push_str("the server does not know it");
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
