//! Handshake messages on a byte stream: one at a time, bounded in length, never read beyond.

use std::io;

use prost::Message;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::wire::ProtocolError;
use crate::wire::hello::{self, PREFIX_LEN};

/// What can go wrong with the messages of a handshake.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer closed the stream before it said anything, as a port scan or a health check does.
    #[error("the peer closed the connection without a word")]
    Silent,
    /// The stream failed, or ended inside a message.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer sent something that is not the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// Reads one message; `what` names it in errors.
pub(super) async fn read<M: Message + Default>(
    stream: &mut (impl AsyncRead + Unpin + ?Sized),
    what: &'static str,
) -> Result<M, HandshakeError> {
    let mut prefix = [0; PREFIX_LEN];
    if stream.read(&mut prefix[..1]).await? == 0 {
        return Err(HandshakeError::Silent);
    }
    stream.read_exact(&mut prefix[1..]).await?;
    let mut body = vec![0; hello::decode_prefix(&prefix)?];
    stream.read_exact(&mut body).await?;
    Ok(hello::decode_body(what, &body)?)
}

/// Writes one message.
pub(super) async fn write(
    stream: &mut (impl AsyncWrite + Unpin + ?Sized),
    message: &impl Message,
) -> Result<(), HandshakeError> {
    stream.write_all(&hello::encode(message)?).await?;
    Ok(stream.flush().await?)
}
