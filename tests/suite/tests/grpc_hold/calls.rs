//! Calls that send their headers alone, and responses that are headers alone.

use std::time::Duration;

use farcall::Identity;
use farcall::{Code, Server};
use futures::future::join_all;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::log::Log;
use crate::service::{framed, outcome, serve, until, within};
use farcall_suite::interop_proto::Empty;

/// Headers that HTTP/2 counts as 23 KiB: 33 bytes and a few for each.
fn many_headers() -> Vec<(String, String)> {
    (0..600).map(|number| (format!("x{number}"), String::new())).collect()
}

#[tokio::test]
async fn a_call_without_a_message_has_a_permit() {
    for headers in [vec![], vec![("grpc-encoding".to_owned(), "gzip".to_owned())]] {
        let running = serve(Server::builder().max_calls(4)).await;
        let raw = running.raw_client().await;
        let mut waiting = Vec::new();
        for _ in 0..4 {
            waiting.push(raw.call_with("EmptyCall", headers.clone()).await);
        }
        within(until(|| running.server.calls_running() == 4)).await;
        let (refused, _requests) = raw.call_with("EmptyCall", headers).await;
        let (status, _) = outcome(refused).await.unwrap();
        assert_eq!(Code::from(status), Code::ResourceExhausted);
        for (answer, mut requests) in waiting {
            requests.send_data(framed(&Empty {}), true).unwrap();
            let (status, _) = outcome(answer).await.unwrap();
            assert_eq!(Code::from(status), Code::Ok);
        }
        within(until(|| running.server.calls_running() == 0)).await;
    }
}

#[tokio::test]
async fn headers_count_what_they_are_decoded_to() {
    const CALLS: u64 = 20;
    let running = serve(Server::builder().max_memory(64 << 20)).await;
    let raw = running.raw_client().await;
    let mut waiting = Vec::new();
    within(until(|| running.grpc_connections() == 1)).await;
    let idle = running.server.memory_held();
    for _ in 0..CALLS {
        waiting.push(raw.call_with("EmptyCall", many_headers()).await);
    }
    within(until(|| running.server.calls_running() == CALLS)).await;
    let held = (running.server.memory_held() - idle) / CALLS;
    println!("a call with 600 headers counts {held} bytes");
    assert!((90_000..200_000).contains(&held), "{held}");
    drop(waiting);
    within(until(|| running.server.memory_held() <= idle)).await;
}

#[tokio::test]
async fn calls_beyond_max_memory_are_refused_and_the_rest_go_on() {
    let running = serve(Server::builder().max_memory(8 << 20)).await;
    let raw = running.raw_client().await;
    let mut waiting = Vec::new();
    for _ in 0..200 {
        waiting.push(raw.call_with("EmptyCall", many_headers()).await);
    }
    within(until(|| running.server.memory_held() > 3 << 20)).await;
    assert!(running.server.memory_held() <= 9 << 20, "{}", running.server.memory_held());
    let (answer, _requests) = waiting.pop().unwrap();
    assert_eq!(Code::from(outcome(answer).await.unwrap().0), Code::ResourceExhausted);
    let mut other = running.client_from([127, 0, 0, 2].into()).await;
    within(other.empty_call(Empty {})).await.expect("others are served");
}

#[tokio::test]
async fn a_call_is_authorized_before_its_message() {
    let rules = |_: &Identity, _: &str| true;
    let running = serve(Server::builder().authorize(rules)).await;
    let raw = running.raw_client().await;
    for method in ["EmptyCall", "StreamingInputCall"] {
        let (answer, _requests) = raw.call(method).await;
        let (status, _) = outcome(answer).await.unwrap();
        assert_eq!(Code::from(status), Code::Unauthenticated, "{method}");
    }
}

#[tokio::test]
async fn the_wait_for_a_message_is_bounded() {
    let brief = Duration::from_millis(300);
    let by_unary_timeout = || Server::builder().unary_timeout(brief);
    let by_handshake_timeout = || Server::builder().handshake_timeout(brief);
    let gzip = ("grpc-encoding".to_owned(), "gzip".to_owned());
    let deadline = ("grpc-timeout".to_owned(), "300m".to_owned());
    for (builder, headers) in [
        (by_unary_timeout(), vec![]),
        (by_unary_timeout(), vec![gzip.clone()]),
        (by_handshake_timeout(), vec![]),
        (by_handshake_timeout(), vec![gzip.clone()]),
        (Server::builder(), vec![deadline.clone()]),
        (Server::builder(), vec![deadline, gzip]),
    ] {
        let running = serve(builder).await;
        let raw = running.raw_client().await;
        let mut answers = Vec::new();
        let mut open = Vec::new();
        for part in [&[][..], b"\0\0", b"\0\0\0\0\x09hi"] {
            let (answer, mut requests) = raw.call_with("EmptyCall", headers.clone()).await;
            if !part.is_empty() {
                requests.send_data(part.into(), false).unwrap();
            }
            answers.push(outcome(answer));
            open.push(requests);
        }
        for ended in within(join_all(answers)).await {
            assert_eq!(Code::from(ended.unwrap().0), Code::DeadlineExceeded, "{headers:?}");
        }
        within(until(|| running.server.calls_running() == 0)).await;
        assert!(!raw.is_closed());
    }
}

/// Asks for what does not exist, and reads nothing. Each answer is headers alone.
#[tokio::test]
async fn responses_without_messages_count_and_have_to_be_taken() {
    let builder = Server::builder().max_memory(64 << 20);
    let builder = builder.progress_timeout(Duration::from_secs(2));
    let running = serve(builder).await;
    let mut stream = TcpStream::connect(&running.authority).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    within(until(|| running.grpc_connections() == 1)).await;
    let idle = running.server.memory_held();
    let mut most = 0;
    let asking = async {
        for id in (1..).step_by(2) {
            if stream.write_all(&unknown_method(id)).await.is_err() {
                break;
            }
            most = most.max(running.server.memory_held().saturating_sub(idle));
        }
    };
    within(asking).await;
    within(until(|| running.grpc_connections() == 0)).await;
    println!("responses that were not taken counted {most} bytes at most");
    assert!(most > 100_000, "{most}");
    within(until(|| running.server.memory_held() == 0)).await;
}

/// A whole request of a method that the server does not have, whose name is long.
fn unknown_method(stream: u32) -> Vec<u8> {
    let path = format!("/none/{}", "n".repeat(2_000));
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", &*path),
        (":authority", "a"),
        ("content-type", "application/grpc"),
    ] {
        block.push(0);
        for text in [name, value] {
            // HPACK's integers with a prefix of seven bits.
            let byte = |len| u8::try_from(len).expect("it is short");
            match text.len() {
                len @ 0..127 => block.push(byte(len)),
                len => block.extend([127, byte((len - 127) % 128) | 128, byte((len - 127) / 128)]),
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    let len = u32::try_from(block.len()).expect("it is short").to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], 1, 5];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(&block);
    frame
}

/// Whatever ends a call, and whether its message had come or not.
#[tokio::test]
async fn a_call_has_one_line_in_the_access_log() {
    let brief = Duration::from_millis(300);
    let server = || Server::builder().access_log(true);
    let refusing = || server().authorize(|_: &Identity, _: &str| false);
    let whole = Some(framed(&Empty {}));
    let too_long = Some(b"\0\xff\xff\xff\xff"[..].into());
    for (what, builder, method, message, code) in [
        ("with its message", server(), "EmptyCall", whole.clone(), "OK"),
        ("refused with its message", refusing(), "EmptyCall", whole.clone(), "UNAUTHENTICATED"),
        ("refused before its message", refusing(), "EmptyCall", None, "UNAUTHENTICATED"),
        ("refused before its stream", refusing(), "StreamingInputCall", None, "UNAUTHENTICATED"),
        ("of no method", server(), "NoCall", whole, "UNIMPLEMENTED"),
        ("too long", server(), "EmptyCall", too_long, "RESOURCE_EXHAUSTED"),
        ("late", server().handshake_timeout(brief), "EmptyCall", None, "DEADLINE_EXCEEDED"),
    ] {
        let (log, _capturing) = Log::capture();
        let running = serve(builder).await;
        let raw = running.raw_client().await;
        let (answer, mut requests) = raw.call(method).await;
        if let Some(message) = message {
            requests.send_data(message, true).unwrap();
        }
        outcome(answer).await.unwrap();
        let lines = log.all_lines();
        let lines: Vec<_> = lines.iter().filter(|line| line.contains("farcall::access")).collect();
        let is_right = lines.len() == 1 && lines[0].contains(&format!("code={code} "));
        assert!(is_right, "a call {what}: {lines:#?}");
        drop(running);
    }
}

#[tokio::test]
async fn a_call_given_up_before_its_message_has_a_line() {
    let (log, _capturing) = Log::capture();
    let running = serve(Server::builder().access_log(true)).await;
    let raw = running.raw_client().await;
    let (_answer, mut requests) = raw.call("EmptyCall").await;
    within(until(|| running.server.calls_running() == 1)).await;
    requests.send_reset(h2::Reason::CANCEL);
    within(until(|| running.server.calls_running() == 0)).await;
    let lines = log.all_lines();
    let lines: Vec<_> = lines.iter().filter(|line| line.contains("farcall::access")).collect();
    assert!(lines.len() == 1 && lines[0].contains("code=CANCELLED "), "{lines:#?}");
}
