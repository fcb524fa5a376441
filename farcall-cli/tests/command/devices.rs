//! `farcall call` and `farcall explain` over an RDMA device. `FARCALL_RDMA=required` says that
//! there is one, and `FARCALL_RDMA_SERVER` is its address.

use crate::documents;
use crate::explains::facts;
use crate::program::{Ran, farcall_with};
use crate::servers;

const ECHO: &str = "farcall.suite.Probe/Echo";
const PAYLOAD: &str = r#"{"payload":"aGVsbG8="}"#;

/// Returns the device's address. `None`, with a line that says so, where there is no device.
fn device() -> Option<String> {
    if std::env::var("FARCALL_RDMA").as_deref() != Ok("required") {
        println!("skipped: no RDMA device (FARCALL_RDMA is not set to `required`)");
        return None;
    }
    Some(std::env::var("FARCALL_RDMA_SERVER").unwrap_or_else(|_| "10.0.1.1".to_owned()))
}

/// Runs a command, and prints it and its output as a terminal would show them.
async fn shown(arguments: &[&str]) -> Ran {
    let ran = farcall_with(arguments, "").await;
    let quoted = |argument: &&str| match argument.contains('{') {
        true => format!("'{argument}'"),
        false => (*argument).to_owned(),
    };
    let line: Vec<_> = arguments.iter().map(quoted).collect();
    println!("$ farcall {}\n{}{}", line.join(" "), ran.stderr, ran.stdout);
    ran
}

#[tokio::test]
async fn calls_run_over_a_device() {
    let Some(host) = device() else { return };
    let server = servers::serve(servers::complete(), &format!("rdma://{host}:0")).await;
    for scheme in ["rdma", "auto"] {
        let address = format!("{scheme}://{}", server.authority());
        let path = format!("> over rdma (both sides offered RDMA)\n> endpoint {address}\n");
        let call = async |method: &str, request: &str| {
            let line = ["call", &address, method, "--format", "json", "-v", "-d", request];
            let ran = shown(&line).await;
            assert!(ran.stderr.starts_with(&path), "{ran:?}");
            ran
        };
        let unary = call(ECHO, PAYLOAD).await;
        assert!(unary.stderr.contains("\n> request  SEND of 61 bytes: at most "), "{unary:?}");
        assert!(unary.stderr.contains(", credit "), "{unary:?}");
        assert_eq!(unary.succeeded(), "{\"payload\":\"aGVsbG8=\"}\n");
        let both = r#"{"payload":"YQ=="} {"payload":"Yg=="}"#;
        let streams = call("farcall.suite.Probe/Chat", both).await;
        assert_eq!(streams.succeeded(), "{\"payload\":\"YQ==\"}\n{\"payload\":\"Yg==\"}\n");
        let failing = r#"{"code":5,"message":"no such item"}"#;
        call("farcall.suite.Probe/Fail", failing)
            .await
            .failed(69, "failed: NOT_FOUND no such item\n");
    }
}

#[tokio::test]
async fn explained_path_of_a_device_has_its_reason() {
    let Some(host) = device() else { return };
    let server = servers::serve(servers::complete(), &format!("rdma://{host}:0")).await;
    let address = format!("rdma://{}", server.authority());
    let explained = shown(&["explain", &address, ECHO, "-d", PAYLOAD]).await.succeeded();
    let path =
        format!("path              rdma  (both sides offered RDMA)\nendpoint          {address}\n");
    assert!(explained.starts_with(&path), "{explained}");
    assert!(explained.contains("\nresponse          SEND of 111 bytes: at most "), "{explained}");
    assert!(explained.contains("\ncredit "), "{explained}");

    // This server listens without RDMA, so that the client's device has no peer.
    let server = servers::serve(servers::complete(), &format!("tcp://{host}:0")).await;
    let address = format!("auto://{}", server.authority());
    let explained = shown(&["explain", &address, ECHO]).await.succeeded();
    let example = documents::console("$ farcall explain auto://10.0.1.1:7000 ");
    // The page leaves the table out.
    let example = example.replace("auto://10.0.1.1:7000", &address).replace("...\n", "");
    assert_eq!(facts(&explained), facts(&example));
}
