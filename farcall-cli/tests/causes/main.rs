//! Causes that keep a host off RDMA, put into a host for real: by mounts, namespaces and limits
//! anywhere, and by Soft-RoCE devices in the virtual machine. Each row is a cause, the message that
//! `farcall doctor` has for it, and the fix. A row whose cause is not named fails the test.
//!
//! `FARCALL_RDMA=required` says that this is the virtual machine, where every row must run.
#![cfg(target_os = "linux")]

mod rows;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use farcall::Server;
use serde_json::Value;
use tokio::process::Command;

use crate::rows::{Place, ROWS, Row};

/// Maximum time of one row. Emulated, a test of the path takes some seconds.
const LIMIT: Duration = Duration::from_secs(90);

/// Exit code of a script that cannot put its cause into this host.
const CANNOT: i32 = 77;

enum Outcome {
    Named {
        message: String,
        fix: String,
    },
    /// This host has no way to the cause.
    Skipped,
    Failed(String),
}

#[tokio::test]
async fn each_cause_is_named_with_its_fix() {
    let has_devices = std::env::var_os("FARCALL_RDMA").is_some_and(|it| it == "required");
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().add_grpc_service(health, tonic_health::pb::FILE_DESCRIPTOR_SET);
    let address = std::env::var("FARCALL_RDMA_SERVER").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let listener = server.bind(format!("auto://{address}:0")).await.unwrap();
    let peer = listener.local_address().to_string();
    let serving = tokio::spawn(listener.serve());
    let mut failed = Vec::new();
    println!("| cause | put in by | message | fix |\n|---|---|---|---|");
    for row in ROWS {
        if row.place == Place::Devices && !has_devices {
            continue;
        }
        let outcome = run(row, &peer).await;
        let Row { cause, injection, .. } = row;
        match outcome {
            Outcome::Named { message, fix } => {
                println!("| {cause} | {injection} | {message} | `{fix}` |");
            }
            Outcome::Skipped if !has_devices => println!("| {cause} | not here | | |"),
            Outcome::Skipped => failed.push(format!("{cause}: it cannot be put in")),
            Outcome::Failed(text) => {
                println!("| {cause} | {injection} | NOT NAMED | |");
                failed.push(format!("{cause}: {text}"));
            }
        }
    }
    serving.abort();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Runs the script of a row, whose standard output is the report.
async fn run(row: &Row, peer: &str) -> Outcome {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let script = format!("{}\n{}", rows::PRELUDE, row.script);
    let mut command = Command::new("sh");
    command
        .args(["-euc", &script])
        .env("FARCALL", env!("CARGO_BIN_EXE_farcall"))
        .env("PEER", peer)
        .env("DIR", folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = match tokio::time::timeout(LIMIT, command.output()).await {
        Ok(output) => output.unwrap_or_else(|error| panic!("sh: {error}")),
        Err(_) => return Outcome::Failed(format!("no end within {LIMIT:?}")),
    };
    release(folder.path());
    if output.status.code() == Some(CANNOT) {
        return Outcome::Skipped;
    }
    let shown = || {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        format!("{}: {}{}", output.status, text(&output.stdout), text(&output.stderr))
    };
    let Ok(report) = serde_json::from_slice::<Value>(&output.stdout) else {
        return Outcome::Failed(shown());
    };
    let checks = report["checks"].as_array().map_or(&[][..], Vec::as_slice);
    // The steps to a peer come last, and say more.
    let named = checks.iter().rfind(|check| check["cause"] == row.cause && check["mark"] != "ok");
    match named {
        Some(check) => match check["fixes"][0].as_str() {
            Some(fix) => {
                let message = check["text"].as_str().unwrap_or_default().to_owned();
                Outcome::Named { message, fix: fix.to_owned() }
            }
            None => Outcome::Failed(format!("without a fix: {check}")),
        },
        None => Outcome::Failed(shown()),
    }
}

/// Lets the folder go although a script that was killed left something mounted in it.
fn release(folder: &Path) {
    let _ = std::process::Command::new("umount").arg("-lR").arg(folder).output();
}
