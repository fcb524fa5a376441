//! The routes from clients of other languages to the port, and from farcall to their servers.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::{Process, bounded};

use super::balancers::Balancers;
use super::command::{self, Farcall, Peer};
use super::route::{CASES_LIMIT, Route};
use super::server::Server;
use super::{Column, node, python};

const START_LIMIT: Duration = Duration::from_secs(30);

/// The cases that HAProxy's HTTP mode fails, at times, in front of any server.
const HAPROXY_FAULTS: &[&str] =
    &["deadline", "cancel_after_begin", "cancel_after_first_response", "too_long_a_message", SEEN];

/// The case of a client that sees the server's channelz, as one on its host does.
const SEEN: &str = "channelz";

/// The case of a client that does not.
const HIDDEN: &str = "channelz_is_hidden";

/// The routes to the port itself.
fn direct(server: &Server) -> Vec<Route> {
    let [plain, tls, mutual] = &server.authorities;
    let route = |name, target: &str, security| Route {
        name,
        target: target.to_owned(),
        security,
        left_out: &[HIDDEN],
    };
    vec![
        route("to-port", plain, "plain"),
        route("to-port-tls", tls, "tls"),
        route("to-port-mutual-tls", mutual, "mutual"),
        route("to-port-unix", &format!("unix:{}", server.unix), "plain"),
    ]
}

/// The routes through load balancers.
fn balanced(balancers: &Balancers) -> Vec<Route> {
    let [passed_on, grpc, encrypted] = &balancers.haproxy;
    let [nginx, nginx_grpc] = &balancers.nginx;
    let route = |name, target: &str, security, left_out| Route {
        name,
        target: target.to_owned(),
        security,
        left_out,
    };
    vec![
        route("haproxy-tcp", passed_on, "plain", &[SEEN]),
        route("haproxy-grpc-tls", grpc, "tls", HAPROXY_FAULTS),
        route("haproxy-encrypted", encrypted, "tls", &[SEEN]),
        route("nginx-stream", nginx, "plain", &[SEEN]),
        route("nginx-grpc-tls", nginx_grpc, "tls", &[SEEN]),
    ]
}

/// Runs the cases of Python's and JavaScript's clients against the port, directly and through load
/// balancers, and farcall's against the servers of both, with a call that is silent for as long as
/// `silence`.
///
/// # Errors
///
/// Returns an error if packages cannot be installed, or a server or a client cannot be started.
pub(super) fn run(calls: u32, silence: Option<Duration>) -> Result<Vec<Column>> {
    let server = Server::start(&[])?;
    let balancers = Balancers::start(&server)?;
    let has_node = node::is_possible();
    let mut columns = vec![python::protocol_column(&server.authorities[0])?];
    let balanced = balancers.as_ref().map(balanced).unwrap_or_default();
    let farcall = Farcall::build()?;
    let proxy = farcall.proxy(&format!("auto://{}", server.authorities[0]))?;
    let proxied = Route {
        name: "through-proxy",
        target: proxy.authority.clone(),
        security: "plain",
        left_out: &[SEEN],
    };
    let routes = direct(&server).into_iter().chain([proxied]).chain(balanced);
    for (index, route) in routes.enumerate() {
        let route = &route;
        let calls = if index == 0 { calls } else { calls / 10 };
        columns.push(python::column(route, calls)?);
        if has_node {
            columns.push(node::column(route, calls)?);
        }
    }
    if let Some(balancers) = &balancers {
        for (name, authority) in [
            ("farcall-haproxy-tcp", &balancers.haproxy[0]),
            ("farcall-nginx-stream", &balancers.nginx[0]),
        ] {
            columns.push(call(&server, name, &format!("tcp://{authority}"), None)?);
        }
    }
    let callers = Callers { server: &server, farcall: &farcall, tls: command::tls_flags()? };
    let [trusting, mutual] = &callers.tls;
    let port = command::port(&server, trusting, mutual);
    columns.extend(port.iter().map(|peer| farcall.column(peer)));
    columns.extend(callers.call_other("grpcio", python::server()?, silence)?);
    if has_node {
        columns.extend(callers.call_other("grpc-js", node::server()?, silence)?);
    }
    Ok(columns)
}

/// The programs that call servers of other languages.
struct Callers<'a> {
    server: &'a Server,
    farcall: &'a Farcall,
    /// Flags of TLS: the authority alone, and with a client's certificate.
    tls: [Vec<String>; 2],
}

/// Runs farcall's cases against the server at `address`.
fn call(server: &Server, name: &str, address: &str, silence: Option<Duration>) -> Result<Column> {
    let mut client = server.client(address);
    client.args(silence.map(|silence| silence.as_secs().to_string()));
    let limit = CASES_LIMIT + silence.unwrap_or_default();
    Column::parse(name, &bounded::output(&mut client, limit)?)
}

impl Callers<'_> {
    /// Runs farcall's cases, and those of the command, against a server of another language.
    fn call_other(
        &self,
        name: &str,
        mut other: Command,
        silence: Option<Duration>,
    ) -> Result<Vec<Column>> {
        let mut process = Process::start(name, &mut other)?;
        let mut next = || process.line(START_LIMIT).with_context(|| format!("{name}: no server"));
        let [plain, tls, socket] = [next()?, next()?, next()?];
        let address = format!("grpc://{plain}");
        let mut columns =
            vec![call(self.server, &format!("farcall-to-{name}"), &address, silence)?];
        let unix = ["--unix", "--plaintext"].map(str::to_owned);
        for (way, target, flags) in [
            ("", address, &[][..]),
            ("-tls", format!("grpcs://{tls}"), &self.tls[0]),
            ("-unix", socket, &unix),
        ] {
            let name = format!("to-{name}{way}");
            columns.push(self.farcall.column(&Peer { name, target, flags }));
        }
        Ok(columns)
    }
}
