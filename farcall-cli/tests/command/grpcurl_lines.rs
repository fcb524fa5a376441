//! Command lines of grpcurl's README, with the program's name and the server's changed.

use crate::program::{farcall, farcall_with};
use crate::servers;

#[tokio::test]
async fn lines_of_grpcurl_work_as_they_are() {
    for server in [servers::over_tcp().await, servers::tonic().await] {
        let host = server.authority();
        let lines = [
            format!("-plaintext {host} list"),
            format!("-plaintext {host} list farcall.suite.Probe"),
            format!("-plaintext {host} describe"),
            format!("-plaintext {host} describe farcall.suite.Probe.Echo"),
            format!("-plaintext -v {host} farcall.suite.Probe/Echo"),
            format!("-plaintext -vv -max-time 5 {host} farcall.suite.Probe/Echo"),
            format!("-plaintext -max-time=5.5 -emit-defaults {host} farcall.suite.Probe.Echo"),
            format!("-plaintext -authority a.example {host} farcall.suite.Probe/Echo"),
            format!("-plaintext=true -connect-timeout 5 -max-msg-sz 1000 {host} list"),
            format!("-plaintext -format json {host} list"),
        ];
        for line in lines {
            farcall(&line).await.succeeded();
        }
        let header = ["-plaintext", "-H", "x-a: 1", "-rpc-header", "x-b: 2", "-d"];
        let call = [&header[..], &[r#"{"payload":"YQ=="}"#, host, "farcall.suite.Probe/Echo"]];
        let shown = farcall_with(&call.concat(), "").await.succeeded();
        assert_eq!(shown, "{\n  \"payload\": \"YQ==\"\n}\n");
        let stdin = ["-plaintext", "-d", "@", host, "farcall.suite.Probe/Echo"];
        let shown = farcall_with(&stdin, r#"{"payload":"YQ=="}"#).await.succeeded();
        assert_eq!(shown, "{\n  \"payload\": \"YQ==\"\n}\n");
    }
}

#[tokio::test]
async fn lines_with_schema_files_work_as_they_are() {
    let server = servers::serve(servers::bare(), "tcp://127.0.0.1:0").await;
    let host = server.authority();
    let protos = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto");
    let set = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(set.path(), farcall_probe::DESCRIPTOR_SET).unwrap();
    let set = set.path().display();
    let method = "farcall.suite.Probe/Echo";
    for line in [
        format!("-protoset {set} list"),
        format!("-import-path {protos} -proto suite.proto list"),
        format!("-protoset {set} list farcall.suite.Probe"),
        format!("-protoset {set} describe farcall.suite.Probe.Echo"),
        format!("-import-path {protos} -proto suite.proto describe farcall.suite.Probe.Echo"),
        format!("-plaintext -protoset {set} {host} {method}"),
        format!("-plaintext -import-path {protos} -proto suite.proto {host} {method}"),
        format!("-plaintext -import-path {protos} -proto suite.proto -d {{}} {host} {method}"),
    ] {
        farcall(&line).await.succeeded();
    }
}

#[tokio::test]
async fn line_of_grpcurl_for_a_socket_works_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = servers::tonic_at_socket(&folder);
    let path = &server.address;
    for target in [path.clone(), format!("unix:{path}"), format!("unix://{path}")] {
        let services = farcall(&format!("-plaintext -unix {target} list")).await.succeeded();
        assert!(services.contains("farcall.suite.Probe\n"), "{services}");
        let line = format!("-plaintext -unix -d {{}} {target} farcall.suite.Probe/Echo");
        assert_eq!(farcall(&line).await.succeeded(), "{}\n");
    }
}

#[tokio::test]
async fn line_of_grpcurl_without_plaintext_has_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, tls) = servers::certificates(&folder);
    let server = servers::serve(servers::complete().tls(&tls), "tcp://127.0.0.1:0").await;
    let host = server.authority();
    let line = format!("-cacert {ca} -servername localhost {host} list");
    let services = farcall(&line).await.succeeded();
    assert!(services.contains("farcall.suite.Probe\n"), "{services}");
    farcall(&format!("-cacert {ca} {host} list")).await.failed(2, "grpcs://");
}
