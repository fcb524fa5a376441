//! Calls end under any limits that are in range, however low or high.

use std::time::Duration;

use farcall::{Code, Limits, Status};
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::proto::{DownloadRequest, EchoRequest, ProduceRequest};
use farcall_suite::{Failure, Harness, Path, payload};
use futures::{StreamExt, TryStreamExt, stream};
use proptest::prelude::*;

/// The bound on the calls of one case. They take milliseconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Calls of each kind that are in flight together.
const CALL_COUNT: u64 = 4;

/// Messages of each stream.
const MESSAGE_COUNT: u64 = 5;

/// The length of each payload in bytes.
const PAYLOAD_LEN: usize = 100;

/// A limit that every message and every digest here is below.
const ENOUGH: u64 = 1 << 10;

/// The ends of a range more often than what is between.
fn within<T: Copy + std::fmt::Debug + 'static>(
    (least, most): (T, T),
    between: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = T> {
    prop_oneof![Just(least), Just(most), between]
}

fn limits() -> impl Strategy<Value = Limits> {
    (
        within((1, u64::MAX), 1..4 * ENOUGH),
        within((256, u32::MAX), 256..10_000u32),
        within((1, u32::MAX), 1..10u32),
        within((1, u64::MAX), 1..1_000_000u64),
        within((1, 65_536), 1..100u32),
        within((1, 1 << 30), 1..10_000u32),
    )
        .prop_map(|(message, metadata, calls, receiving, stream_messages, stream_bytes)| {
            Limits::default()
                .with_max_message_len(message)
                .with_max_metadata_len(metadata)
                .with_max_calls(calls)
                .with_max_receiving_bytes(receiving)
                .with_max_stream_messages(stream_messages)
                .with_max_stream_bytes(stream_bytes)
        })
}

fn message(seed: u64) -> EchoRequest {
    EchoRequest { payload: payload(seed, PAYLOAD_LEN), ..Default::default() }
}

async fn echo(stub: &ProbeStub, seed: u64) -> Result<(), Status> {
    stub.echo(message(seed)).await.map(drop)
}

async fn upload(stub: &ProbeStub) -> Result<(), Status> {
    stub.upload(stream::iter((0..MESSAGE_COUNT).map(message))).await.map(drop)
}

async fn download(stub: &ProbeStub) -> Result<(), Status> {
    let messages = (0..MESSAGE_COUNT).map(|seed| ProduceRequest { seed, len: PAYLOAD_LEN as u64 });
    let request = DownloadRequest { messages: messages.collect(), ..Default::default() };
    let replies = stub.download(request).await?.into_inner();
    replies.map(|reply| reply.map(drop)).try_collect().await
}

async fn chat(stub: &ProbeStub) -> Result<(), Status> {
    let requests = stream::iter((0..MESSAGE_COUNT).map(message));
    let replies = stub.chat(requests).await?.into_inner();
    replies.map(|reply| reply.map(drop)).try_collect().await
}

/// Some calls of each kind, all at once.
async fn calls(server: Limits, client: Limits) -> Result<Vec<Result<(), Status>>, Failure> {
    let running = Harness::new(Path::Inproc, LIMIT).serve_under(server).await?;
    let stub = ProbeStub::new(running.channel_under(client).await?);
    let round = async |seed| {
        [echo(&stub, seed).await, upload(&stub).await, download(&stub).await, chat(&stub).await]
    };
    let rounds = futures::future::join_all((0..CALL_COUNT).map(round));
    let ended = tokio::time::timeout(LIMIT, rounds).await.expect("every call ends");
    Ok(ended.into_iter().flatten().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn calls_of_all_kinds_end_under_limits_in_range(server in limits(), client in limits()) {
        prop_assert_eq!((server.check(), client.check()), (Ok(()), Ok(())));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let results = runtime.block_on(calls(server, client)).expect("they connect");
        let is_roomy = server.max_message_len.min(client.max_message_len) >= ENOUGH;
        for result in results {
            let Err(status) = result else { continue };
            prop_assert!(!is_roomy, "{}", status);
            prop_assert_eq!(status.code(), Code::ResourceExhausted);
            prop_assert!(status.message().contains("limits.max_message_len"), "{}", status);
        }
    }
}
