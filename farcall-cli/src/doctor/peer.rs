//! The path to a peer, step by step: its name, TCP, the handshake, the offers of RDMA, the proof of
//! the path, and a READ. The first step that fails names the side.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use farcall::{Address, Channel, ChannelBuilder, Code, ConnectError, ConnectErrorKind, Path, Rdma};

use super::finding::Finding;
use super::path;
use crate::args::Global;
use crate::failure::Failure;
use crate::output::duration;
use crate::{ping, target};

/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Servers of a target that are shown.
const SERVERS_MAX: usize = 16;
/// Maximum time of a lookup, and of each TCP connection.
const STEP_LIMIT: Duration = Duration::from_secs(5);
/// Maximum time of the READ.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// Length of the request that the peer READs.
const READ_LEN: usize = 256 << 10;

/// A peer that paths are tested to.
pub(super) struct Peer {
    builder: ChannelBuilder,
    /// `host:port`, if the address has one.
    authority: Option<String>,
}

impl Peer {
    /// The peer of a target. A target of a settings file has the file's settings of RDMA.
    ///
    /// # Errors
    ///
    /// Returns an error if the target is no address, or no name of the settings file.
    pub(super) fn new(global: &Global, target: &str, rdma: &Rdma) -> Result<Self, Failure> {
        let builder = target::builder(global, target)?;
        let is_named = target.starts_with('@');
        Ok(Self::with_builder(if is_named { builder } else { builder.rdma(rdma) }))
    }

    pub(super) fn with_builder(builder: ChannelBuilder) -> Self {
        let authority = match builder.address() {
            Address::Auto(authority) | Address::Rdma(authority) | Address::Tcp(authority) => {
                Some(authority.clone())
            }
            _ => None,
        };
        Self { builder, authority }
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let Some(authority) = &self.authority else { return Ok(Vec::new()) };
        let looked_up = tokio::time::timeout(STEP_LIMIT, tokio::net::lookup_host(authority)).await;
        match looked_up {
            Ok(Ok(found)) => Ok(found.take(ADDRESSES_MAX).collect()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", STEP_LIMIT.as_secs())),
        }
    }

    /// Returns the local address that packets to the peer have, by the routes of the kernel.
    pub(super) async fn local_address(&self) -> Option<IpAddr> {
        let peer = *self.addresses().await.ok()?.first()?;
        let any: SocketAddr = match peer {
            SocketAddr::V4(_) => ([0; 4], 0).into(),
            SocketAddr::V6(_) => ([0; 16], 0).into(),
        };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(peer).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    }

    /// Tests the steps, adds their findings, and returns true if calls take RDMA.
    pub(super) async fn examine(self, global: &Global, checks: &mut Vec<Finding>) -> bool {
        let found = match self.addresses().await {
            Ok(found) => found,
            Err(error) => {
                let name = self.authority.unwrap_or_default();
                let fault = Finding::other_fault("name", format!("{name}: {error}"));
                checks.push(fault.on("name service").fix("resolvectl status   # or /etc/hosts"));
                return false;
            }
        };
        if let Some(authority) = &self.authority {
            let list = found.iter().map(|it| it.ip().to_string()).collect::<Vec<_>>().join(", ");
            checks.push(Finding::ok("name", format!("{authority} is {list}")));
            if !connects(&found, checks).await {
                return false;
            }
        }
        let host = self.authority.as_deref().and_then(|it| it.rsplit_once(':'));
        let host = host.map_or("SERVER", |(host, _)| host.trim_matches(['[', ']'])).to_owned();
        let start = Instant::now();
        let limit = target::connect_limit(global);
        let channel = match tokio::time::timeout(limit, self.builder.connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => {
                checks.push(refused(&error, &host));
                return false;
            }
            Err(_) => {
                let limit = humantime::format_duration(limit);
                let text = format!("TCP passes, and the handshake did not end within {limit}");
                checks.push(Finding::other_fault("hello", text).on("server"));
                return false;
            }
        };
        let took = duration(start.elapsed());
        checks.push(Finding::ok("hello", format!("the server speaks farcall, in {took}")));
        judge(global, &channel, &host, checks).await
    }
}

/// Opens and closes a TCP connection to each address. Returns true if one can be had.
async fn connects(addresses: &[SocketAddr], checks: &mut Vec<Finding>) -> bool {
    let mut any = false;
    for address in addresses {
        let start = Instant::now();
        let stream = tokio::net::TcpStream::connect(address);
        checks.push(match tokio::time::timeout(STEP_LIMIT, stream).await {
            Ok(Ok(_)) => {
                any = true;
                Finding::ok("tcp", format!("{address} in {}", duration(start.elapsed())))
            }
            Ok(Err(error)) => {
                let refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
                let fault = Finding::other_fault("tcp", format!("{address}: {error}"));
                match refused {
                    true => fault.on("server").fix("ss -ltn   # there: nothing listens here"),
                    false => fault.on("network").fix(format!("ip route get {}", address.ip())),
                }
            }
            Err(_) => {
                let text = format!("{address}: no answer within {} s", STEP_LIMIT.as_secs());
                let fix = format!("nft list ruleset | grep {}   # on both hosts", address.port());
                Finding::other_fault("tcp", text).on("network").fix(fix)
            }
        });
    }
    any
}

/// The finding about a connection that could not be made.
fn refused(error: &ConnectError, host: &str) -> Finding {
    let text = error.to_string();
    match error.kind() {
        ConnectErrorKind::RdmaRequired => path::peer_fault(&text, host),
        ConnectErrorKind::Tls => path::tls_fault(&text),
        _ => Finding::other_fault("hello", text).on("server"),
    }
}

/// Returns a host as addresses have it: IPv6 in brackets.
fn in_address(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// The findings about the paths of a connected channel. Returns true if all servers are on RDMA.
async fn judge(global: &Global, channel: &Channel, host: &str, checks: &mut Vec<Finding>) -> bool {
    let servers = target::settled(channel, target::connect_limit(global)).await;
    let mut are_upgraded = !servers.is_empty();
    for server in servers.iter().take(SERVERS_MAX) {
        let address = &server.endpoint.address;
        are_upgraded &= server.path.is_upgraded();
        checks.push(match &server.path {
            Path::Upgraded { .. } => {
                Finding::ok("proof", format!("{address}: both sides offered RDMA and proved it"))
            }
            Path::Direct { transport } => {
                let text = format!("{address} asks for {transport}, and RDMA was not tried");
                Finding::note("offer", text)
                    .fix(format!("farcall doctor --peer auto://{}:PORT", in_address(host)))
            }
            path => path::peer_fault(path.reason().unwrap_or("not connected"), host),
        });
    }
    are_upgraded && read(global, channel, host, checks).await
}

/// Sends a large request, which the server READs. Returns false if it does not.
async fn read(global: &Global, channel: &Channel, host: &str, checks: &mut Vec<Finding>) -> bool {
    let start = Instant::now();
    let request = ping::check_service(global, channel, "x".repeat(READ_LEN));
    let reply = tokio::time::timeout(READ_LIMIT, request).await;
    let is_upgraded = channel.path().is_upgraded();
    let finding = match reply {
        Err(_) => path::read_fault(&format!("no answer within {} s", READ_LIMIT.as_secs()), host),
        Ok(_) if !is_upgraded => {
            let path = channel.path();
            path::read_fault(path.reason().unwrap_or("the path broke"), host)
        }
        Ok(Ok(_)) => read_whole(start),
        Ok(Err(status)) => match status.code() {
            Code::NotFound => read_whole(start),
            Code::Unavailable | Code::DeadlineExceeded => path::read_fault(status.message(), host),
            Code::Unimplemented => {
                let text = "not tested: the server has no health service that takes a request";
                Finding::note("READ", text)
            }
            code => Finding::note("READ", format!("not tested: the server answered {code:?}")),
        },
    };
    let works = !finding.is_fault();
    checks.push(finding);
    works
}

fn read_whole(start: Instant) -> Finding {
    let text = format!("the server read {} KiB in {}", READ_LEN >> 10, duration(start.elapsed()));
    Finding::ok("READ", text)
}
