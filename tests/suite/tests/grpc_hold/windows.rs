//! Honest clients that do a lot at once: none loses its connection or a call.

use bytes::Bytes;
use farcall::{Code, Server};
use farcall_suite::interop_proto::Empty;
use futures::future::join_all;
use h2::SendStream;
use tower::limit::ConcurrencyLimitLayer;

use crate::service::{RawClient, framed, input, outcome, serve, until, within};

/// Sends a body as its windows go.
async fn send(mut requests: SendStream<Bytes>, mut body: Bytes) -> Result<(), h2::Error> {
    while !body.is_empty() {
        requests.reserve_capacity(body.len());
        let room = std::future::poll_fn(|cx| requests.poll_capacity(cx)).await;
        let room = room.transpose()?.unwrap_or(0).min(body.len());
        requests.send_data(body.split_to(room), false)?;
    }
    requests.send_data(Bytes::new(), true)
}

/// Calls with so many messages of that length, each a frame of its own, whose handlers wait.
async fn paused(raw: &RawClient, calls: u64, messages: usize, len: usize) {
    let mut answers = Vec::new();
    for _ in 0..calls {
        let (answer, mut requests) = raw.call("StreamingInputCall").await;
        for number in 0..messages {
            let is_last = number + 1 == messages;
            requests.send_data(input(len), is_last).expect("the connection lives");
            tokio::task::consume_budget().await;
        }
        answers.push(answer);
    }
    for answer in answers {
        let (status, bytes) = outcome(answer).await.expect("the connection lives");
        assert_eq!(Code::from(status), Code::Ok);
        assert!(!bytes.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_messages_to_paused_handlers_all_arrive() {
    for (calls, messages) in [(1, 600), (1, 9_000), (100, 600), (1_000, 300)] {
        let running = serve(Server::builder()).await;
        let raw = running.raw_client().await;
        let open = async {
            within(until(|| running.server.calls_running() == calls)).await;
            // What was sent has arrived when a later call is answered.
            let other = running.raw_client().await;
            let (answer, mut requests) = other.call("EmptyCall").await;
            requests.send_data(framed(&Empty {}), true).unwrap();
            outcome(answer).await.unwrap();
            running.open_gate();
        };
        tokio::join!(paused(&raw, calls, messages, 0), open);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_unary_calls_at_once_all_end_well() {
    for count in [600, 20_000] {
        let running = serve(Server::builder()).await;
        running.open_gate();
        let client = running.client().await;
        let calls = (0..count).map(|_| {
            let mut client = client.clone();
            async move { client.empty_call(Empty {}).await }
        });
        let ended = within(join_all(calls)).await;
        let failed = ended.iter().filter(|it| it.is_err()).count();
        let first = ended.iter().find_map(|it| it.as_ref().err());
        assert_eq!(failed, 0, "of {count}: {first:?}");
    }
}

/// Of each kind: calls whose clients go away at once, and uploads that are refused at once.
#[tokio::test]
async fn many_calls_that_end_early_leave_the_connection() {
    let running = serve(Server::builder().max_calls_per_peer(8)).await;
    let raw = running.raw_client().await;
    for _ in 0..3 {
        let mut calls = Vec::new();
        for _ in 0..1_000 {
            calls.push(raw.call("StreamingInputCall").await);
        }
        drop(calls);
        let mut uploads = Vec::new();
        for _ in 0..1_000 {
            let (answer, requests) = raw.call("StreamingInputCall").await;
            let sending = tokio::spawn(send(requests, Bytes::from(vec![0; 20_000])));
            uploads.push((answer, sending));
        }
        for (_, sending) in uploads {
            let _ = sending.await;
        }
        within(until(|| running.server.calls_running() == 0)).await;
        let (answer, mut requests) = raw.call("EmptyCall").await;
        requests.send_data(framed(&Empty {}), true).unwrap();
        assert_eq!(outcome(answer).await.expect("the connection lives").0, 0);
    }
}

#[tokio::test]
async fn unread_uploads_leave_other_calls_alone() {
    let running = serve(Server::builder()).await;
    let raw = running.raw_client().await;
    let body: Bytes = (0..20).flat_map(|_| input(10_000)).collect::<Vec<_>>().into();
    let mut uploads = Vec::new();
    for _ in 0..50 {
        let (answer, requests) = raw.call("StreamingInputCall").await;
        uploads.push((answer, tokio::spawn(send(requests, body.clone()))));
    }
    within(until(|| running.server.calls_running() == 50)).await;
    for _ in 0..100 {
        let (answer, requests) = raw.call("EmptyCall").await;
        let sent = tokio::spawn(send(requests, framed(&Empty {})));
        assert_eq!(outcome(answer).await.unwrap().0, 0);
        within(sent).await.unwrap().unwrap();
    }
    running.open_gate();
    for (answer, sending) in uploads {
        assert_eq!(outcome(answer).await.unwrap().0, 0);
        within(sending).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn uploads_that_wait_for_a_layer_all_end() {
    for (uploads, len) in [(6, 128 << 10), (40, 300_000)] {
        let running = serve(Server::builder().layer(ConcurrencyLimitLayer::new(1))).await;
        running.open_gate();
        let raw = running.raw_client().await;
        let body: Bytes = input(len);
        let mut answers = Vec::new();
        for _ in 0..uploads {
            let (answer, requests) = raw.call("StreamingInputCall").await;
            answers.push((answer, tokio::spawn(send(requests, body.clone()))));
        }
        for (answer, sending) in answers {
            assert_eq!(outcome(answer).await.unwrap().0, 0);
            within(sending).await.unwrap().unwrap();
        }
    }
}

/// All that handlers have not read is counted, and what does not fit ends its own call.
#[tokio::test]
async fn unread_uploads_are_bounded_by_max_memory() {
    const MAX: u64 = 4 << 20;
    let running = serve(Server::builder().max_memory(MAX)).await;
    let raw = running.raw_client().await;
    let mut uploads = Vec::new();
    for _ in 0..200 {
        let (answer, requests) = raw.call("StreamingInputCall").await;
        let sending = tokio::spawn(send(requests, input(60_000)));
        uploads.push(outcome(answer));
        drop(sending);
    }
    let others = running.client().await;
    within(others.clone().empty_call(Empty {})).await.expect("others are served");
    assert!(running.server.memory_held() <= MAX + (1 << 20), "{}", running.server.memory_held());
    running.open_gate();
    let ended = within(join_all(uploads)).await;
    let codes: Vec<_> = ended.into_iter().map(|it| Code::from(it.unwrap().0)).collect();
    assert!(codes.contains(&Code::Ok), "{codes:?}");
    let others = codes.iter().filter(|it| !matches!(it, Code::Ok | Code::ResourceExhausted));
    assert_eq!(others.count(), 0, "{codes:?}");
}
