//! `farcall doctor` on this host, whatever it has, and its steps to a peer.

use crate::program::{Ran, farcall};
use crate::servers;

/// Returns the report of a run as JSON, whose exit code fits it.
fn report(ran: &Ran) -> serde_json::Value {
    let report: serde_json::Value =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let code = if report["works"] == true { 0 } else { 1 };
    assert_eq!(ran.code, code, "{ran:?}");
    report
}

/// Returns the check of that name.
fn check<'a>(report: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let mut checks = report["checks"].as_array().into_iter().flatten();
    checks.find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

#[tokio::test]
async fn doctor_says_the_same_as_text_and_as_json() {
    let text = farcall("doctor").await;
    let report = report(&farcall("doctor --format json").await);
    assert!(text.stdout.starts_with("farcall doctor on Linux "), "{text:?}");
    for check in report["checks"].as_array().unwrap() {
        let (mark, name) = (check["mark"].as_str().unwrap(), check["name"].as_str().unwrap());
        assert!(text.stdout.contains(&format!("\n{mark}  {name}")), "{check}: {text:?}");
    }
    assert!(report["facts"]["kernel"].is_string(), "{report}");
}

#[tokio::test]
async fn loopback_has_no_rdma() {
    let ran = farcall("doctor --address 127.0.0.1").await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("\n!!  rdma://      cannot work here: "), "{ran:?}");
}

#[tokio::test]
async fn step_that_fails_names_the_side() {
    let server = servers::over_tcp().await;
    let authority = server.authority();
    let peer = async |target: &str| {
        report(&farcall(&format!("doctor --format json --timeout 5s --peer {target}")).await)
    };
    let offered = peer(&format!("auto://{authority}")).await;
    assert_eq!(check(&offered, "tcp")["mark"], "ok");
    assert_eq!(check(&offered, "hello")["mark"], "ok");
    assert_eq!(check(&offered, "offer")["side"], "this host");
    let required = peer(&format!("rdma://{authority}")).await;
    assert_eq!(check(&required, "offer")["side"], "this host");
    let direct = peer(&format!("tcp://{authority}")).await;
    assert_eq!(check(&direct, "offer")["mark"], "--");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(check(&peer(&format!("auto://{closed}")).await, "tcp")["side"], "server");
    let unnamed = peer("auto://no.such.host.invalid:1").await;
    assert_eq!(check(&unnamed, "name")["side"], "name service");
    farcall("doctor --peer auto://").await.failed(1, "auto://");
}

#[tokio::test]
async fn a_server_of_another_protocol_is_named() {
    use tokio::io::AsyncWriteExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hostile = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 200 \x1b[2J\x1b]0;owned\x07\r\n\r\n").await;
        }
    });
    let ran = farcall(&format!("doctor --timeout 5s --peer auto://{address}")).await;
    hostile.abort();
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("\n!!  hello        server: "), "{ran:?}");
    let clean = |it: char| it == '\n' || !it.is_control();
    assert!(ran.stdout.chars().all(clean), "{ran:?}");
}
