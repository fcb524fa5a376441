//! A server of tonic's that has moved to farcall: what that has changed, and its clients.

#[path = "../../before/src/collector.rs"]
mod collector;
#[path = "../../before/src/route_guide.rs"]
mod route_guide;
#[path = "../../before/src/visit.rs"]
mod visit;

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use collector::Collector;
use farcall::Channel;
use farcall::grpc::GrpcOver;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::LogsServiceServer;
use route_guide::Guide;
use route_guide::proto::route_guide_server::RouteGuideServer;
use similar::{ChangeTag, TextDiff};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use visit::visit;

/// Maximum time of one client, on an emulated machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The lines that both have and the other has not, without those that differ in how the example is
/// laid out: a package's name and description, where the shared files are, and the tests' own.
fn changed(file: &str) -> (Vec<String>, Vec<String>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |package: &str| {
        let path = folder.with_file_name(package).join(file);
        let text = fs::read_to_string(path).expect("the file is there");
        let text = text.split("\n[dev-dependencies]").next().unwrap_or_default();
        let is_the_examples = |line: &&str| {
            ["name = ", "description = ", "#[path = "].iter().any(|p| line.starts_with(p))
        };
        text.lines().filter(|line| !is_the_examples(line)).map(|line| format!("{line}\n")).collect()
    };
    let (before, after): (String, String) = (read("before"), read("after"));
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    for change in TextDiff::from_lines(&before, &after).iter_all_changes() {
        let line = change.to_string();
        match change.tag() {
            ChangeTag::Delete => removed.push(line),
            ChangeTag::Insert => added.push(line),
            ChangeTag::Equal => {}
        }
    }
    (removed, added)
}

#[test]
fn moving_changes_ten_lines_at_most() {
    let (mut removed, mut added) = (0, 0);
    for file in ["Cargo.toml", "build.rs", "src/main.rs"] {
        let (less, more) = changed(file);
        println!("{file}");
        less.iter().for_each(|line| print!("-{line}"));
        more.iter().for_each(|line| print!("+{line}"));
        removed += less.len();
        added += more.len();
    }
    println!("{removed} lines became {added}");
    assert!((1..=10).contains(&removed) && (1..=10).contains(&added), "{removed}, {added}");
}

/// The server before it moved.
async fn before() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let server = Server::builder()
        .add_service(RouteGuideServer::new(Guide))
        .add_service(LogsServiceServer::new(Collector));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    Ok(address)
}

/// The program after it has moved. It ends with this value.
struct Moved {
    process: Child,
    host: String,
    port: u16,
}

impl Drop for Moved {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Moved {
    /// Starts it at a port of `host` that is free, and waits until it takes connections.
    async fn start(scheme: &str, host: &str) -> Result<Self> {
        for _ in 0..5 {
            // The program says nothing of its port, so that it is chosen before it starts; another
            // process may take it in between.
            let port = TcpListener::bind((host, 0)).await?.local_addr()?.port();
            let mut command = Command::new(env!("CARGO_BIN_EXE_moved-after"));
            let process = command.arg(format!("{scheme}://{host}:{port}")).spawn()?;
            let mut moved = Self { process, host: host.to_owned(), port };
            if moved.is_up().await? {
                return Ok(moved);
            }
        }
        bail!("the server found no port")
    }

    /// Returns true once the server accepts connections, and false if it has ended.
    async fn is_up(&mut self) -> Result<bool> {
        let address = self.at("tcp");
        let up = async {
            while self.process.try_wait()?.is_none() {
                if Channel::connect(&address).await.is_ok() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        timeout(LIMIT, up).await.context("the server takes no connection")?
    }

    fn at(&self, scheme: &str) -> String {
        format!("{scheme}://{}:{}", self.host, self.port)
    }
}

async fn visit_over_http(address: String) -> Result<()> {
    let channel = Endpoint::from_shared(address.clone())?.connect().await?;
    let visited = timeout(LIMIT, visit(channel)).await;
    visited.context(address.clone())?.context(address)
}

/// Visits over a channel of farcall's, and gives what its calls travel over.
async fn visit_over_farcall(address: &str) -> Result<String> {
    let channel = Channel::connect(address).await?;
    let visited = timeout(LIMIT, visit(GrpcOver::new(channel.clone()))).await;
    visited.with_context(|| address.to_owned())?.with_context(|| address.to_owned())?;
    Ok(channel
        .endpoints()
        .into_iter()
        .find_map(|it| it.info)
        .context("the connection is gone")?
        .transport
        .to_owned())
}

#[tokio::test]
async fn the_client_that_tonic_generated_calls_both() -> Result<()> {
    visit_over_http(before().await?).await?;
    let moved = Moved::start("tcp", "127.0.0.1").await?;
    visit_over_http(moved.at("http")).await?;
    ensure!(visit_over_farcall(&moved.at("tcp")).await? == "tcp");
    Ok(())
}

/// In the virtual machine, and on hosts with a device.
#[tokio::test]
async fn the_client_that_tonic_generated_calls_over_rdma() -> Result<()> {
    let Ok(host) = std::env::var("FARCALL_RDMA_SERVER") else { return Ok(()) };
    let moved = Moved::start("rdma", &host).await?;
    ensure!(visit_over_farcall(&moved.at("rdma")).await? == "rdma");
    println!("over rdma");
    visit_over_http(moved.at("http")).await
}
