//! Targets: names of a settings file, TLS, and servers that are not there.

use crate::program::{farcall, farcall_with};
use crate::servers;

#[tokio::test]
async fn name_of_a_settings_file_is_a_target() {
    let server = servers::over_tcp().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("farcall.toml");
    let text = format!("[targets.probe]\naddress = \"{}\"\n", server.address);
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let list = ["list", "@probe", "--config", &file];
    let names = farcall_with(&list, "").await.succeeded();
    assert!(names.contains("farcall.suite.Probe\n"), "{names}");
    let unknown = ["list", "@prob", "--config", &file];
    farcall_with(&unknown, "").await.failed(1, "prob");
    std::fs::write(folder.path().join("farcall.toml"), "[targets.probe]\nadress = \"x\"").unwrap();
    farcall_with(&list, "").await.failed(1, ":2:1: ");
    farcall("list @probe --config /no/such.toml").await.failed(1, "cannot read /no/such.toml");
}

#[tokio::test]
async fn tls_checks_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, tls) = servers::certificates(&folder);
    let server = servers::serve(servers::complete().tls(&tls), "tcp://127.0.0.1:0").await;
    let name = ["--server-name", "localhost"];
    for scheme in ["tcp", "grpcs", "auto"] {
        let address = format!("{scheme}://{}", server.authority());
        let trusted = [&["list", &address, "--ca", &ca], &name[..]].concat();
        let names = farcall_with(&trusted, "").await.succeeded();
        assert!(names.contains("farcall.suite.Probe\n"), "{scheme}: {names}");
        farcall_with(&["list", &address, "--ca", &ca], "").await.failed(2, "127.0.0.1");
    }
    let address = format!("grpcs://{}", server.authority());
    farcall_with(&[&["list", &address], &name[..]].concat(), "").await.failed(2, "certificate");
    let plain = format!("grpc://{}", server.authority());
    farcall_with(&["list", &plain, "--ca", &ca], "").await.failed(1, "--ca and --cert need TLS");
    let contradiction = ["list", &address, "--plaintext"];
    farcall_with(&contradiction, "").await.failed(1, "--plaintext conflicts with grpcs://");
    farcall("list -insecure h:1").await.failed(1, "farcall verifies every certificate");
    farcall("list tcp://h:1 --ca /no/such.pem").await.failed(1, "/no/such.pem");
    farcall("list tcp://h:1 --cert a.pem").await.failed(1, "--key");
}

#[tokio::test]
async fn absent_server_exits_with_2() {
    let server = servers::over_tcp().await;
    let address = server.address.clone();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for command in ["ping", "list", "describe"] {
        farcall(&format!("{command} tcp://{port}")).await.failed(2, "cannot connect");
    }
    farcall(&format!("call tcp://{port} a.B/C")).await.failed(2, "cannot connect");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|it| format!("ping tcp://{it} --timeout 200ms")).unwrap();
    farcall(&silent).await.failed(2, "");
    farcall(&format!("ping rdma://{}", address.replace("tcp://", ""))).await.failed(2, "rdma");
}

#[tokio::test]
async fn usage_is_checked_before_the_server_is_asked() {
    for (line, reason) in [
        ("ping", "<TARGET>"),
        ("pign tcp://h:1", "unrecognized subcommand 'pign'"),
        ("ping h", "h"),
        ("ping auto://", "auto://"),
        ("ping tcp://h:1 --timeout never", "--timeout"),
        ("ping tcp://h:1 --timeout 0", "1 ms to 365 days"),
        ("ping tcp://h:1 --format xml", "xml"),
        ("ping tcp://h:1 -c 0", "0"),
        ("list", "give a target"),
        ("call tcp://h:1", "<METHOD>"),
        ("list --nothing", "--nothing"),
    ] {
        farcall(line).await.failed(1, reason);
    }
}
