//! Other protocols, by the first bytes that their peers send.

/// What a connection speaks that does not begin with farcall's magic, in words that say what to
/// do about it; `None` for bytes that no protocol here begins with. Eight bytes are enough.
pub(super) fn protocol(first: &[u8]) -> Option<&'static str> {
    const HTTP1: &str = "this is HTTP/1.1";
    const HTTP2: &str = "this is gRPC over HTTP/2, which tonic speaks and farcall does not";
    const TLS: &str = "this is TLS, which farcall does not have";
    const PROXY: &str = "this is the header of a proxy (PROXY protocol): switch it off there";
    let begins: [(&[u8], &str); 12] = [
        (b"PRI * HT", HTTP2),
        (b"HTTP/1.", HTTP1),
        (b"GET ", HTTP1),
        (b"PUT ", HTTP1),
        (b"HEAD ", HTTP1),
        (b"POST ", HTTP1),
        (b"DELETE ", HTTP1),
        (b"OPTIONS ", HTTP1),
        (b"CONNECT ", HTTP1),
        (b"SSH-", "this is SSH"),
        (b"PROXY ", PROXY),
        (b"\r\n\r\n\0\r\nQ", PROXY),
    ];
    if let Some((_, words)) = begins.iter().find(|(begin, _)| first.starts_with(begin)) {
        return Some(words);
    }
    match *first {
        // A record of TLS: an alert (21) or a handshake (22).
        [21 | 22, 3, ..] => Some(TLS),
        // What an HTTP/2 server begins with: a SETTINGS frame (type 4) without flags, on stream 0.
        [0, _, _, 4, 0, 0, 0, 0, ..] => Some(HTTP2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_known_by_their_first_bytes() {
        for (first, known) in [
            (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], "gRPC over HTTP/2"),
            (&[0, 0, 18, 4, 0, 0, 0, 0, 0][..], "gRPC over HTTP/2"),
            (b"GET / HTTP/1.1\r\n", "HTTP/1.1"),
            (b"HTTP/1.0 400 Bad Request", "HTTP/1.1"),
            (&[22, 3, 1, 2, 0, 1, 0, 1][..], "TLS"),
            (&[21, 3, 1, 0, 2, 2, 70][..], "TLS"),
            (b"SSH-2.0-OpenSSH_9.2", "SSH"),
            (b"PROXY TCP4 10.0.0.1", "PROXY protocol"),
        ] {
            let words = protocol(first).unwrap_or_default();
            assert!(words.contains(known), "{first:?}: {words}");
        }
        for unknown in [&b"GETX"[..], b"\x00\x01\x02", b"", b"farcall\n"] {
            assert_eq!(protocol(unknown), None);
        }
    }
}
