//! What a client of another protocol is told before its connection is closed.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::{Bootstrap, HandshakeError};
use crate::wire::{MAGIC, ProtocolError, Spoken};

/// How long the client may go on sending: some round trips of a long way.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// The most that is read of it meanwhile: a TLS client's first message, certificates and all.
const LINGER_LEN_MAX: u64 = 64 << 10;

/// Tells a TLS client that this is farcall without TLS, by farcall's magic, which its side knows.
/// Clients of other protocols are told nothing.
///
/// What the client sends is thrown away, within bounds, until it has closed: a socket that is
/// closed with bytes unread resets the connection, which takes the answer from the client.
pub(super) async fn turn_away(bootstrap: &mut dyn Bootstrap, error: &HandshakeError) {
    let HandshakeError::Protocol(ProtocolError::Magic { found }) = error else { return };
    if Spoken::of(found) != Some(Spoken::Tls) {
        return;
    }
    let telling = async {
        bootstrap.write_all(&MAGIC).await?;
        bootstrap.shutdown().await?;
        let mut rest = bootstrap.take(LINGER_LEN_MAX);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    // The client may be gone already.
    let _ = timeout(LINGER_TIMEOUT, telling).await;
}
