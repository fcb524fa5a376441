//! The protocol of a peer, by its first bytes.

/// First bytes of farcall's handshake messages.
pub const MAGIC: [u8; 8] = *b"farcall\n";

/// A protocol that a connection may begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spoken {
    /// farcall, without TLS around it.
    Farcall,
    /// TLS: a record with a handshake or an alert.
    Tls,
    /// HTTP/2 without TLS: what its client begins with, or its server.
    Http2,
    /// HTTP/1.
    Http1,
    /// SSH.
    Ssh,
    /// The header that a proxy puts before a connection.
    Proxy,
}

impl Spoken {
    /// Returns the protocol that begins with these bytes. `None` if no known protocol does. Eight
    /// bytes are enough.
    #[must_use]
    pub fn of(first: &[u8]) -> Option<Self> {
        let begins: [(&[u8], Self); 13] = [
            (&MAGIC, Self::Farcall),
            (b"PRI * HT", Self::Http2),
            (b"HTTP/1.", Self::Http1),
            (b"GET ", Self::Http1),
            (b"PUT ", Self::Http1),
            (b"HEAD ", Self::Http1),
            (b"POST ", Self::Http1),
            (b"DELETE ", Self::Http1),
            (b"OPTIONS ", Self::Http1),
            (b"CONNECT ", Self::Http1),
            (b"SSH-", Self::Ssh),
            (b"PROXY ", Self::Proxy),
            (b"\r\n\r\n\0\r\nQ", Self::Proxy),
        ];
        if let Some((_, spoken)) = begins.iter().find(|(begin, _)| first.starts_with(begin)) {
            return Some(*spoken);
        }
        match *first {
            // A record of TLS: an alert (21) or a handshake (22).
            [21 | 22, 3, ..] => Some(Self::Tls),
            // What an HTTP/2 server begins with: a SETTINGS frame (type 4) without flags, on
            // stream 0.
            [0, _, _, 4, 0, 0, 0, 0, ..] => Some(Self::Http2),
            _ => None,
        }
    }

    /// The protocol, in words that say what to do about it where farcall was expected.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Farcall => "this is farcall without TLS",
            Self::Tls => "this is TLS, which one side has and the other has not: set `tls` on both",
            Self::Http2 => "this is gRPC over HTTP/2, which farcall speaks with its feature `grpc`",
            Self::Http1 => "this is HTTP/1.1",
            Self::Ssh => "this is SSH",
            Self::Proxy => {
                "this is a PROXY header, which a server accepts only from the networks in \
                 proxy_protocol.from"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_known_by_their_first_bytes() {
        for (first, known) in [
            (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], Spoken::Http2),
            (&[0, 0, 18, 4, 0, 0, 0, 0, 0][..], Spoken::Http2),
            (b"GET / HTTP/1.1\r\n", Spoken::Http1),
            (b"HTTP/1.0 400 Bad Request", Spoken::Http1),
            (&[22, 3, 1, 2, 0, 1, 0, 1][..], Spoken::Tls),
            (&[21, 3, 1, 0, 2, 2, 70][..], Spoken::Tls),
            (b"SSH-2.0-OpenSSH_9.2", Spoken::Ssh),
            (b"PROXY TCP4 10.0.0.1", Spoken::Proxy),
            (b"farcall\n", Spoken::Farcall),
        ] {
            assert_eq!(Spoken::of(first), Some(known), "{first:?}");
        }
        for unknown in [&b"GETX"[..], b"\x00\x01\x02", b"", b"farcall"] {
            assert_eq!(Spoken::of(unknown), None);
        }
    }
}
