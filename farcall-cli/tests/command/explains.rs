//! `farcall explain`, and what `farcall call -v` says of the call.

use crate::program::{farcall, farcall_in, farcall_with};
use crate::servers;

const ECHO: &str = "farcall.suite.Probe/Echo";
const FAIL: &str = "farcall.suite.Probe/Fail";

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
    let folder = tempfile::tempdir().unwrap();
    let settings = format!(
        r#"
            [targets.probe]
            address = "{}"
            [targets.probe.methods."*"]
            idempotent = true
            [targets.probe.methods."*".retry]
            max_attempts = 3
            initial_backoff = "1ms"
            retryable_codes = ["UNAVAILABLE"]
        "#,
        server.address
    );
    std::fs::write(folder.path().join("farcall.toml"), settings).unwrap();
    let request = r#"{"code":14,"message":"no\u001b[2J\u202e\nroot"}"#;
    let ran = farcall_in(folder.path(), &["explain", "@probe", FAIL, "-d", request], "").await;
    let escaped = r"no\u{1b}[2J\u{202e}\nroot";
    let failed = format!("; failed: UNAVAILABLE {escaped}");
    assert!(ran.stdout.contains(&format!("attempts          3{}\n", failed.repeat(3))), "{ran:?}");
    assert!(ran.stdout.contains("\nearlier attempts "), "{ran:?}");
    let is_clean = |it: char| it == '\n' || !(it.is_control() || it == '\u{202e}');
    assert!(ran.stdout.chars().all(is_clean), "{ran:?}");
    ran.failed(78, "UNAVAILABLE");
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
