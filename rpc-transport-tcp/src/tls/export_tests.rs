//! Keying material exported from TLS, to which an upgraded path is bound.

use std::collections::HashSet;

use super::pair::Both;
use super::socket::TlsSocket;
use crate::connection::socket::Socket as _;

const LABEL: &[u8] = b"EXPORTER-farcall test";

/// Number of changes that a machine in the middle makes to the hellos.
const ATTEMPTS: usize = 10_000;

fn exported(socket: &TlsSocket, context: &[u8]) -> [u8; 32] {
    socket.export(LABEL, context).unwrap().unwrap()
}

#[tokio::test]
async fn only_the_ends_of_a_session_export_the_same_secret() {
    let both = Both::new();
    let [client, server] = both.session().await.unwrap();
    let secret = exported(&client, b"hellos");
    assert_eq!(secret, exported(&server, b"hellos"));
    assert_ne!(client.export(b"EXPORTER-farcall other", b"hellos").unwrap(), Some(secret));
    // A session of a machine in the middle with either side, even with the same certificate.
    let [other, _server] = both.session().await.unwrap();
    assert_ne!(exported(&other, b"hellos"), secret);
}

/// An attacker that could change the hellos over TCP would make each side prove another path.
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
