//! A browser's cases: grpc-web from Chromium, by a page of another origin.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded::Running;
use tempfile::TempDir;

use super::Column;
use super::pages::Pages;
use super::server::{Server, folder};
use crate::setup;

/// The client.
const PAGE: &str = include_str!("page.html");

/// The bound on a browser's start and its cases: each has one of 20 s, and together they take some
/// seconds.
const CASES_LIMIT: Duration = Duration::from_secs(120);

/// A browser that shows pages of ours alone, draws nothing and knows no certificate of the server.
/// Chromium does not start as root with its sandbox. It may reach no host but this one.
const ARGUMENTS: [&str; 10] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--ignore-certificate-errors",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// Runs the cases over HTTP/1 and, with TLS, over HTTP/2, as a page of an origin with leave, and as
/// one of an origin without.
///
/// # Errors
///
/// When the server or the browser cannot be started, or a page tells no verdict.
pub(super) fn run() -> Result<Vec<Column>> {
    let (listed, other) = (Pages::serve(PAGE)?, Pages::serve(PAGE)?);
    let server = Server::start(&[listed.origin()])?;
    let [plain, tls, _] = &server.authorities;
    let (plain, tls) = (format!("http://{plain}"), format!("https://{tls}"));
    let columns = [
        ("chromium-to-port", &listed, &*plain, "yes"),
        ("chromium-to-port-tls", &listed, &*tls, "yes"),
        ("chromium-without-leave", &other, &*plain, "no"),
        ("chromium-without-leave-tls", &other, &*tls, "no"),
    ];
    let shown = columns.map(|(name, pages, target, leave)| show(name, pages, target, leave));
    shown.into_iter().collect()
}

/// Has a browser of its own show the page, until it tells its verdict.
fn show(name: &str, pages: &Pages, target: &str, leave: &str) -> Result<Column> {
    let program = setup::chromium().context("Chromium is missing")?;
    let profile = TempDir::with_prefix("farcall-chromium-")?;
    let log = folder()?.join(format!("{name}.log"));
    let url = format!("{}/?target={target}&leave={leave}", pages.origin());
    let mut command = Command::new(program);
    let mut data = std::ffi::OsString::from("--user-data-dir=");
    data.push(profile.path());
    command.args(ARGUMENTS).arg(data).arg(url);
    command.stdout(File::create(&log)?).stderr(File::options().append(true).open(&log)?);
    let browser = Running::start(&mut command)?;
    let verdict = pages.verdict(CASES_LIMIT);
    // Killed before its profile is removed.
    drop(browser);
    let verdict = verdict
        .with_context(|| format!("{name}: what Chromium said stands in {}", log.display()))?;
    Column::parse(name, &verdict)
}
