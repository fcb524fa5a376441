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
