//! `farcall check` as a monitoring plugin, and `config`, `completions` and `man`.

use crate::program::{farcall, farcall_with};
use crate::servers;

#[tokio::test]
async fn check_is_ok_with_performance_data() {
    let server = servers::over_tcp().await;
    let line = format!("check {} --warn p99=1h --crit p99=2h --require tcp", server.address);
    let shown = farcall(&line).await.succeeded();
    let (text, data) = shown.trim_end().split_once(" | ").unwrap();
    let begin = format!("OK {}: 1 on tcp, p99 ", server.address);
    assert!(text.starts_with(&begin), "{text}");
    let names: Vec<_> = data.split(' ').filter_map(|it| Some(it.split_once('=')?.0)).collect();
    assert_eq!(names, ["connect", "min", "p50", "p99", "max", "servers", "tcp"], "{data}");
    assert!(data.contains("us;3600000000;7200000000 max="), "{data}");
    let ran = farcall(&format!("{line} --format json")).await.succeeded();
    let report: serde_json::Value = serde_json::from_str(&ran).unwrap();
    assert_eq!(report["verdict"], "OK");
    assert!(report["latency_us"]["p99"].is_number(), "{report}");
}

#[tokio::test]
async fn check_exits_by_its_verdict() {
    let server = servers::over_tcp().await;
    let address = &server.address;
    for (flags, code, part) in [
        ("--warn p99=1us", 1, "WARNING tcp://127.0.0.1:"),
        ("--warn p99=1us --crit connect=1us", 2, "CRITICAL tcp://127.0.0.1:"),
        ("--require rdma", 2, "1 of 1 servers not on rdma (tcp://127.0.0.1:"),
        ("--warn p98=1us", 3, ""),
        ("--require fast", 3, ""),
        ("--config /no/such.toml -H x", 3, ""),
    ] {
        let ran = farcall(&format!("check {address} {flags}")).await;
        assert_eq!(ran.code, code, "{flags}: {ran:?}");
        assert!(ran.stdout.contains(part), "{flags}: {ran:?}");
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = farcall(&format!("check tcp://{port}")).await;
    assert!(ran.stdout.starts_with(&format!("CRITICAL tcp://{port}: cannot connect")), "{ran:?}");
    assert_eq!(ran.code, 2, "{ran:?}");
    let ran = farcall("check @no --config /no/such.toml").await;
    assert_eq!(
        ran.stdout,
        "UNKNOWN no: cannot read /no/such.toml: No such file or directory (os error 2): --config \
         names another file\n"
    );
    assert_eq!(ran.code, 3, "{ran:?}");
    let ran = farcall(&format!("check {address},tcp://{port} --require tcp")).await;
    assert!(
        ran.stdout.starts_with("WARNING ") && ran.stdout.contains(" 1 of 2 servers down ("),
        "{ran:?}"
    );
    assert_eq!(ran.code, 1, "{ran:?}");
}

#[tokio::test]
async fn settings_file_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("farcall.toml");
    let path = file.display().to_string();
    let check = async |text: &str| {
        std::fs::write(&file, text).unwrap();
        farcall_with(&["config", "check", "--config", &path], "").await
    };
    let valid = "[targets.b]\naddress = \"etcd://127.0.0.1:1/x\"\n[servers.a]\n\
                 address = \"tcp://127.0.0.1:0\"\n";
    let shown = check(valid).await.succeeded();
    assert_eq!(shown, format!("{path} is valid\n  targets  b\n  servers  a\n"));
    let several = "[targets.a]\naddress = \"tcp//x\"\ntimeoutt = \"1s\"\n";
    let ran = check(several).await;
    assert!(ran.stderr.contains("toml:2:11: ") && ran.stderr.contains("toml:3:1: "), "{ran:?}");
    ran.failed(1, "timeoutt");
    check("[targets.a]\naddress = \"zk://h:1/x\"\n").await.failed(1, "zk");
    let reference = farcall("config reference").await.succeeded();
    assert_eq!(reference, farcall::Settings::reference());
}

#[tokio::test]
async fn completions_and_pages_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let script = farcall(&format!("completions {shell}")).await.succeeded();
        assert!(script.contains("describe") && script.contains("max-message-len"), "{shell}");
    }
    let page = farcall("man").await.succeeded();
    assert!(page.starts_with(".ie") && page.contains(".TH farcall 1"), "{page}");
    let page = farcall("man call").await.succeeded();
    assert!(page.contains(".TH farcall\\-call 1") || page.contains(".TH farcall-call 1"), "{page}");
    assert!(page.contains("emit\\-defaults"), "{page}");
    farcall("man nothing").await.failed(1, "farcall has no command nothing");
}
