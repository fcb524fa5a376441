//! Health checks of load balancers.

use bytes::Bytes;
use farcall::Server;
use tokio::net::TcpStream;

use super::{serve, within};

/// The `grpc-status` of the answer to a call of `path` with this body.
async fn grpc_status(authority: &str, path: &str, body: Option<&'static [u8]>) -> String {
    let stream = TcpStream::connect(authority).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{authority}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (answer, mut sending) = client.send_request(request, body.is_none()).unwrap();
    if let Some(body) = body {
        sending.send_data(Bytes::from_static(body), true).unwrap();
    }
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    let status = answer.headers().get("grpc-status").cloned();
    let mut body = answer.into_body();
    while let Some(data) = body.data().await {
        data.unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    let status = status.or_else(|| trailers.get("grpc-status").cloned());
    status.expect("it has a status").to_str().unwrap().to_owned()
}

/// AWS's application load balancer takes a target for healthy that answers so.
#[tokio::test]
async fn albs_health_check_is_answered_with_status_12() {
    let server = serve(Server::builder()).await;
    for body in [None, Some(&[0; 5][..])] {
        let status = within(grpc_status(&server, "/AWS.ALB/healthcheck", body)).await;
        assert_eq!(status, "12");
    }
}
