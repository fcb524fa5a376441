//! Streams of messages: each way, in order, of any size, to their end.

use farcall::{Code, Limits, Request, Status, Streaming};
use futures::stream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::SOON;
use super::echo::echo;
use crate::failure::{check, check_eq, refused};
use crate::harness::either::EitherProbe;
use crate::harness::served::Served;
use crate::payload::{check_payload, payload};
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{
    DownloadRequest, EchoReply, EchoRequest, FailRequest, MetadataEntry, ProduceRequest,
};
use crate::{Failure, Harness};
use farcall_probe::entries::metadata;
use farcall_probe::streams::Digest;
use farcall_probe::watch::WatchEvent;

/// Small and large in turns, so that large messages are overtaken on their way.
const MIXED_LENS: [usize; 9] = [0, 5, 1 << 20, 40, 70_000, 3, 3 << 20, 5000, 1];

fn message(seed: u64, len: usize) -> EchoRequest {
    EchoRequest { payload: payload(seed, len), ..Default::default() }
}

fn wanted(lens: &[usize]) -> DownloadRequest {
    let messages = (1..).zip(lens).map(|(seed, len)| ProduceRequest { seed, len: *len as u64 });
    DownloadRequest { messages: messages.collect(), ..Default::default() }
}

/// Reads as many messages as there are lengths, and checks each.
async fn read(replies: &mut Streaming<EchoReply>, lens: &[usize]) -> Result<(), Failure> {
    for (seed, len) in (1..).zip(lens) {
        let reply = replies.message().await?.unwrap_or_default();
        check_payload("a message of the stream", &reply.payload, &payload(seed, *len))?;
    }
    Ok(())
}

async fn end(replies: &mut Streaming<EchoReply>) -> Result<(), Failure> {
    check_eq("what follows the last message", &replies.message().await?, &None)
}

pub(super) async fn many_small_messages_come_in_order(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let lens: Vec<usize> = (0..2000).map(|index| index % 70).collect();
    let mut replies = stub.download(wanted(&lens)).await?.into_inner();
    read(&mut replies, &lens).await?;
    end(&mut replies).await
}

pub(super) async fn small_and_large_messages_come_in_order(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let mut replies = stub.download(wanted(&MIXED_LENS)).await?.into_inner();
    read(&mut replies, &MIXED_LENS).await?;
    end(&mut replies).await
}

pub(super) async fn a_request_stream_arrives_whole_and_in_order(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let small = (0..1000).map(|index| message(index, 30));
    let mixed = (1..).zip(MIXED_LENS).map(|(seed, len)| message(seed, len));
    let messages: Vec<_> = small.chain(mixed).collect();
    let mut digest = Digest::default();
    messages.iter().for_each(|message| digest.add(&message.payload));
    let reply = stub.upload(stream::iter(messages)).await?.into_inner();
    check_eq("what the server read", &reply, &digest.into_reply())
}

pub(super) async fn a_conversation_goes_message_by_message(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let (sender, requests) = mpsc::channel(1);
    let mut replies = stub.chat(ReceiverStream::new(requests)).await?.into_inner();
    for (seed, len) in (1..).zip(MIXED_LENS) {
        let sent = sender.send(message(seed, len)).await;
        check(sent.is_ok(), "the request stream", "closed")?;
        let reply = replies.message().await?.unwrap_or_default();
        check_payload("an answer", &reply.payload, &payload(seed, len))?;
    }
    drop(sender);
    end(&mut replies).await
}

pub(super) async fn empty_streams_end_at_once(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    end(&mut stub.download(wanted(&[])).await?.into_inner()).await?;
    end(&mut stub.chat(stream::empty()).await?.into_inner()).await?;
    let reply = stub.upload(stream::empty()).await?.into_inner();
    check_eq("what the server read", &reply, &Digest::default().into_reply())
}

pub(super) async fn a_stream_may_fail_after_its_messages(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let code = Code::DataLoss as i32;
    let failure = FailRequest { code, message: "half of it".into(), ..Default::default() };
    let request = DownloadRequest { failure: Some(failure), ..wanted(&MIXED_LENS) };
    let mut replies = stub.download(request).await?.into_inner();
    read(&mut replies, &MIXED_LENS).await?;
    let status = refused("the end of the stream", replies.message().await)?;
    check_eq("the status", &(status.code(), status.message()), &(Code::DataLoss, "half of it"))?;
    // Once and not again.
    end(&mut replies).await
}

pub(super) async fn metadata_precedes_a_stream(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let mut request = Request::new(wanted(&[3]));
    request.metadata_mut().insert("x-stream", farcall::metadata::MetadataValue::from_static("yes"));
    let response = stub.download(request).await?;
    let found = response.metadata().get("x-stream").map(|value| value.as_bytes().to_vec());
    check_eq("the metadata", &found, &Some(b"yes".to_vec()))?;
    let mut replies = response.into_inner();
    read(&mut replies, &[3]).await?;
    end(&mut replies).await?;
    let trailers = replies.trailers().await?;
    check(trailers.is_some(), "the trailers", &trailers)
}

/// The request is itself so long then that its messages may overtake it.
pub(super) async fn a_request_stream_behind_long_metadata_arrives_whole(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let lens = [3, 40, 0];
    let messages = (1..).zip(lens).map(|(seed, len)| message(seed, len));
    let mut request = Request::new(stream::iter(messages));
    let long = MetadataEntry { key: "x-long".into(), value: vec![b'm'; 12_000].into() };
    *request.metadata_mut() = metadata(&[long])?;
    let response = stub.chat(request).await?;
    let mut replies = response.into_inner();
    read(&mut replies, &lens).await?;
    end(&mut replies).await
}

pub(super) async fn dropping_a_response_stream_drops_the_servers(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let request = DownloadRequest { park: Some(7), ..wanted(&[10, 10]) };
    let mut replies = stub.download(request).await?.into_inner();
    read(&mut replies, &[10, 10]).await?;
    check_eq("the stream", &server.event().await?, &WatchEvent::Entered(7))?;
    drop(replies);
    check_eq("the stream", &server.event().await?, &WatchEvent::Dropped(7))?;
    echo(&stub, 1, 100).await
}

/// A long stream needs no client object after its call.
pub(super) async fn a_stream_outlives_its_client(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let (sender, requests) = mpsc::channel(1);
    let mut chat = stub.chat(ReceiverStream::new(requests)).await?.into_inner();
    let mut download = stub.download(wanted(&MIXED_LENS)).await?.into_inner();
    drop(stub);
    read(&mut download, &MIXED_LENS).await?;
    end(&mut download).await?;
    for (seed, len) in (1..).zip(MIXED_LENS) {
        let sent = sender.send(message(seed, len)).await;
        check(sent.is_ok(), "the request stream", "closed")?;
        let reply = chat.message().await?.unwrap_or_default();
        check_payload("an answer", &reply.payload, &payload(seed, len))?;
    }
    drop(sender);
    end(&mut chat).await?;
    drop((chat, download));
    let Served::Farcall(server, _) = server else { return Ok(()) };
    server.until("the connection's end", |server| server.connections().is_empty()).await
}

pub(super) async fn a_deadline_ends_a_stream_on_both_sides(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let mut request = Request::new(DownloadRequest { park: Some(8), ..wanted(&[10]) });
    request.set_timeout(SOON);
    let mut replies = stub.download(request).await?.into_inner();
    read(&mut replies, &[10]).await?;
    check_eq("the stream", &server.event().await?, &WatchEvent::Entered(8))?;
    if !server.stack().bounds_streams() {
        // Its timers stop when the stream begins: nothing ends that any more.
        let message = tokio::time::timeout(2 * SOON, replies.message()).await;
        return check(message.is_err(), "the end of the stream", message);
    }
    let status = refused("the stream", replies.message().await)?;
    check_eq("the code", &status.code(), &Code::DeadlineExceeded)?;
    check_eq("the stream", &server.event().await?, &WatchEvent::Dropped(8))
}

pub(super) async fn a_reader_that_stops_holds_back_its_own_stream_only(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let lens = [1000; 100];
    let request = DownloadRequest { rounds: 100, ..wanted(&lens) };
    let mut unread = stub.download(request).await?.into_inner();
    read(&mut unread, &lens).await?;
    for (round, len) in (0..).zip((1..150_000).step_by(3000)) {
        echo(&stub, round, len).await?;
    }
    neighbours(&stub).await?;
    for _ in 1..100 {
        read(&mut unread, &lens).await?;
    }
    end(&mut unread).await
}

/// Other streams on the same connection.
async fn neighbours(stub: &EitherProbe) -> Result<(), Failure> {
    let mut replies = stub.download(wanted(&MIXED_LENS)).await?.into_inner();
    read(&mut replies, &MIXED_LENS).await?;
    end(&mut replies).await
}

pub(super) async fn a_message_over_the_limit_ends_its_stream(
    harness: &Harness,
) -> Result<(), Failure> {
    const LEN_OVER: usize = 5 << 20;
    let server = harness.serve_under(Limits::default()).await?;
    let stub = ProbeStub::new(server.channel_under(Limits::default()).await?);
    let messages = [message(1, 10), message(2, LEN_OVER), message(3, 10)];
    let status = refused("the upload", stub.upload(stream::iter(messages)).await)?;
    check_over(&status, "server's")?;
    let mut replies = stub.download(wanted(&[10, LEN_OVER])).await?.into_inner();
    read(&mut replies, &[10]).await?;
    check_over(&refused("the download", replies.message().await)?, "client's")?;
    echo(&stub, 1, 100).await
}

/// Short messages share frames, which are longer than a message of theirs may be: each of them is
/// held to the limit all the same, wherever it stands.
pub(super) async fn each_message_of_a_stream_is_held_to_the_limit(
    harness: &Harness,
) -> Result<(), Failure> {
    for max in [1_024, 20_000, 33_000] {
        let limits = Limits::default().with_max_message_len(max as u64);
        // What a payload of that length is encoded to is longer by its key and its length.
        let (fits, over) = (max - 10, max + 1);
        let server = harness.serve_under(limits).await?;
        let stub = ProbeStub::new(server.channel().await?);
        let sent =
            |lens: [usize; 3]| stream::iter((1..).zip(lens).map(|(seed, len)| message(seed, len)));
        stub.upload(sent([10, fits, fits])).await?;
        for lens in [[over, 10, 10], [10, over, over], [10, 10, over]] {
            let status = refused("the upload", stub.upload(sent(lens)).await)?;
            check_over(&status, "server's")?;
        }
        let server = harness.serve().await?;
        let stub = ProbeStub::new(server.channel_under(limits).await?);
        let mut replies = stub.download(wanted(&[10, fits, fits])).await?.into_inner();
        read(&mut replies, &[10, fits, fits]).await?;
        let mut replies = stub.download(wanted(&[10, 10, over])).await?.into_inner();
        read(&mut replies, &[10, 10]).await?;
        check_over(&refused("the download", replies.message().await)?, "client's")?;
    }
    Ok(())
}

/// A limit of one byte takes empty messages, and none of several bytes among them.
pub(super) async fn a_limit_of_one_byte_takes_empty_messages(
    harness: &Harness,
) -> Result<(), Failure> {
    let limits = Limits::default().with_max_message_len(1);
    let server = harness.serve_under(limits).await?;
    let stub = ProbeStub::new(server.channel().await?);
    stub.upload(stream::iter(vec![EchoRequest::default(); 3])).await?;
    let messages = [EchoRequest::default(), message(1, 10), EchoRequest::default()];
    check_over(&refused("the upload", stub.upload(stream::iter(messages)).await)?, "server's")
}

fn check_over(status: &Status, whose: &str) -> Result<(), Failure> {
    check_eq("the code", &status.code(), &Code::ResourceExhausted)?;
    let text = status.message();
    let names = text.contains("limits.max_message_len") && text.contains(whose);
    check(names, "the limit's name in", text)
}
