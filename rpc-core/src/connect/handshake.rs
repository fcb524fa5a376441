//! Handshake messages on a byte stream: one at a time, bounded in length, never read beyond.

use std::io;
use std::time::Duration;

use prost::Message;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tonic::Status;

use super::{ConnectError, ConnectFault};
use crate::memory::MemoryCharge;
use crate::wire::ProtocolError;
use crate::wire::hello::{self, MAGIC_LEN, PREFIX_LEN, Shape};

/// The first memory for a body. It grows with what has arrived, so that a peer which announces a
/// long message and sends none of it holds no more than this.
const BODY_STEP: usize = 4 << 10;

/// An error in the messages of a handshake.
#[derive(Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer closed the stream before it said anything, as a port scan or a health check does.
    #[error("the peer closed the connection before it sent anything: it may not speak farcall")]
    Silent,
    /// The stream failed, or ended inside a message.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer sent something that is not the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The server's memory budget has no room for what the peer says.
    #[error("{0}")]
    NoMemory(String),
    /// There is no TLS session between the two: a certificate was refused, or one side does not
    /// speak TLS.
    #[error("{reason}")]
    Tls {
        /// The sentence for the user.
        reason: String,
    },
    /// The client speaks another protocol than the one that it agreed on in the TLS handshake.
    #[error("the client negotiated {agreed} in the TLS handshake (ALPN), but speaks {spoken}")]
    NotAgreed {
        /// Protocol that ALPN agreed on.
        agreed: &'static str,
        /// Protocol that it speaks.
        spoken: &'static str,
    },
    /// The client agreed on no protocol in the TLS handshake, and speaks one that has to be agreed
    /// on.
    #[error(
        "the client speaks {spoken} over TLS without ALPN: something such as a load balancer \
         terminates TLS in between; accept that with tls.alpn = \"optional\" on the server"
    )]
    NoAlpn {
        /// The protocol that the client speaks.
        spoken: &'static str,
    },
    /// A proxy is to say who the client is, and says nothing or something that cannot be read.
    #[error("{reason}")]
    ProxyHeader {
        /// The sentence for the operator.
        reason: String,
    },
    /// The client says that it uses an upgraded path, and nothing of it has come over that.
    #[error("{upgrade}: the client reported a good path without having sent a probe over it")]
    Unproven {
        /// The upgrade's name.
        upgrade: &'static str,
    },
    /// The client does not say whether the upgraded path is good.
    #[error(
        "{upgrade}: the client sent no verdict about the path within {} ms",
        timeout.as_millis()
    )]
    NoVerdict {
        /// The upgrade's name.
        upgrade: &'static str,
        /// The bound, in milliseconds.
        timeout: Duration,
    },
}

crate::readable_debug!(HandshakeError);

/// Reads one message of that shape.
pub(crate) async fn read<M: Message + Default>(
    stream: &mut (impl AsyncRead + Unpin + ?Sized),
    shape: &Shape,
) -> Result<M, HandshakeError> {
    Ok(read_with_body(stream, shape, &mut MemoryCharge::default()).await?.0)
}

/// Reads one message of that shape, and gives its body as it came, too. `charge` grows with it.
pub(crate) async fn read_with_body<M: Message + Default>(
    stream: &mut (impl AsyncRead + Unpin + ?Sized),
    shape: &Shape,
    charge: &mut MemoryCharge,
) -> Result<(M, Vec<u8>), HandshakeError> {
    let mut prefix = [0; PREFIX_LEN];
    let len = read_magic(stream, &mut prefix).await?;
    stream.read_exact(&mut prefix[len..]).await?;
    let body = read_body(stream, hello::decode_prefix(shape, &prefix)?, charge).await?;
    Ok((hello::decode_body(shape, &body)?, body))
}

/// Reads the magic, and gives its length. A peer of another protocol is told by as few bytes as it
/// sends: it may wait for an answer after them, or close.
async fn read_magic(
    stream: &mut (impl AsyncRead + Unpin + ?Sized),
    prefix: &mut [u8; PREFIX_LEN],
) -> Result<usize, HandshakeError> {
    let mut len = 0;
    while len < MAGIC_LEN {
        let read = stream.read(&mut prefix[len..MAGIC_LEN]).await?;
        if read == 0 && len == 0 {
            return Err(HandshakeError::Silent);
        }
        len += read;
        let is_whole = len == MAGIC_LEN || read == 0;
        if is_whole {
            hello::check_magic(&prefix[..len])?;
        }
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    Ok(len)
}

/// Reads a body into memory that grows with what has arrived. `charge` grows to twice that, since
/// the body is decoded to as much again.
async fn read_body(
    stream: &mut (impl AsyncRead + Unpin + ?Sized),
    len: usize,
    charge: &mut MemoryCharge,
) -> Result<Vec<u8>, HandshakeError> {
    let mut stream = stream.take(len as u64);
    let mut body = Vec::new();
    while body.len() < len {
        if body.len() == body.capacity() {
            let more = body.len().max(BODY_STEP).min(len - body.len());
            let held = charge.len().max(2 * (body.len() + more) as u64);
            let refused = |status: Status| HandshakeError::NoMemory(status.message().to_owned());
            charge.try_set(held).map_err(refused)?;
            body.reserve_exact(more);
        }
        if stream.read_buf(&mut body).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    Ok(body)
}

/// Writes one message.
pub(crate) async fn write(
    stream: &mut (impl AsyncWrite + Unpin + ?Sized),
    message: &impl Message,
) -> Result<(), HandshakeError> {
    write_encoded(stream, &hello::encode(message)?).await
}

/// Writes one message that is encoded.
pub(crate) async fn write_encoded(
    stream: &mut (impl AsyncWrite + Unpin + ?Sized),
    message: &[u8],
) -> Result<(), HandshakeError> {
    stream.write_all(message).await?;
    Ok(stream.flush().await?)
}

/// Why there is no connection to `address`, whose handshake has failed so.
#[must_use]
pub fn handshake_failed(address: &str, error: HandshakeError) -> ConnectError {
    let address = address.to_owned();
    match error {
        HandshakeError::Silent => {
            let message = "the server closed the connection before it sent anything: it may not \
                           speak farcall";
            let reason = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, message);
            ConnectError::from(ConnectFault::Handshake { address, reason })
        }
        HandshakeError::Tls { reason } => ConnectError::from(ConnectFault::Tls { address, reason }),
        HandshakeError::Io(reason) => {
            ConnectError::from(ConnectFault::Handshake { address, reason })
        }
        HandshakeError::Protocol(reason) => {
            ConnectError::from(ConnectFault::Protocol { address, reason })
        }
        // Errors of the server's side.
        HandshakeError::Unproven { .. }
        | HandshakeError::NoVerdict { .. }
        | HandshakeError::NotAgreed { .. }
        | HandshakeError::NoAlpn { .. }
        | HandshakeError::ProxyHeader { .. }
        | HandshakeError::NoMemory(_) => ConnectError::from(ConnectFault::Handshake {
            address,
            reason: std::io::Error::other(error),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures::FutureExt;
    use proptest::prelude::*;
    use tokio::io::ReadBuf;

    use super::*;
    use crate::memory::MemoryShare;

    /// Gives pieces of these lengths, and checks how much room there is for each.
    struct Pieces {
        lens: Vec<usize>,
        arrived: usize,
    }

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let room = buf.remaining();
            assert!(room <= self.arrived.max(BODY_STEP), "{room} at {}", self.arrived);
            let len = self.lens.pop().unwrap_or(0).min(room);
            self.arrived += len;
            buf.put_slice(&vec![7; len]);
            Poll::Ready(Ok(()))
        }
    }

    fn refused(sent: &[u8]) -> String {
        let mut stream = sent;
        let read = read::<hello::Hello>(&mut stream, &hello::CLIENT_HELLO);
        let read = read.now_or_never().expect("nothing is waited for");
        read.unwrap_err().to_string()
    }

    #[test]
    fn a_peer_of_another_protocol_is_told_by_what_it_sends() {
        let tls_alert = [21, 3, 1, 0, 2, 2, 70];
        assert!(refused(&tls_alert).contains("this is TLS"));
        assert!(refused(b"GET / HTTP/1.1\r\n\r\n").contains("this is HTTP/1.1"));
        assert!(refused(b"hello").contains("its first bytes are [68, 65, 6c, 6c, 6f]"));
        assert_eq!(refused(b"farc"), "unexpected end of file");
        assert_eq!(refused(b""), HandshakeError::Silent.to_string());
    }

    proptest! {
        #[test]
        fn memory_grows_with_what_has_arrived(
            len in 0..200_000usize,
            lens in prop::collection::vec(1..70_000usize, 0..40),
        ) {
            let total: usize = lens.iter().sum();
            let mut stream = Pieces { lens, arrived: 0 };
            let share = MemoryShare::whole(1 << 30);
            let mut charge = share.take(0);
            let read = read_body(&mut stream, len, &mut charge).now_or_never();
            let read = read.expect("nothing is waited for");
            let charged = usize::try_from(charge.len()).unwrap();
            prop_assert!(charged <= 4 * stream.arrived.max(BODY_STEP), "{charged}");
            prop_assert!(charged >= 2 * stream.arrived);
            prop_assert!(stream.arrived <= len, "nothing is read beyond");
            match read {
                Ok(body) => prop_assert_eq!(body.len(), len),
                Err(_) => prop_assert!(total < len || stream.lens.is_empty()),
            }
        }
    }
}
