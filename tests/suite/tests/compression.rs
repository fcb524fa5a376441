//! Compressed messages: who agrees on them, what they save, and what bounds them.

use std::time::Duration;

use farcall::{
    Channel, Code, Compression, ConnectionInfo, Limits, MethodCompression, Server, Status,
};
use farcall_suite::OneServer as _;
use farcall_suite::Probe;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::proto::{EchoReply, EchoRequest};
use farcall_suite::raw_peer::{RawPeer, hello_with, record};
use futures::stream;
use prost::Message;
use rpc_core::wire::outcome::Outcome;
use rpc_core::wire::{FrameHeader, FrameKind};
use tokio_util::task::AbortOnDropHandle;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// No wait of these tests is longer.
const LIMIT: Duration = Duration::from_secs(30);

/// A message that comes whole.
const WHOLE: u8 = 1;

/// Small enough to be reached, large enough for the other tests.
const MAX_MESSAGE_LEN: u64 = 1 << 20;

/// A record as a service of records has it.
fn text(len: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(len + 100);
    for number in 0.. {
        if text.len() >= len {
            break;
        }
        let record = format!(
            "{{\"id\": {number}, \"name\": \"item {}\", \"count\": {}}},\n",
            number * 7,
            number % 13
        );
        text.extend_from_slice(record.as_bytes());
    }
    text.truncate(len);
    text
}

/// Bytes that no compressor makes shorter.
fn noise(len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(3);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

fn request(payload: Vec<u8>) -> EchoRequest {
    EchoRequest { payload: payload.into(), ..EchoRequest::default() }
}

struct Serving {
    server: Server,
    address: String,
    _task: AbortOnDropHandle<()>,
}

impl Serving {
    async fn at(address: &str, compression: Compression) -> Result<Self, Failure> {
        Self::with(address, compression, |probe| probe).await
    }

    async fn with(
        address: &str,
        compression: Compression,
        service: impl FnOnce(ProbeService<Probe>) -> ProbeService<Probe>,
    ) -> Result<Self, Failure> {
        let service = service(ProbeService::new(Probe::new().0));
        let limits = Limits::default().with_max_message_len(MAX_MESSAGE_LEN);
        let builder = Server::builder().add_service(service).limits(limits);
        let listener = builder.compression(compression).bind(address).await?;
        let (server, address) = (listener.server().clone(), listener.local_address().to_string());
        let task = tokio::spawn(async move { drop(listener.serve().await) });
        Ok(Self { server, address, _task: AbortOnDropHandle::new(task) })
    }

    async fn channel(&self, compression: Compression) -> Result<Channel, Failure> {
        let limits = Limits::default().with_max_message_len(MAX_MESSAGE_LEN);
        let builder = Channel::builder(&self.address)?.limits(limits).compression(compression);
        Ok(builder.connect().await?)
    }
}

fn info(channel: &Channel) -> ConnectionInfo {
    channel.info().expect("it is connected")
}

/// Returns the bytes that a call of `echo` sends and receives.
async fn bytes_of(channel: &Channel, payload: &[u8]) -> Result<(u64, u64), Failure> {
    let before = info(channel).stats;
    let reply = ProbeStub::new(channel.clone()).echo(request(payload.to_vec())).await?.into_inner();
    assert_eq!(reply.payload, payload);
    let after = info(channel).stats;
    Ok((after.sent_bytes - before.sent_bytes, after.received_bytes - before.received_bytes))
}

#[tokio::test]
async fn each_direction_is_compressed_where_its_receiver_says_so() -> Result<(), Failure> {
    let sides = [
        Compression::OFF,
        Compression::ACCEPT,
        Compression::OFF.with_min_len(1024),
        Compression::ON,
    ];
    let text = text(64 << 10);
    for on_server in sides {
        let serving = Serving::at("tcp://127.0.0.1:0", on_server).await?;
        for on_client in sides {
            let channel = serving.channel(on_client).await?;
            let (sent, received) = bytes_of(&channel, &text).await?;
            let is_sent_short = on_client.min_len != u32::MAX && on_server.accept;
            let is_received_short = on_server.min_len != u32::MAX && on_client.accept;
            assert_eq!(
                sent < 16 << 10,
                is_sent_short,
                "{sent} bytes, {on_client:?} to {on_server:?}"
            );
            assert_eq!(received < 16 << 10, is_received_short, "{received} bytes, {on_client:?}");
            let info = info(&channel);
            assert_eq!(info.accepts_compressed, on_client.accept);
            assert_eq!(info.sends_compressed, on_server.accept);
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_is_short_or_does_not_become_shorter_goes_as_it_is() -> Result<(), Failure> {
    let serving = Serving::at("tcp://127.0.0.1:0", Compression::ON).await?;
    let plain = Serving::at("tcp://127.0.0.1:0", Compression::OFF).await?;
    let (channel, other) =
        (serving.channel(Compression::ON).await?, plain.channel(Compression::OFF).await?);
    for payload in [text(900), noise(900), noise(200_000)] {
        assert_eq!(bytes_of(&channel, &payload).await?, bytes_of(&other, &payload).await?);
    }
    Ok(())
}

#[tokio::test]
async fn a_stub_and_a_service_have_their_own_length() -> Result<(), Failure> {
    let text = text(10_000);
    let serving =
        Serving::with("tcp://127.0.0.1:0", Compression::ON, |it| it.compress_from(usize::MAX))
            .await?;
    let channel = serving.channel(Compression::ON).await?;
    let (sent, received) = bytes_of(&channel, &text).await?;
    assert!(sent < 5000 && received > 10_000, "{sent} and {received}");
    let before = info(&channel).stats.sent_bytes;
    let stub = ProbeStub::new(channel.clone()).compress_from(20_000);
    stub.echo(request(text.clone())).await?;
    assert!(info(&channel).stats.sent_bytes - before > 10_000);
    let accepting =
        Serving::with("tcp://127.0.0.1:0", Compression::ACCEPT, |it| it.compress_from(1000))
            .await?;
    let channel = accepting.channel(Compression::ACCEPT).await?;
    let (sent, received) = bytes_of(&channel, &text).await?;
    assert!(sent > 10_000 && received < 5000, "{sent} and {received}");
    Ok(())
}

/// The names are of methods, and a stream's messages count as those of unary calls.
#[tokio::test]
async fn a_server_has_lengths_by_method_and_by_service() -> Result<(), Failure> {
    let text = text(10_000);
    let builder = |compression| {
        let service = ProbeService::new(Probe::new().0);
        Server::builder().add_service(service).compression(compression)
    };
    let (service_name, path) = ("farcall.suite.Probe", "/farcall.suite.Probe/Echo");
    let none = MethodCompression::default();
    for (compression, by_method, is_echo_short, is_chat_short) in [
        (Compression::ACCEPT, none.clone().with_len(path, 1000), true, false),
        (Compression::ON, none.clone().with_len(path, 20_000), false, true),
        (Compression::ON, none.clone().with_len(service_name, u32::MAX), false, false),
        (
            Compression::ACCEPT,
            none.with_len(service_name, 1000).with_len(path, u32::MAX),
            false,
            true,
        ),
    ] {
        let server = builder(compression).method_compression(by_method.clone());
        // Under a layer the response is sent by another part of the server.
        for server in [server, builder(compression).method_compression(by_method).layer(Plain)] {
            let listener = server.bind("tcp://127.0.0.1:0").await?;
            let address = listener.local_address().to_string();
            let _task = AbortOnDropHandle::new(tokio::spawn(listener.serve()));
            let builder = Channel::builder(&address)?.compression(Compression::ACCEPT);
            let channel = builder.connect().await?;
            let (_, received) = bytes_of(&channel, &text).await?;
            assert_eq!(received < 5000, is_echo_short, "{received} bytes");
            let before = info(&channel).stats.received_bytes;
            let requests = stream::iter([request(text.clone())]);
            let mut replies = ProbeStub::new(channel.clone()).chat(requests).await?.into_inner();
            assert_eq!(replies.message().await?.expect("one").payload, text);
            assert!(replies.message().await?.is_none());
            let received = info(&channel).stats.received_bytes - before;
            assert_eq!(received < 5000, is_chat_short, "{received} bytes");
        }
    }
    // Where the client accepts nothing, nothing is.
    let server = builder(Compression::ON);
    let by_method = MethodCompression::default().with_len(path, 1);
    let listener = server.method_compression(by_method).bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().to_string();
    let _task = AbortOnDropHandle::new(tokio::spawn(listener.serve()));
    assert!(bytes_of(&Channel::connect(&address).await?, &text).await?.1 > 10_000);
    Ok(())
}

/// A layer that does nothing.
#[derive(Clone)]
struct Plain;

impl<S> tower::Layer<S> for Plain {
    type Service = S;

    fn layer(&self, inner: S) -> S {
        inner
    }
}

#[tokio::test]
async fn nothing_is_compressed_where_bytes_do_not_leave_the_host() -> Result<(), Failure> {
    let name = format!(
        "unix://{}",
        std::env::temp_dir().join(format!("farcall-zip-{}", std::process::id())).display()
    );
    for address in [name.as_str(), "inproc://compression"] {
        let serving = Serving::at(address, Compression::ON.with_min_len(1)).await?;
        let channel = serving.channel(Compression::ON.with_min_len(1)).await?;
        ProbeStub::new(channel.clone()).echo(request(text(10_000))).await?;
        let info = info(&channel);
        assert!(!info.accepts_compressed && !info.sends_compressed, "{address}: {info:?}");
        for info in serving.server.connections() {
            assert!(!info.accepts_compressed && !info.sends_compressed, "{info:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn nothing_is_compressed_over_rdma() -> Result<(), Failure> {
    let network = farcall::sim::SimNetwork::new(1);
    network.add_device("sim0", &[std::net::Ipv4Addr::LOCALHOST.into()]);
    let config = farcall::RdmaConfig::default().with_allow_untrusted_reads(true);
    let [ours, theirs] = [config.clone(), config].map(|it| farcall::Rdma::simulated(&network, it));
    let on = Compression::ON.with_min_len(1);
    let builder = Server::builder().compression(on).rdma(&theirs);
    let builder = builder.add_service(ProbeService::new(Probe::new().0));
    let listener = builder.bind("rdma://127.0.0.1:0").await?;
    let address = listener.local_address().to_string();
    let _task = AbortOnDropHandle::new(tokio::spawn(listener.serve()));
    let channel = Channel::builder(&address)?.compression(on).rdma(&ours).connect().await?;
    let stub = ProbeStub::new(channel.clone()).compress_from(1);
    // A small message in a SEND, and a large one that is read.
    for len in [1000, 500_000] {
        let text = text(len);
        let reply = stub.echo(request(text.clone())).await?.into_inner();
        assert_eq!(reply.payload, text);
    }
    let info = info(&channel);
    assert!(info.is_upgraded && !info.sends_compressed && !info.accepts_compressed);
    Ok(())
}

/// Prints the figures of the documentation. The bytes are the same on every machine.
#[tokio::test]
async fn ratios_of_texts_and_of_noise() -> Result<(), Failure> {
    let serving = Serving::at("tcp://127.0.0.1:0", Compression::ON).await?;
    let (with, without) =
        (serving.channel(Compression::ON).await?, serving.channel(Compression::OFF).await?);
    println!("| message | without | with | part |\n|---|--:|--:|--:|");
    for (what, payload) in [
        ("1 KiB of JSON", text(1 << 10)),
        ("4 KiB of JSON", text(4 << 10)),
        ("64 KiB of JSON", text(64 << 10)),
        ("1 MB of JSON", text(1_000_000)),
        ("64 KiB of noise", noise(64 << 10)),
    ] {
        let long = bytes_of(&without, &payload).await?;
        let short = bytes_of(&with, &payload).await?;
        let (long, short) = (long.0 + long.1, short.0 + short.1);
        println!("| {what} | {long} | {short} | {} % |", 100 * short / long);
        assert!(short <= long);
    }
    Ok(())
}

#[tokio::test]
async fn streams_are_compressed_message_by_message() -> Result<(), Failure> {
    let serving = Serving::at("tcp://127.0.0.1:0", Compression::ON).await?;
    let channel = serving.channel(Compression::ON).await?;
    let before = info(&channel).stats;
    // Some are compressed and some are not, some share a frame and some do not fit the window.
    let lens = [10, 2000, 30, 40, 500_000, 1023, 1024, 300_000, 0, 5000];
    let payloads: Vec<_> = lens.iter().map(|len| text(*len)).collect();
    let requests: Vec<_> = payloads.iter().map(|payload| request(payload.clone())).collect();
    let mut replies =
        ProbeStub::new(channel.clone()).chat(stream::iter(requests)).await?.into_inner();
    for payload in &payloads {
        let EchoReply { payload: reply, .. } = replies.message().await?.expect("one more");
        assert_eq!(reply, payload);
    }
    assert!(replies.message().await?.is_none());
    let after = info(&channel).stats;
    let moved =
        (after.sent_bytes - before.sent_bytes, after.received_bytes - before.received_bytes);
    assert!(
        moved.0 < 250_000 && moved.1 < 250_000,
        "{moved:?} of {} bytes",
        lens.iter().sum::<usize>()
    );
    Ok(())
}

/// A message in the compressed form, which says that it inflates to `len` bytes.
fn deflated(message: &[u8], len: u64) -> Vec<u8> {
    let mut encoder =
        flate2::write::ZlibEncoder::new(len.to_le_bytes().to_vec(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, message).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

/// A client that writes frames by hand.
struct Raw {
    peer: RawPeer,
    method: u16,
}

impl Raw {
    async fn connect(serving: &Serving, name: &str) -> Result<Self, Failure> {
        let mut peer = RawPeer::connect(&serving.address).await?;
        peer.send(&hello_with(&Limits::default(), Vec::new())).await?;
        let hello = peer.read_hello().await?;
        let is_named = |path: &String| path.ends_with(&format!("/{name}"));
        let method = hello.methods.iter().position(is_named).ok_or("the method")?;
        Ok(Self { peer, method: u16::try_from(method)? })
    }

    /// Sends a compressed request, and gives what answers it.
    async fn call(&mut self, message: &[u8]) -> Result<Status, Failure> {
        let mut header = FrameHeader::bare(FrameKind::Request, 1);
        (header.is_deflated, header.selector) = (true, self.method);
        header.message_len = message.len() as u64;
        let frame = [&header.to_bytes()[..], message].concat();
        self.peer.send(&record(WHOLE, 0, &frame)).await?;
        let answer = tokio::time::timeout(LIMIT, self.peer.read_frame()).await??;
        let block = answer.body.slice(..answer.header.metadata_len as usize);
        let outcome = Outcome::decode(answer.header.selector, block)?;
        Ok(outcome.result.err().unwrap_or_else(|| Status::ok("")))
    }
}

#[tokio::test]
async fn a_message_grows_to_the_limit_and_not_beyond_it() -> Result<(), Failure> {
    let serving = Serving::with("tcp://127.0.0.1:0", Compression::ACCEPT, |it| {
        it.max_decoding_message_len(100_000)
    });
    let serving = serving.await?;
    let message = request(text(50_000)).encode_to_vec();
    let len = message.len() as u64;
    let good = deflated(&message, len);
    let zeros = vec![0; 2 << 20];
    let table = [
        (good.clone(), Code::Ok, ""),
        (
            deflated(&zeros, zeros.len() as u64),
            Code::ResourceExhausted,
            "inflates to 2097152 bytes, over the server's limit of 1048576 (limits.max_message",
        ),
        (
            deflated(&zeros[..200_000], 200_000),
            Code::ResourceExhausted,
            "over the service's limit of 100000",
        ),
        (deflated(&zeros, 1000), Code::Internal, "it inflates beyond its announced length"),
        (
            deflated(&message, len + 1),
            Code::Internal,
            "it inflates to less than its announced \
                                                       length",
        ),
        (good[..good.len() - 3].to_vec(), Code::Internal, "it is cut short"),
        ([&good[..], b"more"].concat(), Code::Internal, "data follows its end"),
        (
            deflated(&[], u64::MAX),
            Code::ResourceExhausted,
            "Probe/Echo inflates to 18446744073709551615 bytes",
        ),
        (
            [&1000_u64.to_le_bytes()[..], &noise(40)].concat(),
            Code::Internal,
            "Echo cannot be inflated",
        ),
    ];
    for (message, code, line) in table {
        let status = Raw::connect(&serving, "Echo").await?.call(&message).await?;
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(line), "{status}");
    }
    Ok(())
}

/// One connection ends, and the other does not notice.
#[tokio::test]
async fn a_frame_that_was_not_agreed_on_costs_its_connection() -> Result<(), Failure> {
    let serving = Serving::at("tcp://127.0.0.1:0", Compression::OFF).await?;
    let channel = serving.channel(Compression::ON).await?;
    ProbeStub::new(channel.clone()).echo(request(text(5000))).await?;
    let mut raw = Raw::connect(&serving, "Echo").await?;
    let message = request(text(5000)).encode_to_vec();
    let ended = raw.call(&deflated(&message, message.len() as u64)).await;
    assert!(ended.is_err(), "{ended:?}");
    ProbeStub::new(channel.clone()).echo(request(text(5000))).await?;
    assert_eq!(info(&channel).calls_in_flight, 0);
    Ok(())
}

#[tokio::test]
async fn inflated_messages_count_in_the_memory_budget() -> Result<(), Failure> {
    let limits = Limits::default().with_max_message_len(64 << 20);
    let builder = Server::builder().add_service(ProbeService::new(Probe::new().0));
    let builder = builder.limits(limits).max_memory(8 << 20).compression(Compression::ACCEPT);
    let listener = builder.bind("tcp://127.0.0.1:0").await?;
    let (server, address) = (listener.server().clone(), listener.local_address().to_string());
    let _task = AbortOnDropHandle::new(tokio::spawn(listener.serve()));
    let builder = Channel::builder(&address)?.limits(limits).compression(Compression::ON);
    let stub = ProbeStub::new(builder.connect().await?);
    let status = stub.digest(request(vec![0; 32 << 20])).await.expect_err("it is over the budget");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("server.max_memory"), "{status}");
    let requests = stream::iter([request(vec![0; 10]), request(vec![0; 32 << 20])]);
    let status = stub.upload(requests).await.expect_err("it is over the budget");
    assert!(status.message().contains("server.max_memory"), "{status}");
    // One that fits is taken, and counts no longer once it is answered.
    assert_eq!(stub.digest(request(vec![0; 2 << 20])).await?.into_inner().bytes, 2 << 20);
    tokio::time::timeout(LIMIT, async {
        while server.memory_held() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await?;
    Ok(())
}
