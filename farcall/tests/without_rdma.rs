//! A build without RDMA: both schemes and a settings file say what is missing.
#![cfg(not(all(target_os = "linux", feature = "rdma")))]
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::io::{self, Write};
use std::sync::Arc;

use farcall::{Channel, Server, Settings};
use parking_lot::Mutex;

#[cfg(target_os = "linux")]
const REASON: &str = "this program was built without farcall's feature `rdma`";
#[cfg(not(target_os = "linux"))]
const REASON: &str = "RDMA needs Linux, and this program was built for another system";

/// The lines that a test logs.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn contain(&self, texts: &[&str]) -> bool {
        let log = String::from_utf8(self.0.lock().clone()).unwrap();
        log.lines().any(|line| texts.iter().all(|text| line.contains(text)))
    }
}

/// Parses settings that have a table `rdma` with a value that no device could use.
fn parse_with_rdma_table() {
    let text = "[targets.here]\naddress = \"auto://127.0.0.1:1\"\n[rdma]\nlanes = 0";
    Settings::parse("farcall.toml", text).unwrap().channel("here").unwrap();
}

/// One test, because the log is the process's.
#[tokio::test]
async fn both_schemes_and_the_settings_name_the_reason() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false);
    log.with_writer(move || writer.clone()).init();

    let listener = Server::builder().bind("auto://127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    let channel = Channel::connect(&address).await.unwrap();
    let info = channel.endpoints().into_iter().find_map(|it| it.info).unwrap();
    assert_eq!(
        (info.transport, info.fallback),
        ("tcp", Some(format!("rdma: this host: {REASON}; not tried again on this connection")))
    );
    assert!(lines.contain(&["INFO farcall::server: listening without RDMA", REASON]));

    let required = address.replace("auto://", "rdma://");
    let error = Channel::connect(&required).await.unwrap_err().to_string();
    assert!(error.contains(REASON), "{error}");
    let error = Server::builder().bind("rdma://127.0.0.1:0").await.unwrap_err().to_string();
    assert!(error.contains(REASON), "{error}");

    assert!(!lines.contain(&["farcall::settings"]));
    // A build with simulated devices alone checks the table: its handle has a use for it.
    if cfg!(not(all(target_os = "linux", feature = "sim"))) {
        parse_with_rdma_table();
        let line = ["WARN farcall::settings: the table rdma is ignored", "farcall.toml", REASON];
        assert!(lines.contain(&line));
    }
}
