//! `farcall call` of every kind, and its failures.

use crate::program::{farcall, farcall_with};
use crate::servers;

const ECHO: &str = "farcall.suite.Probe/Echo";

#[tokio::test]
async fn unary_call_answers_over_every_path() {
    let socket = format!("unix://@farcall-command-{}", std::process::id());
    let running = [
        servers::over_tcp().await,
        servers::serve(servers::complete(), "auto://127.0.0.1:0").await,
        servers::serve(servers::complete(), &socket).await,
        servers::tonic().await,
    ];
    for server in &running {
        let arguments = ["call", &server.address, ECHO, "-d", r#"{"payload":"YWI="}"#];
        let shown = farcall_with(&arguments, "").await.succeeded();
        assert_eq!(shown, "{\n  \"payload\": \"YWI=\"\n}\n", "{}", server.address);
    }
}

#[tokio::test]
async fn streams_of_both_sides_are_called() {
    for server in [servers::over_tcp().await, servers::tonic().await] {
        let call = async |method: &str, input: &str, from: &str| {
            let method = format!("farcall.suite.Probe/{method}");
            let arguments = ["call", &server.address, &method, "-d", from, "--format", "json"];
            farcall_with(&arguments, input).await.succeeded()
        };
        let two = "{\"payload\":\"YQ==\"}\n{\"payload\":\"Yg==\"}";
        let both = "{\"payload\":\"YQ==\"}\n{\"payload\":\"Yg==\"}\n";
        assert_eq!(call("Chat", "", two).await, both);
        assert_eq!(call("Chat", two, "@").await, both);
        assert!(call("Upload", two, "@").await.starts_with("{\"count\":\"2\",\"bytes\":\"2\","));
        let download = r#"{"messages":[{"seed":"1","len":"1"}],"rounds":3}"#;
        assert_eq!(call("Download", "", download).await.lines().count(), 3);
        assert_eq!(call("Chat", "", "").await, "");
    }
}

#[tokio::test]
async fn failed_call_exits_with_64_and_its_code() {
    let server = servers::over_tcp().await;
    let fail = ["call", &server.address, "farcall.suite.Probe.Fail", "-d"];
    let request = r#"{"code":5,"message":"no\u001b[2J such\nitem"}"#;
    let ran = farcall_with(&[&fail[..], &[request]].concat(), "").await;
    assert_eq!(ran.stderr, "NOT_FOUND: no\\u{1b}[2J such\n  item\n");
    ran.failed(69, "NOT_FOUND");
    let ran = farcall_with(&[&fail[..], &[request, "--format", "json"]].concat(), "").await;
    let error = "{\"error\":{\"code\":\"NOT_FOUND\",\"exit\":69,\
                 \"message\":\"no\\u001b[2J such\\nitem\"}}\n";
    assert_eq!(ran.stderr, error);
    let park = ["call", &server.address, "farcall.suite.Probe/Park", "--timeout", "300ms"];
    farcall_with(&park, "").await.failed(68, "DEADLINE_EXCEEDED");
}

#[tokio::test]
async fn metadata_travels_both_ways() {
    let server = servers::over_tcp().await;
    let line = ["call", &server.address, "farcall.suite.Probe/Reflect", "--format", "json", "-v"];
    let headers = ["-H", "x-a: 1", "-H", "x-a: 2", "--rpc-header", "x-b-bin: AQI="];
    let ran = farcall_with(&[&line[..], &headers].concat(), "").await;
    for part in ["< x-a: 1\n", "< x-a: 2\n", "< x-b-bin: AQI", "> over tcp ("] {
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
    let shown = ran.succeeded();
    assert!(shown.contains(r#"{"key":"x-a","value":"MQ=="}"#), "{shown}");
    for (header, reason) in [
        ("x", "expected `key: value`"),
        ("a b: 1", "is not a metadata key"),
        ("x-b-bin: ?", "base64"),
        ("x: \u{e9}\u{1}", "not printable ASCII"),
    ] {
        let arguments = [&line[..], &["-H", header]].concat();
        farcall_with(&arguments, "").await.failed(1, reason);
    }
}

#[tokio::test]
async fn bad_json_is_named_with_its_place() {
    let server = servers::over_tcp().await;
    let chat = "farcall.suite.Probe/Chat";
    for (method, json, reason) in [
        (ECHO, "{\n  \"payload\": 1}", "-d:2:15: invalid type: integer `1`"),
        (ECHO, "{\"payload\":\"YQ==\"", "-d:1:17: EOF while parsing an object"),
        (ECHO, "{\"pay\\u001bload\":\"\"}", "-d:1:17: unrecognized field name 'pay\\u{1b}load'"),
        (ECHO, "{} {}", "takes one farcall.suite.EchoRequest"),
        (chat, "{}\n{\"payload\": }", "-d:2:13: "),
    ] {
        let arguments = ["call", &server.address, method, "-d", json];
        farcall_with(&arguments, "").await.failed(1, reason);
    }
    let arguments = ["call", &server.address, chat, "-d", "@"];
    farcall_with(&arguments, "{}\n\n{]").await.failed(1, "standard input:3:2: ");
    let lenient =
        ["call", &server.address, ECHO, "-d", r#"{"nothing":1}"#, "--allow-unknown-fields"];
    assert_eq!(farcall_with(&lenient, "").await.succeeded(), "{}\n");
    let defaults = ["call", &server.address, ECHO, "--emit-defaults", "--format", "json"];
    let shown = farcall_with(&defaults, "").await.succeeded();
    assert_eq!(shown, "{\"payload\":\"\",\"tail\":\"\"}\n");
}

#[tokio::test]
async fn unknown_method_is_named_with_those_there_are() {
    let server = servers::over_tcp().await;
    let call = async |method: &str| farcall(&format!("call {} {method}", server.address)).await;
    let probe = "farcall.suite.Probe has no method Ecko; it has Block, Chat, Digest, ";
    call("farcall.suite.Probe/Ecko").await.failed(1, probe);
    call("farcall.suite.Nothing/Echo").await.failed(69, "NOT_FOUND");
    call("Echo").await.failed(1, "Echo is not a method: write pkg.Service/Method");
}

#[tokio::test]
async fn too_long_message_is_refused() {
    let server = servers::over_tcp().await;
    let produce = ["call", &server.address, "farcall.suite.Probe/Produce", "-d"];
    let long = [&produce[..], &[r#"{"len":"5000"}"#]].concat();
    assert!(farcall_with(&long, "").await.succeeded().len() > 5000);
    let bounded = [&long[..], &["--max-message-len", "4000"]].concat();
    let ran = farcall_with(&bounded, "").await;
    assert_eq!(ran.code, 72, "{ran:?}");
}
