//! `farcall tap` against servers with and without their state for operators, and a hostile one.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use farcall::server::admin_api::{EndedCall, SERVICE, WatchCallsRequest};
use farcall::server::{Admin, HandlerFuture, ServerCall};
use farcall::{
    Channel, Code, Request, Response, Server, Service, ServiceDescriptor, Status, Streaming, client,
};
use farcall_probe::proto::probe_rpc::ProbeStub;
use farcall_probe::proto::{EchoRequest, FailRequest};

use crate::program::{Started, farcall};
use crate::servers;

/// No wait of these tests is longer.
const LIMIT: Duration = Duration::from_secs(60);

/// Calls until the command ends, and returns its lines. The command may begin to watch at any time.
async fn tapped(address: &str, flags: &str) -> Vec<String> {
    let channel = Channel::connect(address).await.unwrap();
    let stub = ProbeStub::new(channel);
    let line = format!("tap {address} {flags}");
    let command = farcall(&line);
    tokio::pin!(command);
    loop {
        let calls = async {
            let mut request = Request::new(EchoRequest { payload: "ab".into(), tail: "".into() });
            request.metadata_mut().insert("x-secret", "value".parse().unwrap());
            stub.echo(request).await.unwrap();
            let failure = FailRequest { code: Code::NotFound.into(), ..Default::default() };
            stub.fail(failure).await.unwrap_err();
        };
        tokio::select! {
            ran = &mut command => {
                return ran.succeeded().lines().map(str::to_owned).collect();
            }
            () = calls => {}
        }
    }
}

#[tokio::test]
async fn tap_prints_a_line_for_each_call() {
    let socket = format!("unix://@farcall-tapped-{}", std::process::id());
    for address in ["tcp://127.0.0.1:0", &socket] {
        let server = servers::serve(servers::bare().admin(Admin::loopback()), address).await;
        let lines = tapped(&server.address, "--count 4").await;
        assert_eq!(lines.len(), 4, "{lines:?}");
        let echo = lines.iter().rfind(|line| line.contains("farcall.suite.Probe/Echo")).unwrap();
        let fail = lines.iter().find(|line| line.contains("farcall.suite.Probe/Fail")).unwrap();
        assert!(echo.contains("Z  OK  ") && echo.contains("  in 4 B  out 4 B"), "{echo}");
        assert!(echo.contains("  metadata x-secret") && !echo.contains("value"), "{echo}");
        assert!(fail.contains("Z  NOT_FOUND  ") && fail.ends_with("  out 0 B"), "{fail}");
    }
}

#[tokio::test]
async fn tap_chooses_by_method_status_and_sample() {
    let server =
        servers::serve(servers::bare().admin(Admin::loopback()), "tcp://127.0.0.1:0").await;
    let chosen = async |flags: &str| tapped(&server.address, &format!("{flags} --count 5")).await;
    for (flags, part) in [
        ("--method *.Probe/E?ho", "/Echo"),
        ("--method /farcall.suite.Probe/Fail", "/Fail"),
        ("--status !OK", " NOT_FOUND "),
        ("--status ok,aborted", "  OK  "),
        ("--status not_found --sample 20%", " NOT_FOUND "),
    ] {
        let lines = chosen(flags).await;
        assert!(lines.len() == 5 && lines.iter().all(|it| it.contains(part)), "{flags}: {lines:?}");
    }
    let lines = chosen("--format json --status NOT_FOUND").await;
    let call: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(call["code"], "NOT_FOUND");
    assert_eq!(call["method"], "farcall.suite.Probe/Fail");
    assert!(call["took_us"].is_u64() && call["metadata_keys"].is_array(), "{call}");
    assert_eq!(call["server"], server.address);
}

#[tokio::test]
async fn tap_checks_its_flags() {
    for (flags, reason) in [
        ("--status GONE", "`GONE` is not a status"),
        ("--sample 0", "must be from 0.0001% to 100%"),
        ("--sample some", "expected a percentage"),
        ("--count 0", "0"),
    ] {
        farcall(&format!("tap tcp://h:1 {flags}")).await.failed(1, reason);
    }
    let server = servers::serve(servers::bare(), "tcp://127.0.0.1:0").await;
    farcall(&format!("tap {}", server.address)).await.failed(76, "it needs `Admin`");
    let server =
        servers::serve(servers::bare().admin(Admin::loopback()), "tcp://127.0.0.1:0").await;
    let long = format!("tap {} --method {}", server.address, "a".repeat(300));
    farcall(&long).await.failed(67, "longer than 256 bytes");
}

#[tokio::test]
async fn interrupt_ends_tap() {
    let server =
        servers::serve(servers::bare().admin(Admin::loopback()), "tcp://127.0.0.1:0").await;
    let stub = ProbeStub::new(Channel::connect(&server.address).await.unwrap());
    let calls = tokio::spawn(async move {
        loop {
            stub.echo(EchoRequest::default()).await.unwrap();
        }
    });
    let address = server.address.clone();
    let ended = tokio::task::spawn_blocking(move || {
        // Its first line says that it watches.
        let mut command = Started::new(&["tap", &address]);
        assert!(command.next_line().contains("/Echo"));
        command.interrupt();
        command.exit_code()
    });
    assert_eq!(ended.await.unwrap(), Some(0));
    calls.abort();
}

#[tokio::test]
async fn watchers_are_few_and_end_when_the_server_drains() {
    let server = servers::bare().admin(Admin::loopback());
    let listener = server.bind("tcp://127.0.0.1:0").await.unwrap();
    let address = listener.local_address().clone();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let serve = listener.serve().with_graceful_shutdown(async { drop(stopped.await) });
    let served = tokio::spawn(serve);
    let channel = Channel::connect(address).await.unwrap();
    let watch = async || {
        let request = Request::new(WatchCallsRequest::default());
        let calls = client::server_streaming(&channel, &SERVICE.methods[1], request).await;
        calls.map(Response::into_inner)
    };
    let mut watches: Vec<Streaming<EndedCall>> = Vec::new();
    while watches.len() < 4 {
        watches.push(watch().await.unwrap());
    }
    assert_eq!(watch().await.map(drop).unwrap_err().code(), Code::ResourceExhausted);
    watches.pop();
    // The server hears of the end of a stream in its own time.
    let again = async {
        loop {
            match watch().await {
                Ok(calls) => return calls,
                Err(status) => assert_eq!(status.code(), Code::ResourceExhausted),
            }
        }
    };
    watches.push(tokio::time::timeout(LIMIT, again).await.unwrap());
    stop.send(()).unwrap();
    for calls in &mut watches {
        let end = tokio::time::timeout(LIMIT, calls.message()).await.unwrap();
        assert!(end.is_ok_and(|call| call.is_none()));
    }
    tokio::time::timeout(LIMIT, served).await.unwrap().unwrap().unwrap();
}

/// Sends calls whose texts try to move the cursor.
struct Hostile;

impl Service for Hostile {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        call.server_streaming(|_: Request<WatchCallsRequest>| async {
            let text = || "\u{1b}[2J\u{9b}\r\n\u{202e}".repeat(100);
            let call = EndedCall {
                unix_ms: u64::MAX,
                method: text(),
                peer: text(),
                transport: text(),
                code: i32::MIN,
                took_us: u64::MAX,
                requests: u64::MAX,
                metadata_keys: vec![text(); 100],
                dropped: u64::MAX,
                ..EndedCall::default()
            };
            let calls = futures::stream::repeat_with(move || Ok::<_, Status>(call.clone()));
            Ok(Response::new(calls))
        })
    }
}

#[tokio::test]
async fn hostile_server_moves_no_cursor() {
    let server = servers::serve(Server::builder().add_service(Hostile), "tcp://127.0.0.1:0").await;
    for format in ["text", "json"] {
        let line =
            format!("tap {} --count 2 --max-message-len 1000000 --format {format}", server.address);
        let printed = farcall(&line).await.succeeded();
        let is_harmful = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
        assert!(!printed.contains(is_harmful) && printed.len() < 100_000, "{printed:?}");
    }
    // A description that is longer than any of farcall's is refused.
    farcall(&format!("tap {} --count 1", server.address)).await.failed(72, "");
}
