//! The TLS handshake. It precedes farcall's own and shares its time limit.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use rpc_core::connect::{Alpn, HandshakeError};
use rpc_core::memory::MemoryCharge;
use rpc_core::transport::{Identity, TlsInfo};
use rpc_core::wire::{MAGIC, Spoken};
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use super::alpn::AlpnPolicy;
use super::messages::{self, Role};
use super::stream::TlsStream;
use crate::connection::socket::{Moved, Socket};

/// Bytes per read: enough for most flights of a handshake.
const STEP: usize = 4 << 10;

/// Maximum time for which the peer may keep sending after it learned why the handshake failed:
/// several round trips of a long path.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of bytes read in that time.
const LINGER_LEN_MAX: usize = 64 << 10;

/// The reply to a farcall client without TLS: a TLS alert (`unexpected_message`), which farcall
/// clients recognize by its first bytes.
const TO_FARCALL: &[u8] = &[21, 3, 3, 0, 2, 2, 10];

/// The reply to an HTTP/2 client without TLS: a GOAWAY with the code INADEQUATE_SECURITY and a
/// message for its user.
///
/// The SETTINGS that belong before it are missing on purpose. With them, gRPC clients would
/// consider the connection good, and make the same calls on one connection after another.
const TO_HTTP2: &[u8] = b"\0\0\x1e\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0cthis port requires TLS";

/// The reply to an HTTP/1 client without TLS.
const TO_HTTP1: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
    content-length: 23\r\nconnection: close\r\n\r\nthis port requires TLS\n";

/// Returns the reply to a client without TLS, in the client's own protocol.
fn refusal(spoken: Spoken) -> Option<&'static [u8]> {
    match spoken {
        Spoken::Farcall => Some(TO_FARCALL),
        Spoken::Http2 => Some(TO_HTTP2),
        Spoken::Http1 => Some(TO_HTTP1),
        _ => None,
    }
}

/// The reason why a handshake failed.
enum Failure {
    /// rustls refused the peer, or the peer refused us.
    Tls(rustls::Error),
    /// The peer's first bytes are not TLS.
    Foreign(Vec<u8>),
    /// The peer negotiates no protocol over TLS, and this end requires one.
    Alpn,
    /// The peer has closed the connection, with or without sending anything first.
    Closed {
        is_silent: bool,
    },
    NoMemory(String),
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs the handshake and returns the peer's identity.
pub(super) async fn handshake(stream: &TlsStream) -> Result<TlsInfo, HandshakeError> {
    let role = stream.session().role();
    let protocols = Arc::clone(&stream.session().protocols.list);
    let completed = complete(stream).await.and_then(|()| identify(stream));
    let failure = match completed {
        Ok(info) => return Ok(info),
        Err(failure) => failure,
    };
    let farewell = farewell(stream, role, &failure);
    // Bounded: a peer that reads nothing must not hold the handshake.
    let _ = timeout(LINGER_TIMEOUT, farewell).await;
    let reason = match failure {
        Failure::Tls(error) => messages::describe_error(role, &protocols, &error),
        Failure::Foreign(first) => messages::describe_first_bytes(role, &first),
        Failure::Alpn => messages::describe_no_alpn(role, &protocols),
        Failure::Closed { is_silent: true } if role == Role::Server => {
            return Err(HandshakeError::Silent);
        }
        Failure::Closed { is_silent } => messages::describe_close(role, is_silent),
        Failure::NoMemory(reason) => return Err(HandshakeError::NoMemory(reason)),
        Failure::Io(error) => return Err(error.into()),
    };
    Err(HandshakeError::Tls { reason })
}

async fn complete(stream: &TlsStream) -> Result<(), Failure> {
    let mut is_tls = false;
    let mut step = [0; STEP];
    loop {
        poll_fn(|cx| stream.poll_records(cx)).await?;
        if !stream.session().tls.is_handshaking() {
            // The peer's first records may be decrypted already. The socket will not announce them
            // again.
            let mut session = stream.session();
            session.set_unread();
            session.handshake_charge = MemoryCharge::default();
            return Ok(());
        }
        let len = read(stream, &mut step).await?;
        charge(stream, len)?;
        let mut bytes = &step[..len];
        match bytes {
            [] => return Err(Failure::Closed { is_silent: !is_tls }),
            // The record types of TLS: change of cipher, alert, handshake, data.
            [20..=23, ..] => is_tls = true,
            _ if is_tls => {}
            first => return Err(foreign(stream, first).await),
        }
        while !bytes.is_empty() {
            stream.session().take(&mut bytes).map_err(Failure::Tls)?;
        }
    }
}

/// Charges bytes that rustls holds until their message is complete.
fn charge(stream: &TlsStream, len: usize) -> Result<(), Failure> {
    // Charges outside the lock, because a refusal is logged.
    let mut charge = std::mem::take(&mut stream.session().handshake_charge);
    let charged = charge.try_set(charge.len() + len as u64);
    stream.session().handshake_charge = charge;
    charged.map_err(|status| Failure::NoMemory(status.message().to_owned()))
}

/// Waits until the socket is readable, then reads once.
async fn read(stream: &TlsStream, to: &mut [u8]) -> io::Result<usize> {
    loop {
        poll_fn(|cx| stream.tcp.poll_read_ready(cx)).await?;
        match Socket::try_read(&stream.tcp, &mut [IoSliceMut::new(to)]) {
            Ok(Moved { len, .. }) => return Ok(len),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Collects the first bytes of a peer without TLS, until they identify its protocol.
async fn foreign(stream: &TlsStream, first: &[u8]) -> Failure {
    let mut first = first[..first.len().min(MAGIC.len())].to_vec();
    while first.len() < MAGIC.len() && Spoken::of(&first).is_none() {
        let mut more = [0; MAGIC.len()];
        let room = MAGIC.len() - first.len();
        match read(stream, &mut more[..room]).await {
            Ok(len) if len > 0 => first.extend_from_slice(&more[..len]),
            _ => break,
        }
    }
    Failure::Foreign(first)
}

/// Returns the peer's protocol and identity.
fn identify(stream: &TlsStream) -> Result<TlsInfo, Failure> {
    let session = stream.session();
    let leaf = session.tls.peer_certificates().and_then(<[_]>::first);
    let info = TlsInfo::new(leaf.map(identity).transpose()?);
    let protocols = &session.protocols;
    match session.tls.alpn_protocol() {
        Some(agreed) => {
            let agreed = protocols.find(agreed).ok_or(Failure::Alpn)?;
            Ok(info.with_protocol(agreed.id))
        }
        None if protocols.policy == AlpnPolicy::Optional => Ok(info),
        // Probes speak HTTP/1 and offer no protocol.
        None => match protocols.find(Alpn::HTTP1.id.as_bytes()) {
            Some(http1) => Ok(info.with_assumed_protocol(http1.id)),
            None => Err(Failure::Alpn),
        },
    }
}

/// Returns the identity of a leaf certificate that rustls has verified.
fn identity(leaf: &CertificateDer<'_>) -> Result<Identity, Failure> {
    let parsed = webpki::EndEntityCert::try_from(leaf).map_err(|error| {
        // rustls has parsed it already, so this is not expected to fail.
        Failure::Io(io::Error::other(format!("the peer's certificate cannot be read: {error}")))
    })?;
    let dns_names = parsed.valid_dns_names().map(str::to_owned).collect();
    let uris = parsed.valid_uri_names().map(str::to_owned).collect();
    Ok(Identity::new(leaf.to_vec(), dns_names, uris))
}

/// Tells the peer why there is no session, shuts down this side's direction, and discards the
/// peer's bytes, within limits, until it has closed.
///
/// Closing a socket with unread bytes resets the connection, and the reset would discard the last
/// message to the peer.
async fn farewell(stream: &TlsStream, role: Role, failure: &Failure) -> io::Result<()> {
    match failure {
        Failure::Foreign(first) => {
            let spoken = Spoken::of(first).filter(|_| role == Role::Server);
            let Some(refusal) = spoken.and_then(refusal) else { return Ok(()) };
            // A fresh socket accepts this few bytes at once.
            Socket::try_write(&stream.tcp, &[IoSlice::new(refusal)])?;
        }
        // rustls has its alert ready.
        Failure::Tls(_) => poll_fn(|cx| stream.poll_records(cx)).await?,
        Failure::Alpn => {}
        Failure::Closed { .. } | Failure::NoMemory(_) | Failure::Io(_) => return Ok(()),
    }
    poll_fn(|cx| stream.tcp.poll_end_writing(cx)).await?;
    let (mut sink, mut total) = ([0; STEP], 0);
    while total < LINGER_LEN_MAX {
        match read(stream, &mut sink).await? {
            0 => break,
            len => total += len,
        }
    }
    Ok(())
}
