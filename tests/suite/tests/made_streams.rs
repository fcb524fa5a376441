//! Calls over byte streams that the program made, at both ends: pipes in memory.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use farcall::{Code, ServeError, Server, Status};
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::proto::{DownloadRequest, EchoRequest, ParkRequest, ProduceRequest};
use farcall_suite::{Probe, Watch, WatchEvent, payload};
use futures::stream;
use parking_lot::Mutex;
use rpc_core::Channel;
use rpc_core::Limits;
use rpc_core::client::{CallRules, ClientConfig};
use rpc_transport_tcp::{StreamConnector, StreamListener};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tokio_util::task::AbortOnDropHandle;

/// No wait of these tests is longer.
const LIMIT: Duration = Duration::from_secs(60);

/// Capacity of a pipe in each direction: less than a piece of a large frame.
const PIPE_LEN: usize = 10_000;

const LARGE: usize = 8 << 20;

fn limits() -> Limits {
    Limits::default().with_max_message_len(16 << 20)
}

/// A server at one end of pipes, and a stub at the other end of them.
struct Rig {
    stub: ProbeStub<Channel>,
    server: Server,
    watch: Watch,
    /// The pipes that lead on to the server. Aborted, a pipe breaks.
    pipes: Arc<Mutex<JoinSet<()>>>,
    _serving: AbortOnDropHandle<Result<(), ServeError>>,
}

/// Leads `one` on to `other`, so that both ends break when this stops.
async fn lead(mut one: DuplexStream, mut other: DuplexStream) {
    let _ = tokio::io::copy_bidirectional(&mut one, &mut other).await;
}

impl Rig {
    async fn start() -> Self {
        let (probe, watch) = Probe::new();
        let builder = Server::builder().limits(limits()).drain_timeout(Duration::ZERO);
        let server = builder.add_service(ProbeService::new(probe)).build();
        let (accepting, accepted) = mpsc::unbounded_channel();
        let listener = StreamListener::new(UnboundedReceiverStream::new(accepted));
        let serving = tokio::spawn(server.serve_incoming(listener));
        let pipes = Arc::new(Mutex::new(JoinSet::new()));
        let led = Arc::clone(&pipes);
        let config = ClientConfig::with_settings(|it| it.limits = limits());
        let connector = StreamConnector::new("pipe", config, move || {
            let (ours, near) = tokio::io::duplex(PIPE_LEN);
            let (far, theirs) = tokio::io::duplex(PIPE_LEN);
            led.lock().spawn(lead(near, far));
            let sent = accepting.send(Ok::<_, io::Error>(theirs));
            async { sent.map(|()| ours).map_err(|_| io::ErrorKind::ConnectionRefused.into()) }
        });
        let channel = Channel::connect(connector).await.expect("a server accepts");
        assert_eq!(channel.info().expect("a connection").transport, "stream");
        let rules = CallRules { wait_for_ready: true, ..CallRules::DEFAULT };
        let stub = ProbeStub::new(channel.with_rules(rules));
        Self { stub, server, watch, pipes, _serving: AbortOnDropHandle::new(serving) }
    }

    fn break_pipes(&self) {
        self.pipes.lock().abort_all();
    }

    async fn entered(&mut self, count: usize) {
        for _ in 0..count {
            let event = tokio::time::timeout(LIMIT, self.watch.next()).await.expect("in time");
            assert!(matches!(event, Some(WatchEvent::Entered(_))), "{event:?}");
        }
    }
}

fn request(seed: u64, len: usize) -> EchoRequest {
    EchoRequest { payload: payload(seed, len), ..Default::default() }
}

async fn echo(stub: &ProbeStub<Channel>, seed: u64, len: usize) -> Result<(), Status> {
    let answer = stub.echo(request(seed, len)).await?.into_inner();
    assert!(answer.payload == payload(seed, len), "{len} bytes come back unchanged");
    Ok(())
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("nothing hangs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_all_kinds_go_through() {
    let rig = Rig::start().await;
    let calls = async {
        echo(&rig.stub, 1, 100).await?;
        echo(&rig.stub, 2, LARGE).await?;
        let lens = [10, 3 << 20, 5, 100_000];
        let requests = (1..).zip(lens).map(|(seed, len)| request(seed, len));
        rig.stub.upload(stream::iter(requests.collect::<Vec<_>>())).await?;
        let messages = (1..).zip(lens).map(|(seed, len)| ProduceRequest { seed, len: len as u64 });
        let wanted = DownloadRequest { messages: messages.collect(), ..Default::default() };
        let mut answers = rig.stub.download(wanted).await?.into_inner();
        for (seed, len) in (1..).zip(lens) {
            let answer = answers.message().await?.unwrap();
            assert!(answer.payload == payload(seed, len));
        }
        assert_eq!(answers.message().await?, None);
        let (sender, requests) = mpsc::channel(1);
        let mut answers = rig.stub.chat(ReceiverStream::new(requests)).await?.into_inner();
        for (seed, len) in (1..).zip(lens) {
            sender.send(request(seed, len)).await.unwrap();
            let answer = answers.message().await?.unwrap();
            assert!(answer.payload == payload(seed, len));
        }
        Ok::<_, Status>(())
    };
    within(calls).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_share_a_stream() {
    let rig = Rig::start().await;
    let mut calls = JoinSet::new();
    for seed in 0..500 {
        let stub = rig.stub.clone();
        let len = if seed % 50 == 0 { 300_000 } else { 1000 };
        calls.spawn(async move { echo(&stub, seed, len).await });
    }
    within(calls.join_all()).await.into_iter().collect::<Result<(), _>>().unwrap();
    assert_eq!(rig.server.connections().len(), 1);
}

/// A client that reads none of its answers is slowed, and costs the server a window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_not_read_is_slowed_and_its_memory_bounded() {
    const COUNT: u32 = 10_000;
    let rig = Rig::start().await;
    let message = ProduceRequest { seed: 1, len: 100_000 };
    let wanted = DownloadRequest { messages: vec![message], rounds: COUNT, ..Default::default() };
    let mut answers = within(rig.stub.download(wanted)).await.unwrap().into_inner();
    within(answers.message()).await.unwrap().unwrap();
    // Other calls go on beside it, and the server has what it may have by now.
    for seed in 0..200 {
        within(echo(&rig.stub, seed, 1000)).await.unwrap();
    }
    let sent = rig.server.connections()[0].stats.sent_bytes;
    assert!(sent < 64 << 20, "{sent} bytes of a gigabyte");
    let held = rig.server.memory_held();
    assert!(held < 64 << 20, "{held} bytes of a gigabyte");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_ends_its_calls_and_the_next_has_another() {
    let mut rig = Rig::start().await;
    let mut calls = JoinSet::new();
    for tag in 0..10 {
        let stub = rig.stub.clone();
        let request = ParkRequest { tag, ..Default::default() };
        calls.spawn(async move { stub.park(request).await });
    }
    rig.entered(10).await;
    rig.break_pipes();
    for ended in within(calls.join_all()).await {
        assert_eq!(ended.unwrap_err().code(), Code::Unavailable);
    }
    within(echo(&rig.stub, 1, 100_000)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_in_a_large_message_ends_its_call() {
    let rig = Rig::start().await;
    let stub = rig.stub.clone();
    let calling = tokio::spawn(async move { echo(&stub, 1, LARGE).await });
    let is_under_way = || {
        let connections = rig.server.connections();
        connections.first().is_some_and(|connection| connection.stats.received_bytes > 1 << 20)
    };
    let begun = async {
        while !is_under_way() {
            tokio::task::yield_now().await;
        }
    };
    within(begun).await;
    rig.break_pipes();
    // It may have been answered already, on a machine that was slow to look.
    if let Err(status) = within(calling).await.unwrap() {
        assert_eq!(status.code(), Code::Unavailable);
    }
}
