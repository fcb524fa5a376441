//! `farcall top` against servers with and without their state for operators, and a hostile one.

use farcall::server::admin_api::{
    CodeCount, Connection, FailedCall, Method, PathCount, SERVICE, Snapshot, SnapshotRequest,
};
use farcall::server::{Admin, HandlerFuture, ServerCall};
use farcall::{Request, Response, Server, Service, ServiceDescriptor};
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage as _};

use crate::program::farcall;
use crate::servers;

#[tokio::test]
async fn top_prints_a_row_for_each_server() {
    let [one, other] = [0, 1]
        .map(|_| servers::serve(servers::bare().admin(Admin::loopback()), "tcp://127.0.0.1:0"));
    let (one, other) = (one.await, other.await);
    let line = format!("top {} {} --count 2 --interval 20ms", one.address, other.address);
    let printed = farcall(&line).await.succeeded();
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 6, "{printed}");
    assert!(lines[0].starts_with("server ") && lines[3] == lines[0], "{printed}");
    assert!(lines[1].starts_with(&one.address) && lines[1].contains(" tcp 1 "), "{printed}");
    assert!(lines[5].starts_with(&other.address) && !printed.contains('\u{1b}'), "{printed}");
    let list = format!("tcp://{},{}", one.authority(), other.authority());
    let printed = farcall(&format!("top {list} --count 1 --format json")).await.succeeded();
    let rows: Vec<serde_json::Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = rows.iter().filter_map(|row| row["server"].as_str()).collect();
    assert_eq!(names, [&*one.address, &*other.address]);
    assert!(rows[0]["connections"]["tcp"].as_u64() >= Some(1), "{printed}");
}

#[tokio::test]
async fn top_says_what_a_server_lacks() {
    let server = servers::serve(servers::bare(), "tcp://127.0.0.1:0").await;
    let ran = farcall(&format!("top {} --count 1", server.address)).await;
    ran.failed(76, "it needs `Admin`");
}

/// Answers with texts that try to move the cursor, and with counts that overflow sums.
struct Hostile;

impl Service for Hostile {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        call.unary(|_: Request<SnapshotRequest>| async {
            let text = || "\u{1b}[2J\u{9b}\r\n\u{202e}".repeat(100);
            let path = PathCount { transport: text(), fallback: text(), count: u64::MAX };
            let method = || Method {
                path: text(),
                kind: "unary".into(),
                codes: vec![CodeCount { code: i32::MIN, count: u64::MAX }],
                latency: vec![],
            };
            Ok(Response::new(Snapshot {
                paths: vec![path.clone(), path],
                methods: vec![method(), method()],
                failed_calls: vec![FailedCall { message: text(), ..FailedCall::default() }],
                connections: vec![Connection {
                    reason: text(),
                    credits: Some(u64::MAX),
                    ..Connection::default()
                }],
                memory_held: u64::MAX,
                memory_limit: 1,
                rss_bytes: u64::MAX,
                ..Snapshot::default()
            }))
        })
    }
}

#[tokio::test]
async fn hostile_server_moves_no_cursor() {
    let server = servers::serve(Server::builder().add_service(Hostile), "tcp://127.0.0.1:0").await;
    let printed = farcall(&format!("top {} --count 2 --interval 5ms", server.address)).await;
    let printed = printed.succeeded();
    // The row of the server, and those of the reason that it names and of all others.
    assert_eq!(printed.lines().count(), 2 * (2 + 4), "{printed}");
    let is_harmful = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
    assert!(!printed.contains(is_harmful) && printed.len() < 8000, "{printed:?}");
}

/// The hand-written messages have the fields of the `.proto` file: none is unknown to it.
#[tokio::test]
async fn messages_are_those_of_the_proto_file() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto");
    let files = protox::compile(["admin.proto"], [root]).unwrap();
    let pool = DescriptorPool::from_file_descriptor_set(files).unwrap();
    let service = pool.get_service_by_name(SERVICE.name).unwrap();
    let paths: Vec<_> =
        service.methods().map(|it| format!("/{}/{}", SERVICE.name, it.name())).collect();
    assert_eq!(paths, SERVICE.methods.iter().map(|it| it.path).collect::<Vec<_>>());
    let text = std::fs::read_to_string(format!("{root}/admin.proto")).unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../farcall/src/server/admin/api.rs");
    let source = std::fs::read_to_string(source).unwrap();
    // Each field of the file has its tag and its name in the source, in the same order.
    let fields = text.lines().filter_map(|line| {
        let (declared, tag) = line.strip_suffix(';')?.split_once(" = ")?;
        let name = declared.rsplit(' ').next()?;
        tag.parse::<u32>().ok().map(|tag| (name.to_owned(), tag))
    });
    let mut tag = None;
    let written = source.lines().filter_map(|line| {
        if let Some((_, rest)) = line.split_once("tag = \"") {
            tag = rest.split('"').next().and_then(|tag| tag.parse::<u32>().ok());
            return None;
        }
        let name = line.trim().strip_prefix("pub ")?.split(':').next()?;
        tag.take().map(|tag| (name.to_owned(), tag))
    });
    assert_eq!(fields.collect::<Vec<_>>(), written.collect::<Vec<_>>());
    // A snapshot of a server decodes without an unknown field.
    let server =
        servers::serve(servers::bare().admin(Admin::loopback()), "tcp://127.0.0.1:0").await;
    let channel = farcall::Channel::connect(&server.address).await.unwrap();
    let request = Request::new(SnapshotRequest::default());
    let answer = farcall::client::unary(&channel, &SERVICE.methods[0], request).await.unwrap();
    let snapshot: Snapshot = answer.into_inner();
    let bytes = farcall::prost::Message::encode_to_vec(&snapshot);
    let kind = pool.get_message_by_name("farcall.admin.v1.Snapshot").unwrap();
    let decoded = DynamicMessage::decode(kind, bytes.as_slice()).unwrap();
    assert_eq!(decoded.unknown_fields().count(), 0);
    assert_eq!(decoded.descriptor().full_name(), "farcall.admin.v1.Snapshot");
}
