//! What TLS exports, to which an upgraded path is bound.

use std::collections::HashSet;

use super::pair::Both;
use super::socket::TlsSocket;
use crate::connection::socket::Socket as _;

const LABEL: &[u8] = b"EXPORTER-farcall test";

/// How often a middleman changes what the two sides have said.
const ATTEMPTS: usize = 10_000;

fn exported(socket: &TlsSocket, context: &[u8]) -> [u8; 32] {
    socket.export(LABEL, context).unwrap().unwrap()
}

#[tokio::test]
async fn both_ends_export_the_same_and_no_other_session_does() {
    let both = Both::new();
    let [client, server] = both.session().await.unwrap();
    let secret = exported(&client, b"hellos");
    assert_eq!(secret, exported(&server, b"hellos"));
    assert_ne!(client.export(b"EXPORTER-farcall other", b"hellos").unwrap(), Some(secret));
    // One that a middleman has with either side, with the same certificate even.
    let [other, _server] = both.session().await.unwrap();
    assert_ne!(exported(&other, b"hellos"), secret);
}

/// A middleman that could change what went over TCP would have each side prove another path.
#[tokio::test]
async fn hellos_that_differ_in_a_bit_export_another_secret() {
    let [client, server] = Both::new().session().await.unwrap();
    let hellos = [0x5a_u8; ATTEMPTS / 8];
    let secret = exported(&client, &hellos);
    let mut seen = HashSet::from([secret]);
    for bit in 0..ATTEMPTS {
        let mut changed = hellos;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(seen.insert(exported(&server, &changed)), "bit {bit}");
    }
}
