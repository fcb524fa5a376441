//! Clients of gRPC over Unix sockets.

use farcall::tonic::metadata::MetadataMap;
use tokio::net::UnixStream;

use super::raw::{DATA, END_STREAM, HEADERS, RST_STREAM, RawClient};
use super::service::{Answering, serve};
use super::within;

/// gRPC's core names the socket's path as its authority, percent-encoded.
#[tokio::test]
async fn authority_may_be_a_path_over_unix_sockets() {
    let path = std::env::temp_dir().join(format!("farcall-peers-{}.sock", std::process::id()));
    let answering = Answering::with(|_| Ok(MetadataMap::new()));
    let _running = serve(answering.server(), &format!("unix://{}", path.display())).await;
    let authorities = [
        "localhost",
        "localhost:50051",
        "%2Ftmp%2Ff.sock",
        "tmp%2Fwith%20spaces%2F%C3%A9.sock",
        "a:b:c@d[e].sock",
        "%00app",
    ];
    for authority in authorities {
        within(async {
            let mut client = RawClient::begin(UnixStream::connect(&path).await.unwrap()).await;
            // The second call takes the authority from HPACK's table or writes it again.
            for stream in [1, 3] {
                client.call(stream, authority).await;
                let answer = loop {
                    let frame = client.frame().await.expect("the server goes on");
                    if matches!(frame.kind, HEADERS | RST_STREAM) {
                        break frame;
                    }
                };
                assert_eq!(answer.kind, HEADERS, "{authority}");
                assert_eq!(client.until(DATA).await.payload, [0; 5], "{authority}");
                let trailers = client.until(HEADERS).await;
                assert_ne!(trailers.flags & END_STREAM, 0, "{authority}");
            }
        })
        .await;
    }
    let _ = std::fs::remove_file(path);
}
