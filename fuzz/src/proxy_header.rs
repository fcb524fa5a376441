//! Headers of proxies: nothing panics, and a header means the same whatever follows it.

use rpc_transport_tcp::fuzzing::read_proxy_header;

/// Maximum length of a header of either version.
const LEN_MAX: usize = 4 << 10;

pub(crate) fn run(bytes: &[u8]) {
    let Some((client, len)) = read_proxy_header(bytes) else { return };
    assert!(len <= LEN_MAX, "a header of {len} bytes");
    assert_eq!(read_proxy_header(&[bytes, b"more"].concat()), Some((client, len)));
    let whole = &bytes[..len.min(bytes.len())];
    assert_eq!(read_proxy_header(whole), Some((client, len)), "it was read beyond its end");
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let lines = [
        "PROXY TCP4 192.0.2.1 192.0.2.9 51234 443\r\nfarcall\n",
        "PROXY TCP6 2001:db8::1 2001:db8::9 1 65535\r\n",
        "PROXY UNKNOWN\r\nPRI * HTTP/2.0",
    ];
    let binary = |command: u8, family: u8, body: &[u8]| {
        let begin = &b"\r\n\r\n\0\r\nQUIT\n"[..];
        let len = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
        [begin, &[0x20 | command, family], &len, body].concat()
    };
    let mut with_tlv = [7; 12].to_vec();
    with_tlv.extend_from_slice(&[1, 0, 2, b'h', b'2']);
    let headers = [
        binary(0, 0, &[]),
        binary(1, 0x11, &[7; 12]),
        binary(1, 0x11, &with_tlv),
        binary(1, 0x22, &[7; 36]),
        binary(1, 0x31, &[b'/'; 216]),
    ];
    lines.iter().map(|line| line.as_bytes().to_vec()).chain(headers).collect()
}
