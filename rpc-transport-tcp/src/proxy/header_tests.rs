//! Headers as proxies send them, cut anywhere, and bytes that are not headers.

use proptest::prelude::*;

use super::*;

fn known(client: Option<&str>, len: usize) -> Result<Decoded, HeaderError> {
    Ok(Decoded::Known { client: client.map(|client| client.parse().unwrap()), len })
}

/// Returns a version 2 header.
fn binary(command: u8, family: u8, addresses: &[u8], tlvs: &[u8]) -> Vec<u8> {
    let len = u16::try_from(addresses.len() + tlvs.len()).unwrap();
    [V2_BEGIN, &[0x20 | command, family], &len.to_be_bytes(), addresses, tlvs].concat()
}

/// Returns version 2's address block. The proxy's own end has no meaning.
fn block(client: SocketAddr) -> (u8, Vec<u8>) {
    let port = client.port().to_be_bytes();
    match client.ip() {
        IpAddr::V4(ip) => (0x10, [&ip.octets()[..], &[192, 0, 2, 9], &port, &[1, 187]].concat()),
        IpAddr::V6(ip) => (0x20, [&ip.octets()[..], &[9; 16], &port, &[1, 187]].concat()),
    }
}

fn line(client: SocketAddr) -> String {
    let (port, ip) = (client.port(), client.ip());
    match client {
        SocketAddr::V4(_) => format!("PROXY TCP4 {ip} 192.0.2.9 {port} 443\r\n"),
        SocketAddr::V6(_) => format!("PROXY TCP6 {ip} 2001:db8::9 {port} 443\r\n"),
    }
}

/// Reads a header like a socket, never more than needed. Also returns the number of bytes read.
fn read(stream: &[u8]) -> (Result<Decoded, HeaderError>, usize) {
    let mut len = 0;
    loop {
        match decode(&stream[..len]) {
            Ok(Decoded::Needs(more)) if len + more <= stream.len() => len += more,
            result => return (result, len),
        }
    }
}

fn clients() -> impl Strategy<Value = SocketAddr> {
    let ip = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
    ];
    (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

#[test]
fn lines_of_version_1_name_the_client() {
    for (line, client) in [
        ("PROXY TCP4 192.0.2.1 192.0.2.9 51234 443\r\n", Some("192.0.2.1:51234")),
        ("PROXY TCP6 2001:db8::1 2001:db8::9 1 2\r\n", Some("[2001:db8::1]:1")),
        ("PROXY TCP6 ::ffff:192.0.2.1 ::1 0 65535\r\n", Some("[::ffff:192.0.2.1]:0")),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN a b c d e f g h\r\n", None),
    ] {
        assert_eq!(read(line.as_bytes()), (known(client, line.len()), line.len()), "{line}");
    }
    let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(V1_LEN_MAX - 16));
    assert_eq!(read(longest.as_bytes()).0, known(None, V1_LEN_MAX));
}

#[test]
fn a_malformed_line_is_refused_by_its_field() {
    for (line, fault) in [
        ("PROXY TCP5 192.0.2.1 192.0.2.9 1 2\r\n", "family"),
        ("PROXY  TCP4 192.0.2.1 192.0.2.9 1 2\r\n", "family"),
        ("PROXY TCP4 2001:db8::1 192.0.2.9 1 2\r\n", "client address"),
        ("PROXY TCP4 192.0.2.01 192.0.2.9 1 2\r\n", "client address"),
        ("PROXY TCP6 192.0.2.1 192.0.2.9 1 2\r\n", "client address"),
        ("PROXY TCP4 192.0.2.1 host 1 2\r\n", "proxy address"),
        ("PROXY TCP4 192.0.2.1 192.0.2.9 +1 2\r\n", "client port"),
        ("PROXY TCP4 192.0.2.1 192.0.2.9 65536 2\r\n", "client port"),
        ("PROXY TCP4 192.0.2.1 192.0.2.9 01 2\r\n", "client port"),
        ("PROXY TCP4 192.0.2.1 192.0.2.9 1\r\n", "proxy port"),
        ("PROXY TCP4 192.0.2.1 192.0.2.9 1 \r\n", "proxy port"),
        ("PROXY TCP4 192.0.2.1 192.0.2.9 1 2 3\r\n", "end"),
    ] {
        assert_eq!(read(line.as_bytes()).0, Err(HeaderError::Line(fault)), "{line}");
    }
    let text = b"PROXY TCP4 \xff\xff\xff\xff\r\n";
    assert_eq!(read(text).0, Err(HeaderError::Line("text")));
    assert_eq!(read(&[b"PROXY ", &[b'x'; 200][..]].concat()).0, Err(HeaderError::Endless));
}

#[test]
fn version_2_without_a_client_keeps_the_proxys_address() {
    let v4 = block("192.0.2.1:1".parse().unwrap()).1;
    for header in [
        binary(0, 0x00, &[], &[]),
        // A health check may carry addresses and any family.
        binary(0, 0x11, &v4, &[]),
        binary(0, 0xff, &[1, 2, 3], &[]),
        binary(1, 0x00, &[], &[]),
        binary(1, 0x31, &[b'/'; 216], &[]),
        binary(1, 0x10, &v4, &[]),
    ] {
        assert_eq!(read(&header).0, known(None, header.len()), "{header:?}");
    }
}

#[test]
fn version_2_is_refused_by_the_field_at_fault() {
    let unknown = |what, value| Err(HeaderError::Unknown { what, value });
    let v4 = block("192.0.2.1:1".parse().unwrap()).1;
    for (header, fault) in [
        (binary(2, 0x11, &v4, &[]), unknown("command", 2)),
        (binary(1, 0x41, &v4, &[]), unknown("family", 4)),
        (binary(1, 0x13, &v4, &[]), unknown("transport", 3)),
        (binary(1, 0x21, &v4, &[]), Err(HeaderError::Short(12))),
        (binary(1, 0x31, &v4, &[]), Err(HeaderError::Short(12))),
        (binary(1, 0x11, &v4, &[0; 4096]), Err(HeaderError::Long(4124))),
        (binary(0, 0x00, &[], &[0; 65_535]), Err(HeaderError::Long(65_551))),
    ] {
        assert_eq!(read(&header).0, fault);
    }
    let mut header = binary(1, 0x11, &v4, &[]);
    header[12] = 0x31;
    assert_eq!(read(&header).0, Err(HeaderError::Version(3)));
}

#[test]
fn a_missing_header_is_detected_at_once() {
    for first in [&b"farcall\n"[..], b"PRI * HTTP", &[22, 3, 1], b"GET /", b"\r\n\r\n\r", b"PROX "]
    {
        assert_eq!(decode(first), Err(HeaderError::Absent), "{first:?}");
    }
}

proptest! {
    #[test]
    fn a_header_is_read_to_its_end_and_not_beyond(
        client in clients(),
        is_datagram in any::<bool>(),
        tlvs in prop::collection::vec(any::<u8>(), 0..4000),
        behind in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let text = line(client).into_bytes();
        let (result, len) = read(&[&text[..], &behind].concat());
        prop_assert_eq!((result, len), (known(Some(&client.to_string()), text.len()), text.len()));
        let (family, addresses) = block(client);
        let header = binary(1, family | (1 + u8::from(is_datagram)), &addresses, &tlvs);
        let (result, len) = read(&[&header[..], &behind].concat());
        prop_assert_eq!(result, known(Some(&client.to_string()), header.len()));
        prop_assert_eq!(len, header.len() - tlvs.len());
    }

    #[test]
    fn a_truncated_header_needs_more(client in clients(), cut in any::<prop::sample::Index>()) {
        let (family, addresses) = block(client);
        for header in [line(client).into_bytes(), binary(1, family | 1, &addresses, &[])] {
            let cut = cut.index(header.len());
            let decoded = decode(&header[..cut]);
            let is_short = matches!(
                decoded, Ok(Decoded::Needs(more)) if more > 0 && cut + more <= header.len()
            );
            prop_assert!(is_short, "{:?} at {} of {}", decoded, cut, header.len());
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(
        begin in prop_oneof![Just(&b""[..]), Just(V1_BEGIN), Just(V2_BEGIN)],
        rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes = [begin, &rest].concat();
        match decode(&bytes) {
            Ok(Decoded::Needs(more)) => prop_assert!(bytes.len() + more <= V1_LEN_MAX),
            Ok(Decoded::Known { len, .. }) => prop_assert!(len <= V2_LEN_MAX),
            Err(_) => {}
        }
        prop_assert!(read(&bytes).1 <= V1_LEN_MAX);
    }
}
