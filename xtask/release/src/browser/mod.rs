//! `cargo xtask interop --browser`: the cases of grpc-web from a page in Chromium, and the page of
//! operators.
//!
//! The page is `page.html`, of an origin that `pages` serves. Chromium is installed where it is
//! missing.

mod operators;
mod pages;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded::Running;
use tempfile::TempDir;

use pages::Pages;
use xtask::interop::{self, Column, Server, folder};
use xtask::setup::{self, Purpose};

/// The client.
const PAGE: &str = include_str!("page.html");

/// The service that the page calls.
const SERVICE: &str = "grpc.testing.TestService";

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
/// Returns an error if the server or the browser cannot be started, or a page tells no verdict.
pub(crate) fn run() -> Result<()> {
    setup::ensure(&[Purpose::Build, Purpose::Browser])?;
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
    let mut shown = shown.into_iter().collect::<Result<Vec<Column>>>()?;
    // Behind the calls, which it shows.
    shown.push(operators::show(&server.authorities[0], SERVICE)?);
    interop::judge(&shown)
}

/// Shows the page in a browser of its own until the page reports its verdict.
fn show(name: &str, pages: &Pages, target: &str, leave: &str) -> Result<Column> {
    let program = setup::chromium().context("Chromium is missing")?;
    let profile = TempDir::with_prefix("farcall-chromium-")?;
    let log = folder()?.join(format!("{name}.log"));
    let url = format!("{}/?target={target}&leave={leave}", pages.origin());
    let mut command = Command::new(program);
    command.args(ARGUMENTS);
    keep_within(&mut command, profile.path())?;
    command.arg(url).stdout(File::create(&log)?).stderr(File::options().append(true).open(&log)?);
    let browser = Running::start(&mut command)?;
    let verdict = pages.verdict(CASES_LIMIT);
    // Killed before its folder is removed, which it is on every way out of here.
    drop(browser);
    let verdict =
        verdict.with_context(|| format!("{name}: Chromium's output is in {}", log.display()))?;
    Column::parse(name, &verdict)
}

/// Confines a browser's writes to `home`: its profile, files in the user's home, and the sockets
/// and folders of the temporary directory, which a killed browser does not remove.
fn keep_within(command: &mut Command, home: &Path) -> io::Result<()> {
    // Short names: the path of a socket has 108 bytes at most.
    let (data, temporary) = (home.join("data"), home.join("tmp"));
    fs::create_dir_all(&temporary)?;
    let mut argument = OsString::from("--user-data-dir=");
    argument.push(data);
    command.arg(argument).env("HOME", home).env("TMPDIR", temporary);
    // Without them they are folders of HOME.
    for name in ["XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"] {
        command.env_remove(name);
    }
    // It has no other place that it may be, and Chromium does without it.
    command.env_remove("XDG_RUNTIME_DIR");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_browser_writes_into_a_folder_that_is_removed() {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new("true");
        keep_within(&mut command, folder.path()).unwrap();
        let set: BTreeMap<_, _> = command.get_envs().collect();
        for name in ["HOME", "TMPDIR"] {
            let value = set[OsStr::new(name)].expect("it is set");
            assert!(Path::new(value).starts_with(folder.path()) && Path::new(value).is_dir());
        }
        let removed = set
            .iter()
            .filter(|(name, value)| name.to_string_lossy().starts_with("XDG_") && value.is_none());
        assert_eq!(removed.count(), 5);
        let data = format!("--user-data-dir={}/data", folder.path().display());
        assert_eq!(command.get_args().collect::<Vec<_>>(), [OsStr::new(&data)]);
    }
}
