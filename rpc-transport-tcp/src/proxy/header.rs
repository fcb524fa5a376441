//! A decoder for PROXY headers.
//!
//! | version 1 | names |
//! |---|---|
//! | `PROXY TCP4 192.0.2.1 192.0.2.9 51234 443\r\n` | the client, the proxy, their ports |
//! | `PROXY TCP6 ...\r\n` | the same over IPv6 |
//! | `PROXY UNKNOWN ...\r\n` | no client that has an address |
//!
//! | version 2: offset | size | field |
//! |---|---|---|
//! | 0 | 12 | signature |
//! | 12 | 1 | version (2), and command: LOCAL (0) or PROXY (1) |
//! | 13 | 1 | family: none (0), IPv4 (1), IPv6 (2), Unix (3) |
//! | | | and transport: none (0), stream (1), datagram (2) |
//! | 14 | 2 | length of what follows |
//! | 16 | 12, 36, 216 | the client's address, the proxy's, the client's port, the proxy's |
//! | behind it | | TLVs, which are skipped |
//!
//! A UDP client (HTTP/3 at the proxy) has an address like any other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

/// Maximum length of a version 1 header in bytes, with both addresses at their longest.
pub(super) const V1_LEN_MAX: usize = 107;

/// Length of the fixed part of a version 2 header in bytes.
const V2_LEN_MIN: usize = 16;

/// Maximum length of a version 2 header in bytes. The format allows 64 KiB. Load balancers stay
/// below 1 KiB: addresses, and TLVs with the names of a certificate, a host and an endpoint.
const V2_LEN_MAX: usize = 4 << 10;

const V1_BEGIN: &[u8] = b"PROXY ";
const V2_BEGIN: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Minimum length of a version 1 header in bytes, which is below that of version 2.
const V1_LEN_MIN: usize = b"PROXY UNKNOWN\r\n".len();

/// The result of decoding the bytes so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// The header needs at least this many more bytes.
    Needs(usize),
    /// The client is known.
    Known {
        /// The client's address. `None` if the proxy speaks for itself, as in a health check, or if
        /// the client has no address.
        client: Option<SocketAddr>,
        /// Length of the header in bytes. Bytes that are still missing are TLVs.
        len: usize,
    },
}

/// The fault of a connection that begins with no PROXY header or a malformed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum HeaderError {
    /// The first bytes are something else.
    #[error("there is none")]
    Absent,
    /// The line does not end.
    #[error("its line does not end within {V1_LEN_MAX} bytes")]
    Endless,
    /// The line has a malformed field.
    #[error("its {0} cannot be read")]
    Line(&'static str),
    /// The version is unsupported.
    #[error("its version {0} is neither 1 nor 2")]
    Version(u8),
    /// Version 2 does not define the value.
    #[error("its {what} {value} is unknown")]
    Unknown {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u8,
    },
    /// The length has no room for the addresses.
    #[error("its length of {0} bytes has no room for its addresses")]
    Short(usize),
    /// The length exceeds the limit.
    #[error("it is {0} bytes long, and the limit is {V2_LEN_MAX}")]
    Long(usize),
}

/// Decodes the beginning of a connection.
///
/// # Errors
///
/// Returns an error as soon as the bytes cannot become a header, however few they are.
pub(crate) fn decode(bytes: &[u8]) -> Result<Decoded, HeaderError> {
    let is_begun = |begin: &[u8]| bytes.starts_with(begin) || begin.starts_with(bytes);
    let (len_min, decode): (_, fn(&[u8]) -> _) = if is_begun(V1_BEGIN) {
        (V1_LEN_MIN, decode_line)
    } else if is_begun(V2_BEGIN) {
        (V2_LEN_MIN, decode_binary)
    } else {
        return Err(HeaderError::Absent);
    };
    match len_min.checked_sub(bytes.len()) {
        None | Some(0) => decode(bytes),
        Some(more) => Ok(Decoded::Needs(more)),
    }
}

/// Decodes version 1.
fn decode_line(bytes: &[u8]) -> Result<Decoded, HeaderError> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n");
    let Some(end) = end.filter(|end| end + 2 <= V1_LEN_MAX) else {
        // Asks for the end of the line and no more. Further bytes may belong to the client.
        let needed = if bytes.ends_with(b"\r") { 1 } else { 2 };
        return match bytes.len() + needed <= V1_LEN_MAX {
            true => Ok(Decoded::Needs(needed)),
            false => Err(HeaderError::Endless),
        };
    };
    let line = std::str::from_utf8(&bytes[V1_BEGIN.len()..end]);
    let line = line.map_err(|_| HeaderError::Line("text"))?;
    let (family, rest) = line.split_once(' ').unwrap_or((line, ""));
    let client = match family {
        "TCP4" => Some(line_client::<Ipv4Addr>(rest)?),
        "TCP6" => Some(line_client::<Ipv6Addr>(rest)?),
        // The protocol gives the rest of this line no meaning.
        "UNKNOWN" => None,
        _ => return Err(HeaderError::Line("family")),
    };
    Ok(Decoded::Known { client, len: end + 2 })
}

/// Returns the client from a line's last four fields.
fn line_client<T: FromStr + Into<IpAddr>>(fields: &str) -> Result<SocketAddr, HeaderError> {
    let mut fields = fields.split(' ');
    let mut field = |what| fields.next().ok_or(HeaderError::Line(what));
    let (client, proxy) = (field("client address")?, field("proxy address")?);
    let (port, proxy_port) = (field("client port")?, field("proxy port")?);
    if fields.next().is_some() {
        return Err(HeaderError::Line("end"));
    }
    let address = |text: &str, what| text.parse::<T>().map_err(|_| HeaderError::Line(what));
    let client: IpAddr = address(client, "client address")?.into();
    address(proxy, "proxy address")?;
    line_port(proxy_port, "proxy port")?;
    Ok(SocketAddr::new(client, line_port(port, "client port")?))
}

fn line_port(text: &str, what: &'static str) -> Result<u16, HeaderError> {
    // The number parser accepts a sign and leading zeros. The protocol accepts neither.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = text == "0" || !text.starts_with('0');
    let port = text.parse().ok().filter(|_| is_plain && is_short);
    port.ok_or(HeaderError::Line(what))
}

/// Decodes version 2 once its fixed part has arrived.
fn decode_binary(bytes: &[u8]) -> Result<Decoded, HeaderError> {
    let unknown = |what, value| Err(HeaderError::Unknown { what, value });
    let (version, command) = (bytes[12] >> 4, bytes[12] & 15);
    if version != 2 {
        return Err(HeaderError::Version(version));
    }
    let body_len = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    let len = V2_LEN_MIN + body_len;
    if len > V2_LEN_MAX {
        return Err(HeaderError::Long(len));
    }
    let (family, transport) = (bytes[13] >> 4, bytes[13] & 15);
    let address_len = match (command, family) {
        // A LOCAL connection is the proxy's own. The rest of its header is irrelevant.
        (0, _) | (1, 0) => 0,
        (1, 1) => 2 * (4 + 2),
        (1, 2) => 2 * (16 + 2),
        (1, 3) => 2 * 108,
        (1, family) => return unknown("family", family),
        (command, _) => return unknown("command", command),
    };
    if command == 1 && transport > 2 {
        return unknown("transport", transport);
    }
    if body_len < address_len {
        return Err(HeaderError::Short(body_len));
    }
    if address_len == 0 || family == 3 || transport == 0 {
        return Ok(Decoded::Known { client: None, len });
    }
    let Some(addresses) = bytes[V2_LEN_MIN..].get(..address_len) else {
        return Ok(Decoded::Needs(V2_LEN_MIN + address_len - bytes.len()));
    };
    let client: IpAddr = match addresses {
        [a, b, c, d, ..] if family == 1 => Ipv4Addr::new(*a, *b, *c, *d).into(),
        addresses => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&addresses[..16]);
            Ipv6Addr::from(octets).into()
        }
    };
    let port = &addresses[address_len - 4..];
    let port = u16::from_be_bytes([port[0], port[1]]);
    Ok(Decoded::Known { client: Some(SocketAddr::new(client, port)), len })
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
