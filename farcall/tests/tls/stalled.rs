//! Clients that begin a TLS handshake and do not end it.

use std::time::Duration;

use farcall::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::authority::Authority;
use crate::service::{builder, serve, who};

/// No wait of this test is longer.
const LIMIT: Duration = Duration::from_secs(30);

/// The head of a record with a handshake of 512 bytes, which do not come.
const HALF_A_RECORD: [u8; 6] = [22, 3, 1, 2, 0, 1];

#[tokio::test]
async fn a_stalled_handshake_is_closed_and_delays_no_other() {
    let authority = Authority::new();
    let timeout = Duration::from_millis(200);
    let builder_of_server = Server::builder().tls(&authority.server()).handshake_timeout(timeout);
    let server = serve(builder_of_server).await;
    let host = server.address.trim_start_matches("tcp://");
    let mut stalled = Vec::new();
    for first in [&HALF_A_RECORD[..], &HALF_A_RECORD[..1], b"", b"far"] {
        let mut stream = TcpStream::connect(host).await.unwrap();
        stream.write_all(first).await.unwrap();
        stalled.push(stream);
    }
    let channel = builder(&server.address).tls(&authority.client()).connect().await.unwrap();
    assert_eq!(who(&channel).await.unwrap(), "anonymous");
    for mut stream in stalled {
        let mut said = Vec::new();
        let ended = tokio::time::timeout(LIMIT, stream.read_to_end(&mut said)).await;
        // An end or a reset, and no word in either case.
        let _ = ended.expect("the server closes it");
        assert!(said.is_empty(), "{said:?}");
    }
    assert_eq!(server.server.connections().len(), 1);
}
