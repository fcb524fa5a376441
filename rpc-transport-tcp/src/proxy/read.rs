//! Reading a PROXY header from a socket, and nothing beyond it.

use std::io;
use std::net::SocketAddr;

use rpc_core::connect::HandshakeError;
use tokio::net::TcpStream;

use super::header::{Decoded, HeaderError, V1_LEN_MAX, decode};

/// Number of TLV bytes that one read discards.
const SKIP_STEP: usize = 512;

/// Reads the header at the beginning of `stream`, whose peer is `proxy`. Returns `None` if it names
/// no client address.
///
/// # Errors
///
/// Returns an error if the stream ends or fails, or if the header is missing or malformed.
pub(crate) async fn read_client(
    stream: &TcpStream,
    proxy: Option<SocketAddr>,
) -> Result<Option<SocketAddr>, HandshakeError> {
    // Version 2 needs less for its addresses.
    let mut header = [0; V1_LEN_MAX];
    let mut len = 0;
    let (client, header_len) = loop {
        match decode(&header[..len]).map_err(|error| refusal(proxy, error))? {
            Decoded::Known { client, len } => break (client, len),
            Decoded::Needs(more) => match read(stream, &mut header[len..len + more]).await? {
                // A port scan or a health check without a header. It is not worth a warning.
                0 if len == 0 => return Err(HandshakeError::Silent),
                read => len += at_least_one(read)?,
            },
        }
    };
    // TLVs are read in steps and discarded. Their length is the peer's claim, so nothing is
    // allocated for it.
    let mut left = header_len.saturating_sub(len);
    while left > 0 {
        let mut skipped = [0; SKIP_STEP];
        let step = left.min(SKIP_STEP);
        left -= at_least_one(read(stream, &mut skipped[..step]).await?)?;
    }
    Ok(client)
}

/// Waits until the socket is readable, then reads once.
async fn read(stream: &TcpStream, to: &mut [u8]) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read(to) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

fn at_least_one(read: usize) -> io::Result<usize> {
    if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(read) }
}

fn refusal(proxy: Option<SocketAddr>, error: HeaderError) -> HandshakeError {
    let proxy =
        proxy.map_or_else(|| "it".to_owned(), |proxy| proxy.ip().to_canonical().to_string());
    let reason = match error {
        HeaderError::Absent => format!(
            "the connection begins without a PROXY header, and {proxy} is in a network of \
             proxy_protocol.from: have the proxy send one, or take the network out"
        ),
        error => format!("the PROXY header of {proxy} is malformed: {error}"),
    };
    HandshakeError::ProxyHeader { reason }
}
