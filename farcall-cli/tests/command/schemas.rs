//! `farcall list` and `farcall describe`, with schemas of servers, sets and `.proto` files.

use crate::program::{farcall, farcall_with};
use crate::servers;

/// The folder of the probe's `.proto` file.
const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto");

#[tokio::test]
async fn services_and_methods_are_listed() {
    for server in [servers::over_tcp().await, servers::tonic().await] {
        let services = farcall(&format!("list {}", server.address)).await.succeeded();
        assert!(services.contains("farcall.suite.Probe\nfarcall.suite.Relay\n"), "{services}");
        let line = format!("list {} farcall.suite.Relay", server.address);
        let methods = farcall(&line).await.succeeded();
        assert_eq!(methods, "farcall.suite.Relay.Ask\nfarcall.suite.Relay.Listen\n");
        let line = format!("list {} farcall.suite.Relay --format json", server.address);
        let methods = farcall(&line).await.succeeded();
        assert_eq!(methods, "[\"farcall.suite.Relay.Ask\",\"farcall.suite.Relay.Listen\"]\n");
    }
}

#[tokio::test]
async fn every_kind_of_symbol_is_described() {
    let server = servers::over_tcp().await;
    let describe = async |symbol: &str| {
        farcall(&format!("describe {} {symbol}", server.address)).await.succeeded()
    };
    let service = "farcall.suite.Relay is a service:\nservice Relay {\n  \
                   rpc Ask(.farcall.suite.EchoRequest) returns (.farcall.suite.EchoReply);\n  \
                   rpc Listen(.farcall.suite.EchoRequest) returns \
                   (stream .farcall.suite.EchoReply);\n}\n";
    assert_eq!(describe("farcall.suite.Relay").await, service);
    let method = "farcall.suite.Relay.Ask is a method:\n\
                  rpc Ask(.farcall.suite.EchoRequest) returns (.farcall.suite.EchoReply);\n";
    assert_eq!(describe("farcall.suite.Relay/Ask").await, method);
    assert_eq!(describe("farcall.suite.Relay.Ask").await, method);
    let message = "farcall.suite.EchoReply is a message:\n\
                   message EchoReply {\n  bytes payload = 1;\n  bytes tail = 2;\n}\n";
    assert_eq!(describe(".farcall.suite.EchoReply").await, message);
    let template = describe("farcall.suite.EchoReply --msg-template").await;
    let filled = "\nMessage template:\n{\n  \"payload\": \"\",\n  \"tail\": \"\"\n}\n";
    assert_eq!(template, format!("{message}{filled}"));
    let all = describe("").await;
    assert!(all.contains(service) && all.contains("grpc.health.v1.Health is a service:"), "{all}");
    let kind = describe("grpc.health.v1.HealthCheckResponse.ServingStatus").await;
    assert!(kind.contains(" is an enum:\nenum ServingStatus {\n  UNKNOWN = 0;\n"), "{kind}");
    let line = format!("describe {} farcall.suite.Nothing", server.address);
    farcall(&line).await.failed(69, "NOT_FOUND");
}

#[tokio::test]
async fn server_without_reflection_needs_a_schema() {
    let server = servers::serve(servers::bare(), "tcp://127.0.0.1:0").await;
    let address = &server.address;
    farcall(&format!("list {address}")).await.failed(76, "give the schema with --proto or");
    let set = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(set.path(), farcall_probe::DESCRIPTOR_SET).unwrap();
    let set = set.path().display();
    let line = format!("call {address} farcall.suite.Probe/Echo --protoset {set}");
    assert_eq!(farcall(&line).await.succeeded(), "{}\n");
    let services = farcall(&format!("-protoset {set} list")).await.succeeded();
    assert!(services.starts_with("farcall.suite.Absent\n"), "{services}");
    let proto = format!("-import-path {PROTOS} -proto suite.proto");
    let methods = farcall(&format!("{proto} list farcall.suite.Relay")).await.succeeded();
    assert_eq!(methods, "farcall.suite.Relay.Ask\nfarcall.suite.Relay.Listen\n");
    let line = format!("{proto} describe farcall.suite.WatchRequest");
    assert!(farcall(&line).await.succeeded().ends_with("message WatchRequest {\n}\n"));
}

#[tokio::test]
async fn shapes_of_fields_are_described() {
    let folder = tempfile::tempdir().unwrap();
    let proto = "syntax = \"proto3\";\npackage shapes;\nmessage All {\n  map<string, All> by_name \
                 = 1;\n  repeated int32 many = 2;\n  optional bool may = 3;\n  oneof one {\n    \
                 string text = 4;\n    All deeper = 5;\n  }\n  Kind kind = 6;\n}\nenum Kind {\n  \
                 NONE = 0;\n}\n";
    std::fs::write(folder.path().join("shapes.proto"), proto).unwrap();
    let folder = folder.path().display().to_string();
    let line = ["describe", "-import-path", &folder, "-proto", "shapes.proto", "shapes.All"];
    let shown = farcall_with(&line, "").await.succeeded();
    let expected = "shapes.All is a message:\nmessage All {\n  map<string, .shapes.All> by_name = \
                    1;\n  repeated int32 many = 2;\n  optional bool may = 3;\n  .shapes.Kind kind \
                    = 6;\n  oneof one {\n    string text = 4;\n    .shapes.All deeper = 5;\n  \
                    }\n}\n";
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn fault_of_a_proto_file_has_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("syntax.proto", "syntax = \"proto3\";\nmessage {}\n");
    write("undefined.proto", "syntax = \"proto3\";\nmessage A {\n  Nothing b = 1;\n}\n");
    write("import.proto", "syntax = \"proto3\";\nimport \"none.proto\";\n");
    write("escape.proto", "syntax = \"proto3\";\n\u{1b}[2J\n");
    std::fs::write(folder.path().join("bytes.proto"), [0xff]).unwrap();
    let import = folder.path().display().to_string();
    for (file, place) in [
        ("syntax.proto", "syntax.proto:2:9: "),
        ("undefined.proto", "undefined.proto:3:3: "),
        ("import.proto", "import.proto:2:1: "),
        ("escape.proto", "escape.proto:2:1: "),
        ("bytes.proto", "bytes.proto"),
        ("absent.proto", "absent.proto"),
    ] {
        let line = ["list", "--import-path", &import, "--proto", file];
        let ran = farcall_with(&line, "").await;
        assert!(!ran.stderr.contains('\u{1b}'), "{ran:?}");
        ran.failed(1, place);
    }
    let line = ["list", "--protoset", "/no/such.bin"];
    farcall_with(&line, "").await.failed(1, "cannot read /no/such.bin");
    let set = folder.path().join("bytes.proto").display().to_string();
    farcall_with(&["list", "--protoset", &set], "").await.failed(1, "bytes.proto: ");
}
