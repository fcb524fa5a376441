//! The server's side of the handshake.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tonic::Status;

use crate::connect::handshake::{self, HandshakeError};
use crate::connect::info::{Failures, Fallback};
use crate::connect::upgrade::{self, End, PathBinding};
use crate::connect::{Alpn, Bootstrap, Candidate, Declined, Obstacle, Replayed, Upgrade};
use crate::memory::{MemoryCharge, MemoryShare};
use crate::server::{MethodAccess, OtherProtocol};
use crate::settings::MIN_MEMORY;
use crate::transport::{Addresses, TlsInfo, Transport};
use crate::wire::hello::{self, Declined as DeclinedOffer, Hello, Offer, PREFIX_LEN, Verdict};
use crate::wire::{MAGIC, ProtocolError, Spoken};
use crate::{Compression, Limits, Negotiated};

/// Time for a client to send its verdict on the accepted path. Its own bound on a proof is 3 s; the
/// rest is for its device and for the way. Until then the path holds a connection's resources, and
/// a silent client would keep them from others for the whole handshake.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which the client may go on sending: some round trips of a long way.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// The most that is read of it meanwhile: a TLS client's first message, certificates and all.
const LINGER_LEN_MAX: u64 = 64 << 10;

/// Bytes that a handshake holds before its client sends anything: its task, its socket and
/// the state of TLS.
const HANDSHAKE_HELD: u64 = 8 << 10;

/// The least budget that a server can be given takes a client, whose Hello has 64 KiB at most.
const _: () = assert!(HANDSHAKE_HELD < MIN_MEMORY / 4);

/// A server's part of a handshake.
#[derive(Debug)]
pub struct ServerHandshake {
    /// Limits of this side on every client.
    pub limits: Limits,
    /// Treatment of compressed messages.
    pub compression: Compression,
    /// The paths of the methods served; a method's index is its id.
    pub methods: Vec<String>,
    /// Description of each method, as [`crate::wire::hello`] encodes it.
    pub method_kinds: bytes::Bytes,
    /// The methods that a client sees.
    pub access: MethodAccess,
    /// The upgraded paths that clients may ask for.
    pub upgrades: Vec<Arc<dyn Upgrade>>,
    /// The other protocols that clients may speak.
    pub protocols: Vec<Arc<dyn OtherProtocol>>,
}

/// The opening of a connection.
#[derive(Debug)]
pub enum Opening {
    /// With farcall's handshake.
    Farcall(Box<Accepted>),
    /// With the beginning of another protocol.
    Other {
        /// The protocol.
        protocol: Arc<dyn OtherProtocol>,
        /// The stream from its first byte on.
        stream: Replayed,
    },
}

impl Opening {
    /// The connection of a server that speaks no other protocol; `None` where it speaks one.
    #[must_use]
    pub fn farcall(self) -> Option<Accepted> {
        match self {
            Self::Farcall(accepted) => Some(*accepted),
            Self::Other { .. } => None,
        }
    }
}

/// A connection after the handshake.
pub struct Accepted {
    /// Transport of the connection.
    pub transport: Box<dyn Transport>,
    /// The stream's two ends, and who the client is where TLS has verified it.
    pub addresses: Addresses,
    /// Hello of the client.
    pub hello: Hello,
    /// Why it did not move to an upgraded path, when the client wanted one.
    pub fallback: Option<Fallback>,
    /// True if the connection moved to an upgraded path.
    pub is_upgraded: bool,
    /// Agreement on compressed messages.
    pub compression: Negotiated,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted").field("fallback", &self.fallback).finish_non_exhaustive()
    }
}

/// Answers the handshake of a client on an open byte stream. What the handshake holds counts in
/// `memory` until it is over.
///
/// # Errors
///
/// Returns an error if the stream fails, if the client breaks the protocol, and if it accepts a
/// path over which nothing has arrived.
///
/// # Cancel safety
///
/// If it is cancelled, the stream is closed and a prepared path is torn down.
pub async fn accept(
    mut bootstrap: Box<dyn Bootstrap>,
    server: &ServerHandshake,
    memory: &MemoryShare,
) -> Result<Opening, HandshakeError> {
    let mut charge = open(&mut *bootstrap, memory).await?;
    let hello = hello::CLIENT_HELLO;
    let read = handshake::read_with_body(&mut *bootstrap, &hello, &mut charge).await;
    let (hello, heard): (Hello, _) = match read {
        Ok(read) => read,
        Err(error) => match spoken(&error, &server.protocols) {
            Some((protocol, first)) => {
                check_agreed(bootstrap.addresses().tls.as_deref(), protocol.alpn())?;
                let stream = Replayed::new(first, bootstrap);
                return Ok(Opening::Other { protocol, stream });
            }
            None => {
                turn_away(&mut *bootstrap, &error).await;
                return Err(error);
            }
        },
    };
    check_agreed(bootstrap.addresses().tls.as_deref(), Alpn::FARCALL)?;
    let mut answer = Hello::new(&server.limits.announced_by_server());
    let addresses = bootstrap.addresses();
    // The methods for operators are the last: leaving them out changes no id of the others.
    let visible = server.access.visible(&addresses, server.methods.len());
    answer.methods = server.methods[..visible].to_vec();
    answer.method_kinds = server.method_kinds.slice(..visible.min(server.method_kinds.len()));
    answer.encodings = bootstrap.accepted_encodings(server.compression);
    let mut failures = Failures::default();
    if let Some(reason) = hello.fallback() {
        failures.add_clients(&reason);
    }
    let mut candidate = choose(&hello, server, &addresses, &mut answer, &mut failures).await;
    let mut said = hello::encode(&answer)?;
    if let Some((name, end)) = &mut candidate {
        // Before the client can know where the path begins.
        let binding = PathBinding::of(&*bootstrap, End::Server, &heard, &said[PREFIX_LEN..])?;
        let bound = binding.map_or(Ok(()), |binding| end.bind(binding));
        if let Err(declined) = bound {
            // The answer has not been sent: the client hears of a decline, and stays on the first
            // path.
            answer.accepted = None;
            decline(name, &declined, &mut answer, &mut failures);
            said = hello::encode(&answer)?;
            candidate = None;
        }
    }
    // Written as it was encoded for the binding: both ends bind the same bytes.
    handshake::write_encoded(&mut *bootstrap, &said).await?;
    let candidate = match candidate {
        Some((name, candidate)) => {
            // On every way out but the good one the candidate is dropped, and its slot is free.
            let verdict = read_verdict(&mut *bootstrap, name).await?;
            match verdict.failure() {
                None if !candidate.is_probed() => {
                    return Err(HandshakeError::Unproven { upgrade: name });
                }
                None => Some(candidate),
                Some(failure) => {
                    failures.add(name, format_args!("the client says: {failure}"), true);
                    None
                }
            }
        }
        None => None,
    };
    let is_upgraded = candidate.is_some();
    let compression = match is_upgraded {
        // An upgraded path carries messages as they are.
        true => Negotiated::default(),
        false => bootstrap.negotiated(server.compression, hello.encodings),
    };
    let (transport, fallback) = match candidate {
        Some(candidate) => (candidate.into_transport(bootstrap), None),
        None => (bootstrap.into_transport(), failures.fallback()),
    };
    let accepted = Accepted { transport, addresses, hello, fallback, is_upgraded, compression };
    Ok(Opening::Farcall(Box::new(accepted)))
}

/// Reads the header by which a proxy says who the client is. What that holds counts in `memory`,
/// which is the proxy's.
///
/// # Errors
///
/// Returns `HandshakeError` if there is no such header, or it cannot be read, or if `memory` has no
/// room.
pub(crate) async fn identify(
    bootstrap: &mut dyn Bootstrap,
    memory: &MemoryShare,
) -> Result<(), HandshakeError> {
    let _charge = charge_handshake(memory)?;
    bootstrap.read_proxy_header().await
}

/// Counts what a handshake holds before its peer has said anything.
fn charge_handshake(memory: &MemoryShare) -> Result<MemoryCharge, HandshakeError> {
    let no_memory = |status: Status| HandshakeError::NoMemory(status.message().to_owned());
    memory.try_take(HANDSHAKE_HELD).map_err(no_memory)
}

/// Opens a stream, and returns what its handshake holds before its Hello.
async fn open(
    bootstrap: &mut dyn Bootstrap,
    memory: &MemoryShare,
) -> Result<MemoryCharge, HandshakeError> {
    let charge = charge_handshake(memory)?;
    // Before its first byte is read: TLS keeps what a client has sent of a record.
    bootstrap.charge_memory(memory);
    bootstrap.open().await?;
    Ok(charge)
}

/// Refuses a client that speaks another protocol than its TLS handshake agreed on. A middleman
/// could else pass a client's session on to a protocol that the client does not speak.
fn check_agreed(tls: Option<&TlsInfo>, spoken: Alpn) -> Result<(), HandshakeError> {
    let Some(tls) = tls else { return Ok(()) };
    match tls.protocol.filter(|agreed| *agreed != spoken.id) {
        Some(_) if tls.is_assumed() => Err(HandshakeError::NoAlpn { spoken: spoken.name }),
        Some(agreed) => Err(HandshakeError::NotAgreed { agreed, spoken: spoken.name }),
        None => Ok(()),
    }
}

/// The protocol of a client that does not speak farcall's, if it is one of these, and what it sent.
fn spoken(
    error: &HandshakeError,
    protocols: &[Arc<dyn OtherProtocol>],
) -> Option<(Arc<dyn OtherProtocol>, Vec<u8>)> {
    let HandshakeError::Protocol(ProtocolError::Magic { found }) = error else { return None };
    let protocol = protocols.iter().find(|protocol| protocol.is_begun_by(found))?;
    Some((Arc::clone(protocol), found.clone()))
}

async fn read_verdict(
    bootstrap: &mut dyn Bootstrap,
    upgrade: &'static str,
) -> Result<Verdict, HandshakeError> {
    let verdict = timeout(VERDICT_TIMEOUT, handshake::read(bootstrap, &hello::VERDICT)).await;
    let timeout = VERDICT_TIMEOUT;
    verdict.unwrap_or(Err(HandshakeError::NoVerdict { upgrade, timeout }))
}

/// Declines an offer, and tells the client.
fn decline(name: &str, declined: &Declined, answer: &mut Hello, failures: &mut Failures) {
    let is_final = !declined.obstacle.can_pass();
    let declined_offer = DeclinedOffer::new(name, &declined.reason).with_final(is_final);
    failures.add_known(
        &format!("{}: {}", declined_offer.name(), declined_offer.reason()),
        declined.obstacle,
    );
    answer.declined.push(declined_offer);
}

/// Accepts the first offer that can be had, and says in `answer` why those before it cannot. Of
/// each name one offer is looked at: preparing one takes what a device has few of.
async fn choose(
    hello: &Hello,
    server: &ServerHandshake,
    addresses: &Addresses,
    answer: &mut Hello,
    failures: &mut Failures,
) -> Option<(&'static str, Box<dyn Candidate>)> {
    for (index, offer) in hello.offers.iter().enumerate() {
        let known = server.upgrades.iter().find(|upgrade| upgrade.name() == offer.name);
        // One offer of each name is prepared: a client could otherwise have a queue pair made for
        // each.
        let is_repeated = hello.offers[..index].iter().any(|before| before.name == offer.name);
        let declined = match known {
            None => {
                let reason = "not offered at the address where it listens";
                Declined::with(Obstacle::Excluded, reason)
            }
            Some(_) if is_repeated => {
                Declined::with(Obstacle::Incompatible, "it was offered before")
            }
            Some(upgrade) => {
                let (this, addresses) = (Arc::clone(upgrade), addresses.clone());
                let blob = offer.blob.clone();
                // Opening a device blocks: it must not hold up the other connections of this
                // thread.
                match upgrade::blocking(move || this.accept(&addresses, &blob)).await {
                    Ok((blob, candidate)) => {
                        let blob = blob.into();
                        answer.accepted = Some(Offer { name: offer.name.clone(), blob });
                        return Some((upgrade.name(), candidate));
                    }
                    Err(declined) => declined,
                }
            }
        };
        decline(&offer.name, &declined, answer, failures);
    }
    None
}

/// Tells a TLS client that this is farcall without TLS, by farcall's magic, which its side knows.
/// Clients of other protocols are told nothing.
///
/// What the client sends is thrown away, within bounds, until it has closed: a socket that is
/// closed with bytes unread resets the connection, which takes the answer from the client.
async fn turn_away(bootstrap: &mut dyn Bootstrap, error: &HandshakeError) {
    let HandshakeError::Protocol(ProtocolError::Magic { found }) = error else { return };
    if Spoken::of(found) != Some(Spoken::Tls) {
        return;
    }
    let telling = async {
        bootstrap.write_all(&MAGIC).await?;
        // Half-closed, and then read on: closing with unread bytes would reset the connection
        // before the client has read the answer.
        bootstrap.shutdown().await?;
        let mut rest = bootstrap.take(LINGER_LEN_MAX);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    // The client may be gone already.
    let _ = timeout(LINGER_TIMEOUT, telling).await;
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
