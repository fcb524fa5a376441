//! Limits on length: who refuses what, and in which words.

use bytes::Bytes;
use farcall::{Code, Limits, Request, Server, Status};

use super::echo::echo;
use crate::OneServer as _;
use crate::failure::{check, check_eq, refused};
use crate::payload::payload;
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{
    DownloadRequest, EchoRequest, FailRequest, MetadataEntry, ParkRequest, ProduceRequest,
    ReflectRequest,
};
use crate::{Failure, Harness};
use farcall_probe::entries::metadata;

const SMALL: Limits = Limits::DEFAULTS
    .with_max_message_len(100_000)
    .with_max_metadata_len(1000)
    .with_max_calls(100)
    .with_max_receiving_bytes(1 << 20)
    .with_max_stream_messages(16)
    .with_max_stream_bytes(16 << 10);

/// Over the small limit; the one is a large frame on every transport, the other on none.
const LENS_OVER: [usize; 2] = [100_001, 5 << 20];

#[track_caller]
fn check_names(status: &Status, setting: &str, whose: &str) -> Result<(), Failure> {
    check_eq("the code", &status.code(), &Code::ResourceExhausted)?;
    let text = status.message();
    check(text.contains(setting) && text.contains(whose), "the limit's name in", text)
}

pub(super) async fn a_request_over_the_servers_limit_is_never_sent(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve_under(SMALL).await?;
    let channel = server.channel().await?;
    let stub = ProbeStub::new(channel.clone());
    for len in LENS_OVER {
        let sent = |channel: &farcall::Channel| {
            channel.info().map(|info| info.stats.small_sent + info.stats.large_sent)
        };
        let before = sent(&channel);
        let request = ParkRequest { payload: payload(1, len), ..Default::default() };
        let status = refused("a request over the limit", stub.park(request).await)?;
        check_names(&status, "limits.max_message_len", "server's")?;
        check_eq("the frames sent", &sent(&channel), &before)?;
        echo(&stub, 1, 99_000).await?;
    }
    check_eq("an event of the handler", &server.watch().try_next(), &None)
}

pub(super) async fn a_response_over_the_clients_limit_is_refused(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let stub = ProbeStub::new(server.channel_under(SMALL).await?);
    for len in LENS_OVER {
        let answer = stub.produce(ProduceRequest { seed: 1, len: len as u64 }).await;
        let status = refused("a response over the limit", answer)?;
        check_names(&status, "limits.max_message_len", "client's")?;
        echo(&stub, 1, 99_000).await?;
    }
    Ok(())
}

/// Returns the status of a request or response of this length in each kind of call: a unary call, a
/// stream of responses, a stream of requests.
async fn with_payload_of(len: usize, stub: &ProbeStub) -> Result<[Option<Status>; 3], Failure> {
    let request = || EchoRequest { payload: payload(1, len), ..Default::default() };
    let unary = stub.echo(request()).await.err();
    let messages = vec![ProduceRequest { seed: 1, len: len as u64 }];
    let download = stub.download(DownloadRequest { messages, ..Default::default() }).await;
    let download = match download {
        Ok(response) => response.into_inner().message().await.err(),
        Err(status) => Some(status),
    };
    let upload = stub.upload(futures::stream::iter([request()])).await.err();
    Ok([unary, download, upload])
}

#[track_caller]
fn check_limited(
    ended: [Option<Status>; 3],
    text: [Option<(&str, &str)>; 3],
) -> Result<(), Failure> {
    for (status, text) in ended.into_iter().zip(text) {
        match (status, text) {
            (Some(status), Some((setting, whose))) => check_names(&status, setting, whose)?,
            (status, text) => check_eq("an end", &status.is_some(), &text.is_some())?,
        }
    }
    Ok(())
}

pub(super) async fn the_limits_of_a_stub_hold_for_its_calls_alone(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let free = server.stub().await?;
    let reads = free.clone().max_decoding_message_len(2000);
    let sends = free.clone().max_encoding_message_len(2000);
    let (reading, sending) = ("max_decoding_message_len", "max_encoding_message_len");
    // Small frames and large ones, on every transport.
    for len in [2001, 100_000] {
        let (reads, sends) =
            (with_payload_of(len, &reads).await?, with_payload_of(len, &sends).await?);
        check_limited(reads, [Some((reading, "stub's")), Some((reading, "stub's")), None])?;
        check_limited(sends, [Some((sending, "stub's")), None, Some((sending, "stub's"))])?;
        check_limited(with_payload_of(len, &free).await?, [None, None, None])?;
    }
    check_limited(with_payload_of(1900, &reads).await?, [None, None, None])?;
    check_limited(with_payload_of(1900, &sends).await?, [None, None, None])?;
    let layered = server.channel().await?.layer(farcall::layer::TraceLayer::new());
    let caller = farcall::DynCaller::new(layered);
    let stub = ProbeStub::new(caller).max_decoding_message_len(2000);
    let request = EchoRequest { payload: payload(1, 2001), ..Default::default() };
    let status = refused("a response over the stub's limit", stub.echo(request).await)?;
    check_names(&status, reading, "stub's")
}

pub(super) async fn the_limits_of_a_service_hold_for_every_kind_of_call(
    harness: &Harness,
) -> Result<(), Failure> {
    let (reading, sending) = ("max_decoding_message_len", "max_encoding_message_len");
    let reads = harness
        .serve_with(|probe| Server::builder().add_service(probe.max_decoding_message_len(2000)))
        .await?;
    let sends = harness
        .serve_with(|probe| Server::builder().add_service(probe.max_encoding_message_len(2000)))
        .await?;
    let (reads, sends) = (reads.stub().await?, sends.stub().await?);
    for len in [2001, 100_000] {
        let ended = with_payload_of(len, &reads).await?;
        check_limited(ended, [Some((reading, "service's")), None, Some((reading, "service's"))])?;
        let ended = with_payload_of(len, &sends).await?;
        check_limited(ended, [Some((sending, "service's")), Some((sending, "service's")), None])?;
    }
    check_limited(with_payload_of(1900, &reads).await?, [None, None, None])?;
    check_limited(with_payload_of(1900, &sends).await?, [None, None, None])
}

pub(super) async fn metadata_over_the_limit_is_refused_both_ways(
    harness: &Harness,
) -> Result<(), Failure> {
    let entry = MetadataEntry { key: "x-long".to_owned(), value: Bytes::from(vec![b'a'; 1001]) };
    let request = || -> Result<_, Failure> {
        let mut request = Request::new(ReflectRequest { as_trailers: false });
        *request.metadata_mut() = metadata(std::slice::from_ref(&entry))?;
        Ok(request)
    };
    let server = harness.serve_under(SMALL).await?;
    let stub = server.stub().await?;
    let status = refused("metadata over the limit", stub.reflect(request()?).await)?;
    check_names(&status, "limits.max_metadata_len", "server's")?;
    echo(&stub, 1, 100).await?;
    let server = harness.serve().await?;
    let stub = ProbeStub::new(server.channel_under(SMALL).await?);
    let status = refused("metadata over the limit", stub.reflect(request()?).await)?;
    check_names(&status, "limits.max_metadata_len", "client's")?;
    echo(&stub, 1, 100).await
}

/// A caller acts on the code. It survives when the message does not fit.
pub(super) async fn a_status_too_long_for_the_client_keeps_its_code(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let stub = ProbeStub::new(server.channel_under(SMALL).await?);
    let code = Code::AlreadyExists;
    let message = "long ".repeat(1000);
    let request = FailRequest { code: code.into(), message, ..Default::default() };
    let status = refused("a call that fails", stub.fail(request).await)?;
    check_eq("the code", &status.code(), &code)?;
    let text = status.message();
    check(text.contains("limits.max_metadata_len"), "the limit's name in", text)?;
    let request = EchoRequest { payload: payload(1, 10), ..Default::default() };
    stub.echo(request).await?;
    Ok(())
}

/// Messages that the receiver cannot take beside others wait with the sender. A message longer than
/// everything that it takes at a time comes alone.
pub(super) async fn large_messages_beyond_what_is_received_at_a_time_wait(
    harness: &Harness,
) -> Result<(), Failure> {
    for max_receiving_bytes in [4 << 20, 1 << 20] {
        let limits = Limits::default().with_max_receiving_bytes(max_receiving_bytes);
        let server = harness.serve_under(limits).await?;
        let stub = ProbeStub::new(server.channel_under(limits).await?);
        let echoes = (0..12).map(|seed| echo(&stub, seed, 3 << 20));
        futures::future::try_join_all(echoes).await?;
    }
    Ok(())
}
