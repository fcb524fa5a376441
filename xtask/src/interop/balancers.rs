//! HAProxy and nginx between clients and the port of a farcall server, with the files of
//! `docs/book/src/load-balancers`: what the page shows is what runs here.
//!
//! The programs are the machine's, or Debian's packages with the libraries that they need, unpacked
//! into the target folder. Installed, they would serve ports of the machine.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use farcall_testkit::process::{Process, bounded};

use super::server::{Server, folder};
use crate::program;

const HAPROXY: &str = include_str!("../../../docs/book/src/load-balancers/haproxy.cfg");
const NGINX: &str = include_str!("../../../docs/book/src/load-balancers/nginx.conf");

/// Debian's packages, of 3 MB with what they need.
const PACKAGES: [&str; 3] = ["haproxy", "nginx", "libnginx-mod-stream"];

const DOWNLOAD_LIMIT: Duration = Duration::from_secs(300);
const UNPACK_LIMIT: Duration = Duration::from_secs(60);
const START_LIMIT: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// nginx's module for connections that are passed on.
const STREAM_MODULE: &str = "usr/lib/nginx/modules/ngx_stream_module.so";

/// The running load balancers, which are killed when this is dropped.
#[derive(Debug)]
pub(super) struct Balancers {
    _processes: [Process; 2],
    /// The place of each, in the order of the files: HAProxy passing on, with TLS, encrypting anew;
    /// nginx passing on, and with TLS.
    pub(super) haproxy: [String; 3],
    pub(super) nginx: [String; 2],
}

impl Balancers {
    /// Starts both before `server`. `None` where there are no such programs, which is said.
    ///
    /// # Errors
    ///
    /// Returns an error if one that is there does not start.
    pub(super) fn start(server: &Server) -> Result<Option<Self>> {
        let root = match unpacked() {
            Ok(root) => root,
            Err(error) => {
                eprintln!("xtask: no load balancers: {error:#}");
                return Ok(None);
            }
        };
        let work = folder()?.join("balancers");
        std::fs::create_dir_all(&work)?;
        let [first, second, third, fourth, fifth] = free_authorities()?;
        let (haproxy, nginx) = ([first, second, third], [fourth, fifth]);
        let started = [
            start_haproxy(&root, &work, server, &haproxy)?,
            start_nginx(&root, &work, server, &nginx)?,
        ];
        for authority in haproxy.iter().chain(&nginx) {
            wait_for(authority)?;
        }
        Ok(Some(Self { _processes: started, haproxy, nginx }))
    }
}

/// A file of the documentation with this machine's addresses and files in place of its own.
fn adapted(text: &str, replacements: &[(&str, &str)]) -> Result<String> {
    let mut text = text.to_owned();
    for (from, to) in replacements {
        ensure!(text.contains(from), "the documentation's file has no `{from}`");
        text = text.replace(from, to);
    }
    Ok(text)
}

fn start_haproxy(
    root: &Path,
    work: &Path,
    server: &Server,
    [passed_on, grpc, encrypted]: &[String; 3],
) -> Result<Process> {
    let files = folder()?;
    let file = |name: &str| files.join(name).display().to_string();
    let [plain, tls] = &server.proxied;
    let text = adapted(
        HAPROXY,
        &[
            ("bind :7000", &format!("bind {passed_on}")),
            ("bind :7443", &format!("bind {grpc}")),
            ("bind :7444", &format!("bind {encrypted}")),
            ("orders-1:7000", plain),
            ("orders-1:7443", tls),
            ("/etc/haproxy/orders.pem", &file("both.pem")),
            ("/etc/haproxy/ca.pem", &file("ca.pem")),
        ],
    )?;
    let config = work.join("haproxy.cfg");
    std::fs::write(&config, text)?;
    let mut command = command(root, "haproxy");
    Ok(Process::start("HAProxy", command.arg("-db").arg("-f").arg(config))?)
}

fn start_nginx(
    root: &Path,
    work: &Path,
    server: &Server,
    [passed_on, grpc]: &[String; 2],
) -> Result<Process> {
    let files = folder()?;
    let file = |name: &str| files.join(name).display().to_string();
    let module = [root, Path::new("/")].map(|root| root.join(STREAM_MODULE));
    let module = module.into_iter().find(|file| file.exists());
    let module = module.context("nginx has no stream module")?;
    // nginx's own folders for temporary files belong to another user, or are not there.
    let mut http = "http {\n    access_log off;\n".to_owned();
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        http += &format!("    {kind}_temp_path {}/{kind};\n", work.display());
    }
    let text = adapted(
        NGINX,
        &[
            (
                "include /etc/nginx/modules-enabled/*.conf",
                &format!("load_module {}", module.display()),
            ),
            ("http {\n", &http),
            ("listen 7000", &format!("listen {passed_on}")),
            ("listen 7443", &format!("listen {grpc}")),
            ("orders-1:7000", &server.proxied[0]),
            ("orders-1:7001", &server.authorities[0]),
            ("/etc/nginx/orders.pem", &file("server.pem")),
            ("/etc/nginx/orders.key", &file("server.key")),
        ],
    )?;
    let config = work.join("nginx.conf");
    std::fs::write(&config, text)?;
    let globals = format!("daemon off; master_process off; pid {}/nginx.pid;", work.display());
    let mut command = command(root, "nginx");
    command.args(["-e", "stderr", "-g", &globals, "-c"]).arg(config);
    Ok(Process::start("nginx", &mut command)?)
}

/// The machine's program, or the unpacked one with its libraries.
fn command(root: &Path, name: &str) -> Command {
    let own = root.join("usr/sbin").join(name);
    if !own.exists() {
        return program::command(name);
    }
    let mut command = Command::new(own);
    let libraries = std::fs::read_dir(root.join("usr/lib")).into_iter().flatten().flatten();
    let libraries = libraries.map(|entry| entry.path());
    if let Ok(path) = std::env::join_paths(libraries) {
        command.env("LD_LIBRARY_PATH", path);
    }
    command
}

/// The folder with what the machine lacks of the packages.
fn unpacked() -> Result<PathBuf> {
    let root = folder()?.join("debian");
    let is_there = |name: &str| program::find(name).is_some();
    let has_module = Path::new("/").join(STREAM_MODULE).exists();
    if root.exists() || (is_there("haproxy") && is_there("nginx") && has_module) {
        return Ok(root);
    }
    program::find("apt-get").context("only Debian's packages are supported here")?;
    eprintln!("xtask: downloading {} into {}", PACKAGES.join(", "), root.display());
    let work = tempfile::Builder::new().prefix("fetch-").tempdir_in(folder()?)?;
    if let Err(error) = download(work.path()) {
        // There are no package lists, or they name versions that the archive no longer has.
        eprintln!("xtask: {error:#}; trying again with fresh package lists");
        bounded::run(Command::new("apt-get").arg("update"), DOWNLOAD_LIMIT)?;
        download(work.path())?;
    }
    let parts = work.path().join("root");
    for entry in std::fs::read_dir(work.path())?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "deb") {
            let mut dpkg = program::command("dpkg");
            bounded::run(dpkg.arg("-x").arg(entry.path()).arg(&parts), UNPACK_LIMIT)?;
        }
    }
    // Whole, or not there.
    std::fs::rename(parts, &root).context("apt-get downloaded nothing")?;
    Ok(root)
}

/// Downloads the packages, and those that they need and the machine lacks. It installs nothing, and
/// needs no lock and no other user.
fn download(to: &Path) -> Result<()> {
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--yes", "--no-install-recommends", "--download-only"]);
    apt.args(["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root", "-o"]);
    apt.arg(format!("Dir::Cache::archives={}/", to.display())).args(PACKAGES);
    Ok(bounded::run(&mut apt, DOWNLOAD_LIMIT)?)
}

/// Places on loopback that were free a moment ago.
fn free_authorities<const N: usize>() -> Result<[String; N]> {
    let mut bound = Vec::new();
    let mut authorities = [const { String::new() }; N];
    for authority in &mut authorities {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        *authority = listener.local_addr()?.to_string();
        bound.push(listener);
    }
    Ok(authorities)
}

/// Waits until something listens there.
fn wait_for(authority: &str) -> Result<()> {
    let end = Instant::now() + START_LIMIT;
    while TcpStream::connect(authority).is_err() {
        ensure!(Instant::now() < end, "nothing listens on {authority}");
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_that_fits_nothing_is_an_error() {
        assert_eq!(adapted("bind :1 :1", &[(":1", ":2")]).unwrap(), "bind :2 :2");
        assert!(adapted("bind :1", &[(":7", ":2")]).is_err());
    }
}
