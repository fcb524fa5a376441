//! `list`, `describe` and `call` against servers of farcall and of tonic over TCP, Unix sockets and
//! TLS. `cargo xtask interop` runs them against servers of other languages.

use crate::program::farcall_with;
use crate::servers::{self, Certificates, NAME, Running};

/// A server, the word for it on a command line, and the flags that reach it.
struct Peer {
    _server: Running,
    target: String,
    flags: Vec<String>,
}

impl Peer {
    fn new(server: Running, flags: &[&str]) -> Self {
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        Self { target: server.address.clone(), _server: server, flags }
    }

    /// Runs a command that succeeds.
    async fn run(&self, command: &str, rest: &[&str]) -> String {
        let flags = self.flags.iter().map(String::as_str);
        let arguments: Vec<_> =
            [command, &self.target].into_iter().chain(rest.iter().copied()).chain(flags).collect();
        farcall_with(&arguments, "").await.succeeded()
    }
}

#[tokio::test]
async fn every_server_is_listed_described_and_called() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(&folder);
    let tls = certificates.server_tls();
    let trusting = ["--ca", &certificates.ca, "--server-name", NAME];
    let socket = format!("unix://@farcall-peers-{}", std::process::id());
    let file = format!("unix://{}", folder.path().join("farcall.sock").display());
    let encrypted = servers::serve(servers::complete().tls(&tls), "tcp://127.0.0.1:0").await;
    let as_grpc = format!("grpcs://{}", encrypted.authority());
    let over_grpc = servers::over_tcp().await;
    let plain_grpc = format!("grpc://{}", over_grpc.authority());
    let peers = [
        Peer::new(servers::serve(servers::complete(), &socket).await, &[]),
        Peer::new(servers::serve(servers::complete(), &file).await, &[]),
        Peer { target: plain_grpc, ..Peer::new(over_grpc, &[]) },
        Peer { target: as_grpc, ..Peer::new(encrypted, &trusting) },
        Peer::new(
            servers::serve(servers::complete().tls(&tls), "tcp://127.0.0.1:0").await,
            &trusting,
        ),
        Peer::new(servers::over_tcp().await, &[]),
        Peer::new(servers::tonic().await, &[]),
        Peer::new(servers::tonic_at_socket(&folder), &["-plaintext", "-unix"]),
        Peer::new(servers::tonic_with_tls(&certificates).await, &trusting),
    ];
    for peer in &peers {
        let services = peer.run("list", &[]).await;
        assert!(services.contains("farcall.suite.Probe\n"), "{}: {services}", peer.target);
        let described = peer.run("describe", &["farcall.suite.Probe.Echo"]).await;
        assert!(described.contains("rpc Echo("), "{}: {described}", peer.target);
        let call = ["farcall.suite.Probe/Chat", "--format", "json", "-d", "{} {\"tail\":\"YQ==\"}"];
        assert_eq!(peer.run("call", &call).await, "{}\n{\"tail\":\"YQ==\"}\n", "{}", peer.target);
    }
}

#[tokio::test]
async fn socket_of_a_grpc_server_needs_plaintext_and_a_server() {
    let call = ["list", "/no/such.sock", "-unix", "-plaintext"];
    farcall_with(&call, "").await.failed(2, "/no/such.sock: No such file or directory");
    farcall_with(&call[..3], "").await.failed(1, "--plaintext");
}
