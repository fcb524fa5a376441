//! The settings that a builder resolves its layers to.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use crate::server::ServerSettings;
use crate::{Channel, MethodCompression, Server, ServerBuilder};

#[test]
fn settings_of_a_builder_can_be_read() {
    let second = Duration::from_secs(1);
    let builder = Server::builder()
        .unary_timeout(second)
        .progress_timeout(None)
        .keepalive(crate::Keepalive::off())
        .max_calls(6)
        .max_calls_per_peer(7)
        .max_memory(1 << 20)
        .access_log(true)
        .method_compression(MethodCompression::default().with_len("a.B", u32::MAX))
        .socket_owner("root")
        .proxy_protocol(["10.0.0.0/24"]);
    let settings = builder.settings();
    let base = &settings.base;
    assert_eq!((base.unary_timeout, base.progress_timeout), (Some(second), None));
    assert_eq!((base.keepalive.interval, base.access_log), (None, true));
    assert_eq!((base.max_calls, base.max_calls_per_peer), (6, Some(7)));
    assert_eq!(base.max_memory, Some(1 << 20));
    assert_ne!(base.methods, MethodCompression::default());
    assert_eq!(settings.socket_owner.as_deref(), Some("root"));
    assert_eq!(settings.proxy_protocol.from, ["10.0.0.0/24"]);
    assert_eq!(settings.check(), Ok(()));
    assert_eq!(Server::builder().settings(), ServerSettings::default());
}

/// Each of these has a range, and panics where it is set.
#[test]
fn values_out_of_range_panic_with_their_name() {
    type Set = fn() -> ServerBuilder;
    let cases: [(Set, &str); 6] = [
        (|| Server::builder().unary_timeout(Duration::ZERO), "server.unary_timeout is 0ns"),
        (|| Server::builder().max_connections(0), "server.max_connections is 0"),
        (|| Server::builder().max_memory(131_071), "server.max_memory is 131071"),
        (|| Server::builder().max_message_len(0), "limits.max_message_len is 0"),
        (|| Server::builder().socket_mode(660), "server.socket_mode is 0o1224: at most 0o777"),
        (|| Server::builder().proxy_protocol(["here"]), "proxy_protocol.from is \"here\""),
    ];
    for (set, message) in cases {
        let panic = std::panic::catch_unwind(set).expect_err("it is out of range");
        let text = panic.downcast_ref::<String>().expect("a message");
        assert!(text.starts_with(message), "{text}");
    }
}

#[tokio::test]
async fn socket_has_the_mode_that_is_set() {
    let name = format!("farcall-socket-mode-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let address = format!("unix://{}", path.display());
    for mode in [0o600, 0o666] {
        let listener = Server::builder().socket_mode(mode).bind(&address).await.unwrap();
        let permissions = std::fs::metadata(&path).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, mode);
        let serving = tokio::spawn(listener.serve());
        Channel::connect(&address).await.unwrap();
        serving.abort();
        let _ = serving.await;
    }
}

#[tokio::test]
async fn other_addresses_refuse_mode_and_owner() {
    for address in ["tcp://127.0.0.1:0", "inproc://farcall-socket-mode"] {
        for builder in
            [Server::builder().socket_mode(0o600), Server::builder().socket_owner("root")]
        {
            let error = builder.bind(address).await.unwrap_err().to_string();
            assert!(error.contains("socket_mode and socket_owner are for"), "{error}");
        }
    }
}
