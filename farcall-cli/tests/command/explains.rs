//! `farcall explain`, and what `farcall call -v` says of the call.

use std::sync::atomic::{AtomicBool, Ordering};

use farcall::{Channel, Server, Status};
use farcall_probe::relay::relay;
use tempfile::TempDir;

use crate::documents;
use crate::program::{farcall, farcall_in, farcall_with};
use crate::servers;

const ECHO: &str = "farcall.suite.Probe/Echo";
const FAIL: &str = "farcall.suite.Probe/Fail";

/// Returns the lines above the table of stages, but for the count of copied bytes, which depends on
/// the pieces that the kernel hands out.
pub(crate) fn facts(shown: &str) -> Vec<&str> {
    let above = shown.lines().take_while(|line| !line.starts_with("stage "));
    above.filter(|line| !line.starts_with("copied ")).collect()
}

/// Returns a folder with settings of a target `relay` at `address`, whose methods are retried.
fn with_retries(address: &str) -> TempDir {
    let settings = format!(
        r#"
            [targets.relay]
            address = "{address}"
            [targets.relay.methods."*"]
            idempotent = true
            [targets.relay.methods."*".retry]
            max_attempts = 3
            initial_backoff = "1ms"
            retryable_codes = ["UNAVAILABLE"]
        "#
    );
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("farcall.toml"), settings).expect("its folder exists");
    folder
}

#[tokio::test]
async fn stages_protocol_and_attempts_are_printed() {
    let tcp = servers::over_tcp().await;
    let http = format!("grpc://{}", tcp.authority());
    for (address, transport) in [(&tcp.address, "tcp"), (&http, "grpc")] {
        let line = format!("explain {address} {ECHO} --repeat 20");
        let shown = farcall(&line).await.succeeded();
        assert!(shown.starts_with(&format!("path              {transport}\n")), "{shown}");
        let last = shown.lines().last().unwrap_or_default();
        assert!(last.starts_with("total ") && last.ends_with(" 100.0 %"), "{shown}");
        assert!(shown.contains("\nhandler ") && !shown.contains("\ncredit "), "{shown}");
        let json = farcall(&format!("{line} --format json")).await.succeeded();
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&report["calls"], &report["attempts"]), (&20.into(), &20.into()), "{report}");
        assert_eq!(report["transport"], transport);
        let stages = report["stages"].as_array().unwrap();
        let shares: f64 = stages.iter().filter_map(|stage| stage["share"].as_f64()).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{report}");
        assert_eq!(report["request"]["protocol"].is_null(), transport == "grpc", "{report}");
    }
}

#[tokio::test]
async fn failed_attempts_are_named_and_escaped() {
    let server = servers::over_tcp().await;
    let folder = with_retries(&server.address);
    let request = r#"{"code":14,"message":"no\u001b[2J\u202e\nroot"}"#;
    let ran = farcall_in(folder.path(), &["explain", "@relay", FAIL, "-d", request], "").await;
    let escaped = r"no\u{1b}[2J\u{202e}\nroot";
    let failed = format!("; failed: UNAVAILABLE {escaped}");
    assert!(ran.stdout.contains(&format!("attempts          3{}\n", failed.repeat(3))), "{ran:?}");
    assert!(ran.stdout.contains("\nearlier attempts "), "{ran:?}");
    let is_clean = |it: char| it == '\n' || !(it.is_control() || it == '\u{202e}');
    assert!(ran.stdout.chars().all(is_clean), "{ran:?}");
    ran.failed(78, "UNAVAILABLE");
}

#[tokio::test]
async fn fallback_is_explained_with_its_reason() {
    let server = servers::over_tcp().await;
    let address = format!("auto://{}", server.authority());
    // Loopback has no RDMA device. The rest of the reason depends on the host.
    let path = Channel::connect(&address).await.unwrap().path();
    let reason = path.reason().unwrap_or_default();
    assert!(reason.starts_with("rdma: this host: "), "{reason}");
    let shown = farcall(&format!("explain {address} {ECHO}")).await.succeeded();
    println!("{shown}");
    let expected = format!(
        "path              tcp  ({reason})\n\
         endpoint          {address}\n\
         request           one record of 54 bytes: at most 65,536\n\
         response          one record of 104 bytes: at most 65,536\n\
         attempts          1"
    );
    assert_eq!(facts(&shown), expected.lines().collect::<Vec<_>>());
}

#[tokio::test]
async fn retried_call_is_explained_with_its_first_attempt() {
    let is_first = AtomicBool::new(true);
    let service = relay(move |_| {
        let is_first = is_first.swap(false, Ordering::Relaxed);
        async move { if is_first { Err(Status::unavailable("restarting")) } else { Ok(()) } }
    });
    let builder = servers::described(Server::builder()).add_service(service);
    let server = servers::serve(builder, "tcp://127.0.0.1:0").await;
    let folder = with_retries(&server.address);
    let line = ["explain", "@relay", "farcall.suite.Relay/Ask"];
    let shown = farcall_in(folder.path(), &line, "").await.succeeded();
    println!("{shown}");
    let example = documents::console("$ farcall explain @relay ");
    let example = example.replace("tcp://127.0.0.1:7000", &server.address);
    assert_eq!(facts(&shown), facts(&example));
    assert!(shown.contains(" share\nearlier attempts "), "{shown}");
}

#[tokio::test]
async fn call_notes_where_its_time_went() {
    let server = servers::over_tcp().await;
    let ran = farcall(&format!("call {} {ECHO} -v", server.address)).await;
    for part in ["> attempts 1\n", "> request  one record of ", "< answered in ", ", handler "] {
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
    ran.succeeded();
    let streams = farcall(&format!("explain {} farcall.suite.Probe/Chat", server.address)).await;
    streams.failed(1, "explain calls unary methods only");
    let absent = ["explain", "tcp://127.0.0.1:1", ECHO];
    assert_eq!(farcall_with(&absent, "").await.code, 2);
}
