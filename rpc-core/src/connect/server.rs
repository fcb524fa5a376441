//! The server's side of the handshake.

use std::sync::Arc;

use super::handshake::{self, HandshakeError};
use super::{Bootstrap, Candidate, Link, Upgrade, upgrade};
use crate::Limits;
use crate::transport::Addresses;
use crate::wire::hello::{Declined as DeclinedOffer, Hello, Offer, Verdict};

/// What a server says and accepts in a handshake.
#[derive(Debug)]
pub struct ServerHandshake {
    /// What this side accepts of every client.
    pub limits: Limits,
    /// The paths of the methods served; a method's index is its id.
    pub methods: Vec<String>,
    /// The better paths that clients may ask for.
    pub upgrades: Vec<Arc<dyn Upgrade>>,
}

/// A connection after the handshake.
pub struct Accepted {
    /// The link that carries it.
    pub link: Box<dyn Link>,
    /// What the client said.
    pub hello: Hello,
    /// Why it did not move to a better path, when the client asked for one.
    pub fallback: Option<String>,
    /// Whether it moved to one.
    pub is_upgraded: bool,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted").field("fallback", &self.fallback).finish_non_exhaustive()
    }
}

/// Answers the handshake of a client on an open byte stream.
///
/// # Errors
///
/// What the client sent that is not the protocol, or how the stream failed.
///
/// # Cancel safety
///
/// Cancelled, the stream is closed and what was prepared is torn down.
pub async fn accept(
    mut bootstrap: Box<dyn Bootstrap>,
    server: &ServerHandshake,
) -> Result<Accepted, HandshakeError> {
    let hello: Hello = handshake::read(&mut *bootstrap, "Hello").await?;
    let mut answer = Hello::new(&server.limits);
    answer.methods.clone_from(&server.methods);
    let addresses = bootstrap.addresses();
    let candidate = choose(&hello, server, &addresses, &mut answer).await;
    handshake::write(&mut *bootstrap, &answer).await?;
    let mut failures: Vec<String> =
        answer.declined.iter().map(|d| format!("{}: {}", d.name, d.reason)).collect();
    let candidate = match candidate {
        Some((name, candidate)) => {
            let verdict: Verdict = handshake::read(&mut *bootstrap, "Verdict").await?;
            if verdict.failure.is_empty() {
                Some(candidate)
            } else {
                failures.push(format!("{name}: the client says: {}", verdict.failure));
                None
            }
        }
        None => None,
    };
    let is_upgraded = candidate.is_some();
    let (link, fallback) = match candidate {
        Some(candidate) => (candidate.into_link(bootstrap), None),
        None => {
            let fallback = (!failures.is_empty()).then(|| failures.join("; "));
            (bootstrap.into_link(), fallback)
        }
    };
    Ok(Accepted { link, hello, fallback, is_upgraded })
}

/// Accepts the first offer that can be had, and notes in `answer` why those before it cannot.
async fn choose(
    hello: &Hello,
    server: &ServerHandshake,
    addresses: &Addresses,
    answer: &mut Hello,
) -> Option<(&'static str, Box<dyn Candidate>)> {
    for offer in &hello.offers {
        let known = server.upgrades.iter().find(|upgrade| upgrade.name() == offer.name);
        let reason = match known {
            None => "the server has it not switched on".to_owned(),
            Some(upgrade) => {
                let (this, addresses) = (Arc::clone(upgrade), addresses.clone());
                let blob = offer.blob.clone();
                match upgrade::blocking(move || this.accept(&addresses, &blob)).await {
                    Ok((blob, candidate)) => {
                        let blob = blob.into();
                        answer.accepted = Some(Offer { name: offer.name.clone(), blob });
                        return Some((upgrade.name(), candidate));
                    }
                    Err(declined) => declined.reason,
                }
            }
        };
        answer.declined.push(DeclinedOffer { name: offer.name.clone(), reason });
    }
    None
}
