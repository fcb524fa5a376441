//! The cases of the command `farcall`: it lists, describes and calls servers of farcall and of
//! other languages, and its proxy stands between clients of other languages and the port.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use farcall_testkit::process::{Process, ProcessError, bounded};

use super::Column;
use super::server::{Server, folder};
use crate::rdma_programs::{RdmaProgram, Target};

const PROGRAM: RdmaProgram = RdmaProgram {
    package: "farcall-cli",
    target: Target::Bin { name: "farcall", test: "command" },
    arguments: &[],
    limit_seconds: 120,
};

/// The bound on a case, and on the start of the proxy.
const CASE_LIMIT: Duration = Duration::from_secs(20);

/// Messages that the proxy passes on, as the server behind it has them: 16 MiB.
const PROXY_MESSAGE_LEN_MAX: &str = "16777216";

const SERVICE: &str = "grpc.testing.TestService";

/// The built command.
#[derive(Debug)]
pub(super) struct Farcall(PathBuf);

/// A server as a command line names it.
#[derive(Debug)]
pub(super) struct Peer<'a> {
    /// Name of its column.
    pub(super) name: String,
    pub(super) target: String,
    /// The flags that reach it.
    pub(super) flags: &'a [String],
}

/// The proxy, which is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    _process: Process,
    /// Host and port that it listens on.
    pub(super) authority: String,
}

/// A call that succeeds.
struct Case {
    name: &'static str,
    method: &'static str,
    requests: &'static str,
    responses: &'static str,
}

/// Calls of every kind. The responses are without spaces.
const CALLS: [Case; 5] = [
    Case { name: "empty_unary", method: "EmptyCall", requests: "{}", responses: "{}\n" },
    Case {
        name: "unary",
        method: "UnaryCall",
        requests: r#"{"responseSize":3,"payload":{"body":"AAAA"}}"#,
        responses: "{\"payload\":{\"body\":\"AAAA\"}}\n",
    },
    Case {
        name: "client_streaming",
        method: "StreamingInputCall",
        requests: r#"{"payload":{"body":"AAAA"}} {"payload":{"body":"AAA="}}"#,
        responses: "{\"aggregatedPayloadSize\":5}\n",
    },
    Case {
        name: "server_streaming",
        method: "StreamingOutputCall",
        requests: r#"{"responseParameters":[{"size":1},{"size":2}]}"#,
        responses: "{\"payload\":{\"body\":\"AA==\"}}\n{\"payload\":{\"body\":\"AAA=\"}}\n",
    },
    Case {
        name: "both_streaming",
        method: "FullDuplexCall",
        requests: r#"{"responseParameters":[{"size":1}]} {"responseParameters":[{"size":2}]}"#,
        responses: "{\"payload\":{\"body\":\"AA==\"}}\n{\"payload\":{\"body\":\"AAA=\"}}\n",
    },
];

impl Farcall {
    /// Builds it.
    ///
    /// # Errors
    ///
    /// Returns an error if the build fails.
    pub(super) fn build() -> Result<Self> {
        let jobs = PROGRAM.build(&Default::default())?;
        let job = jobs.into_iter().next().context("the build produced no command")?;
        Ok(Self(job.program))
    }

    /// Starts a proxy in front of `target`.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not listen in time.
    pub(super) fn proxy(&self, target: &str) -> Result<Proxy> {
        let mut command = Command::new(&self.0);
        command.args(["proxy", "--listen", "127.0.0.1:0", target]);
        command.args(["--max-message-len", PROXY_MESSAGE_LEN_MAX]);
        let mut process = Process::start("the proxy", &mut command)?;
        let line = process.line(CASE_LIMIT)?;
        let authority = line.split_once("tcp://").and_then(|(_, rest)| rest.split_once(' '));
        let (authority, _) = authority.with_context(|| format!("the proxy says: {line}"))?;
        Ok(Proxy { authority: authority.to_owned(), _process: process })
    }

    /// Runs every case against a server.
    pub(super) fn column(&self, peer: &Peer<'_>) -> Column {
        let mut column = Column { name: format!("command-{}", peer.name), ..Column::default() };
        let mut judge = |name: &str, result: Result<()>| match result {
            Ok(()) => column.passed += 1,
            Err(error) => column.failed.push(format!("{name}: {error:#}")),
        };
        judge("list", self.prints(peer, "list", &[], &format!("{SERVICE}\n")));
        let method = format!("{SERVICE}.UnaryCall");
        judge("describe", self.prints(peer, "describe", &[&method], "rpc UnaryCall("));
        for case in &CALLS {
            let method = format!("{SERVICE}/{}", case.method);
            let rest = [&method, "--format", "json", "-d", case.requests];
            judge(case.name, self.prints(peer, "call", &rest, case.responses));
        }
        judge("metadata", self.shows_metadata(peer));
        judge("status", self.exits_by_status(peer));
        column
    }

    fn command(&self, peer: &Peer<'_>, command: &str, rest: &[&str]) -> Command {
        let mut farcall = Command::new(&self.0);
        farcall.arg(command).arg(&peer.target).args(rest).args(peer.flags);
        farcall.stdout(Stdio::piped()).stderr(Stdio::piped());
        farcall
    }

    /// Checks that a command prints `part`.
    fn prints(&self, peer: &Peer<'_>, command: &str, rest: &[&str], part: &str) -> Result<()> {
        let printed = bounded::output(&mut self.command(peer, command, rest), CASE_LIMIT)?;
        ensure!(printed.contains(part), "it prints {printed:?}");
        Ok(())
    }

    fn shows_metadata(&self, peer: &Peer<'_>) -> Result<()> {
        let path = folder()?.join("command.log");
        let method = format!("{SERVICE}/UnaryCall");
        let sent = ["-v", "-H", "x-grpc-test-echo-initial: first"];
        let rest = [&[&*method][..], &sent].concat();
        let mut command = self.command(peer, "call", &rest);
        bounded::output(command.stderr(File::create(&path)?), CASE_LIMIT)?;
        let noted = std::fs::read_to_string(path)?;
        ensure!(noted.contains("< x-grpc-test-echo-initial: first\n"), "it notes {noted:?}");
        Ok(())
    }

    fn exits_by_status(&self, peer: &Peer<'_>) -> Result<()> {
        let method = format!("{SERVICE}/UnaryCall");
        let request = r#"{"responseStatus":{"code":5,"message":"no such item"}}"#;
        let mut command = self.command(peer, "call", &[&method, "-d", request]);
        match bounded::Running::start(&mut command)?.output(CASE_LIMIT) {
            Err(ProcessError::Failed { status, errors, .. }) => {
                let is_right = status.code() == Some(69) && errors == "NOT_FOUND: no such item";
                ensure!(is_right, "it ends with {status}: {errors:?}");
                Ok(())
            }
            other => anyhow::bail!("it does not fail: {other:?}"),
        }
    }
}

/// Returns the ways to the port of farcall's server.
pub(super) fn port<'a>(
    server: &Server,
    trusting: &'a [String],
    mutual: &'a [String],
) -> Vec<Peer<'a>> {
    let [plain, tls, client_certificate] = &server.authorities;
    let peer = |name: &str, target: String, flags| Peer { name: name.to_owned(), target, flags };
    vec![
        peer("to-port", format!("tcp://{plain}"), &[]),
        peer("to-port-grpc", format!("grpc://{plain}"), &[]),
        peer("to-port-tls", format!("tcp://{tls}"), trusting),
        peer("to-port-grpc-tls", format!("grpcs://{tls}"), trusting),
        peer("to-port-mutual-tls", format!("tcp://{client_certificate}"), mutual),
        peer("to-port-unix", format!("unix://{}", server.unix), &[]),
    ]
}

/// Returns the flags of TLS: the authority alone, and with a client's certificate.
///
/// # Errors
///
/// Returns an error if there is no folder of certificates.
pub(super) fn tls_flags() -> Result<[Vec<String>; 2]> {
    let folder = folder()?;
    let file = |name: &str| folder.join(name).display().to_string();
    let trusting = vec!["--ca".to_owned(), file("ca.pem")];
    let own = ["--cert".to_owned(), file("client.pem"), "--key".to_owned(), file("client.key")];
    let mutual = [&trusting[..], &own].concat();
    Ok([trusting, mutual])
}
