//! `farcall bench` in both loops, and its reports.

use crate::program::{farcall, farcall_with};
use crate::servers;

const ECHO: &str = "farcall.suite.Probe/Echo";

#[tokio::test]
async fn both_loops_make_the_calls_asked_for() {
    let server = servers::over_tcp().await;
    for (flags, mode) in [("-n 200 -c 4", "closed loop"), ("-n 50 --rate 1k", "open loop")] {
        let line = format!("bench {} {ECHO} {flags} --format json", server.address);
        let shown = farcall(&line).await.succeeded();
        let report: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(report["mode"], mode);
        assert_eq!(report["calls"], if mode == "open loop" { 50 } else { 200 }, "{report}");
        assert_eq!(report["errors"], serde_json::json!([]));
        assert_eq!(report["paths"][0]["transport"], "tcp");
        let bars = report["histogram"].as_array().unwrap();
        let calls: u64 = bars.iter().filter_map(|bar| bar["calls"].as_u64()).sum();
        assert_eq!(Some(calls), report["calls"].as_u64(), "{report}");
    }
}

#[tokio::test]
async fn run_without_a_number_of_calls_ends_by_its_duration() {
    let server = servers::over_tcp().await;
    let line = format!("bench {} {ECHO} -z 200ms -c 2", server.address);
    let shown = farcall(&line).await.succeeded();
    assert!(shown.starts_with("closed loop, 2 in flight at most, 0."), "{shown}");
    assert!(shown.contains("  errors 0  ") && shown.contains("  p99.9 "), "{shown}");
}

#[tokio::test]
async fn reports_are_written_to_files() {
    let server = servers::over_tcp().await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (json, html) = (path("a.json"), path("a.html"));
    let line = ["bench", &server.address, ECHO, "-n", "50", "--json", &json, "--html", &html];
    farcall_with(&line, "").await.succeeded();
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["calls"], 50);
    let page = std::fs::read_to_string(html).unwrap();
    assert_eq!(page.matches("<svg ").count(), 2, "{page}");
    for foreign in ["http:", "https:", "<script", "src=", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    let absent = ["bench", &server.address, ECHO, "-n", "1", "--json", "/no/such/a.json"];
    farcall_with(&absent, "").await.failed(1, "cannot write /no/such/a.json");
}

#[tokio::test]
async fn method_that_cannot_be_measured_is_named() {
    let server = servers::over_tcp().await;
    let address = &server.address;
    let line = format!("bench {address} farcall.suite.Probe/Chat");
    farcall(&line).await.failed(1, "bench calls unary methods only, and ");
    let fail = ["bench", address, "farcall.suite.Probe/Fail", "-d", r#"{"code":5}"#];
    farcall_with(&fail, "").await.failed(69, "NOT_FOUND");
    farcall(&format!("bench {address} {ECHO} --rate fast")).await.failed(1, "50k");
    farcall(&format!("bench {address} {ECHO} --rate 1G")).await.failed(1, "50k");
    farcall(&format!("bench {address} {ECHO} --rate 0")).await.failed(1, "0.01 to 10M");
}
