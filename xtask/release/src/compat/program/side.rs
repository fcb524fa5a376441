//! One version's server and client, for a program that links two versions.
//!
//! `cargo xtask compat` builds this file once against each version. Only types of the standard
//! library and of tokio cross its interface, since every other type exists twice. A version is
//! built with its own copy of this file, so the interface must stay what it is: `serve`, `Running`
//! and `check`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use farcall::metadata::{MetadataMap, MetadataValue};
use farcall::sim::SimNetwork;
use farcall::{
    Channel, Code, Deadline, Rdma, RdmaConfig, Request, Response, Server, Status, Streaming,
};
use proto::Line;
use proto::talk_rpc::{TalkService, TalkStub};
use proto::talk_server::Talk;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_stream::{Stream, StreamExt as _};

mod proto {
    farcall::include_proto!("talk");
}

/// Bound on one check. The slowest waits for a simulated RDMA path to fail.
const LIMIT: Duration = Duration::from_secs(30);

/// Length of a message that travels in chunks over TCP and is read by the peer over RDMA.
const LONG_LEN: usize = 1 << 20;

const DETAILS: &[u8] = b"\x08\x09details";

/// A server of this version, and what its client may do to it.
#[derive(Debug)]
pub struct Running {
    /// Address with the port that it listens on.
    pub address: String,
    /// Notified to drain the server.
    pub drain: Arc<Notify>,
    /// Notified to end the calls that wait for it.
    pub gate: Arc<Notify>,
    /// Calls that wait in the server's handlers.
    pub waiting: Arc<AtomicUsize>,
    /// Ends with the server.
    pub serving: JoinHandle<()>,
}

/// The result of one check: its name, and the reason where it has failed.
pub type Checked = (&'static str, Result<(), String>);

/// Serves at an address of this version.
///
/// # Errors
///
/// Returns the reason if the address cannot be listened on.
pub async fn serve(address: &str) -> Result<Running, String> {
    let talker = Talker::default();
    let (gate, waiting) = (talker.gate.clone(), talker.waiting.clone());
    let server = Server::builder()
        .rdma(&rdma(address))
        .drain_timeout(LIMIT)
        .add_service(TalkService::new(talker));
    let listener = server.bind(address).await.map_err(|error| error.to_string())?;
    let address = listener.local_address().to_string();
    let drain = Arc::new(Notify::new());
    let wanted = drain.clone();
    let serving = listener.serve().with_graceful_shutdown(async move { wanted.notified().await });
    let serving = tokio::spawn(async move {
        if let Err(error) = serving.await {
            eprintln!("the server has failed: {error}");
        }
    });
    Ok(Running { address, drain, gate, waiting, serving })
}

/// Devices for an address. `auto://` has a simulated device on a network of its own, so that an
/// upgrade is agreed on and then found not to work.
fn rdma(address: &str) -> Rdma {
    let config = RdmaConfig::default();
    if address.starts_with("rdma://") {
        // The checks look at the bytes themselves, on whatever kernel they run.
        return Rdma::new(config.with_allow_untrusted_reads(true));
    }
    let network = SimNetwork::new(1);
    if address.starts_with("auto://") {
        network.add_device("sim0", &[std::net::Ipv4Addr::LOCALHOST.into()]);
    }
    Rdma::simulated(&network, config)
}

/// The handlers of the server.
#[derive(Debug, Default)]
struct Talker {
    gate: Arc<Notify>,
    waiting: Arc<AtomicUsize>,
}

/// Counts a call as waiting until it is dropped.
struct Waits(Arc<AtomicUsize>);

impl Waits {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

type Lines = Pin<Box<dyn Stream<Item = Result<Line, Status>> + Send>>;

fn line(text: impl Into<String>) -> Line {
    Line { text: text.into() }
}

fn marks() -> MetadataMap {
    let mut metadata = MetadataMap::new();
    metadata.insert("x-mark", MetadataValue::from_static("a mark"));
    metadata.insert_bin("x-mark-bin", MetadataValue::from_bytes(&[0, 1, 254, 255]));
    metadata
}

/// Returns true if both entries of `marks` are there.
fn has_marks(metadata: &MetadataMap) -> bool {
    let expected = marks();
    metadata.get("x-mark") == expected.get("x-mark")
        && metadata.get_bin("x-mark-bin") == expected.get_bin("x-mark-bin")
}

#[farcall::async_trait]
impl Talk for Talker {
    async fn ask(&self, request: Request<Line>) -> Result<Response<Line>, Status> {
        let is_marked = has_marks(request.metadata());
        let Line { text } = request.into_inner();
        let answer = match text.as_str() {
            "fail" => {
                let details = DETAILS.to_vec().into();
                let code = Code::FailedPrecondition;
                return Err(Status::with_details_and_metadata(code, "no line", details, marks()));
            }
            "gate" => {
                let _waits = Waits::new(&self.waiting);
                self.gate.notified().await;
                text
            }
            "deadline" => Deadline::current().is_some().to_string(),
            "marks" => is_marked.to_string(),
            _ => text,
        };
        let mut response = Response::new(line(answer));
        if is_marked {
            *response.metadata_mut() = marks();
        }
        Ok(response)
    }

    type ListenStream = Lines;

    async fn listen(&self, request: Request<Line>) -> Result<Response<Lines>, Status> {
        let Line { text } = request.into_inner();
        let pieces: Vec<_> = text.split(' ').map(|word| Ok(line(word))).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(pieces))))
    }

    async fn tell(&self, request: Request<Streaming<Line>>) -> Result<Response<Line>, Status> {
        let mut lines = request.into_inner();
        let mut wanted = Vec::new();
        while let Some(Line { text }) = lines.message().await? {
            wanted.push(text);
        }
        Ok(Response::new(line(wanted.join(" "))))
    }

    type ChatStream = Lines;

    async fn chat(&self, request: Request<Streaming<Line>>) -> Result<Response<Lines>, Status> {
        let answers = request.into_inner().map(|line| line.map(|Line { text }| self::line(text)));
        Ok(Response::new(Box::pin(answers)))
    }
}

/// Makes calls of every kind with this version's client, and then drains the server.
pub async fn check(
    address: &str,
    drain: &Notify,
    gate: &Notify,
    waiting: &AtomicUsize,
) -> Vec<Checked> {
    let channel = match Channel::builder(address) {
        Ok(builder) => builder.rdma(&rdma(address)).connect_lazy(),
        Err(error) => return vec![("address", Err(error.to_string()))],
    };
    let talk = TalkStub::new(channel.clone());
    let mut checks = vec![
        ("unary, 64 B", bounded(ask(&talk, "a".repeat(64))).await),
        ("path", expect(path(&channel), &path_of(address).to_owned())),
        ("unary, 1 MiB", bounded(ask(&talk, "b".repeat(LONG_LEN))).await),
        ("server stream", bounded(listen(&talk)).await),
        ("client stream", bounded(tell(&talk)).await),
        ("bidirectional", bounded(chat(&talk)).await),
        ("metadata", bounded(metadata(&talk)).await),
        ("status", bounded(status(&talk)).await),
        ("deadline", bounded(deadline(&talk, waiting)).await),
        ("cancellation", bounded(cancel(&talk, waiting)).await),
    ];
    checks.push(("drain", bounded(drained(&talk, drain, gate, waiting)).await));
    checks
}

fn path(channel: &Channel) -> String {
    let path = channel.path();
    let transport = path.transport().unwrap_or("none");
    match path.reason() {
        Some(reason) if reason.contains("rdma") => format!("{transport} in the place of rdma"),
        _ => transport.to_owned(),
    }
}

/// The path that an address leads to.
fn path_of(address: &str) -> &str {
    match address.split("://").next() {
        Some("auto") => "tcp in the place of rdma",
        scheme => scheme.unwrap_or_default(),
    }
}

async fn bounded(check: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let checked = timeout(LIMIT, check).await;
    checked.unwrap_or_else(|_| Err(format!("it did not end within {LIMIT:?}")))
}

fn said(status: Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

fn expect<T: PartialEq + std::fmt::Debug>(found: T, expected: &T) -> Result<(), String> {
    if found == *expected {
        return Ok(());
    }
    let mut reason = format!("{found:?} and not {expected:?}");
    reason.truncate(300);
    Err(reason)
}

async fn ask(talk: &TalkStub, text: String) -> Result<(), String> {
    let answer = talk.ask(line(text.clone())).await.map_err(said)?;
    expect(answer.into_inner().text, &text)
}

async fn listen(talk: &TalkStub) -> Result<(), String> {
    let request = line(vec!["word"; 1000].join(" "));
    let mut lines = talk.listen(request).await.map_err(said)?.into_inner();
    let mut count = 0;
    while let Some(Line { text }) = lines.message().await.map_err(said)? {
        expect(text.as_str(), &"word")?;
        count += 1;
    }
    expect(count, &1000)
}

async fn tell(talk: &TalkStub) -> Result<(), String> {
    let message = vec!["word"; 1000];
    let lines = tokio_stream::iter(message.clone()).map(line);
    let answer = talk.tell(lines).await.map_err(said)?.into_inner();
    expect(answer.text, &message.join(" "))
}

async fn chat(talk: &TalkStub) -> Result<(), String> {
    let (lines, requests) = tokio::sync::mpsc::channel(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut answers = talk.chat(requests).await.map_err(said)?.into_inner();
    for count in 0..100 {
        let text = count.to_string();
        lines.send(line(text.clone())).await.map_err(|error| error.to_string())?;
        let answer = answers.message().await.map_err(said)?;
        expect(answer, &Some(line(text)))?;
    }
    drop(lines);
    expect(answers.message().await.map_err(said)?, &None)
}

async fn metadata(talk: &TalkStub) -> Result<(), String> {
    let mut request = Request::new(line("marks"));
    *request.metadata_mut() = marks();
    let answer = talk.ask(request).await.map_err(said)?;
    expect(has_marks(answer.metadata()), &true)?;
    expect(answer.into_inner().text.as_str(), &"true")
}

async fn status(talk: &TalkStub) -> Result<(), String> {
    let Err(status) = talk.ask(line("fail")).await else {
        return Err("the call has not failed".into());
    };
    expect((status.code(), status.message()), &(Code::FailedPrecondition, "no line"))?;
    expect(status.details(), &DETAILS)?;
    expect(has_marks(status.metadata()), &true)
}

/// Waits until so many calls wait in the server.
async fn until(waiting: &AtomicUsize, count: usize) {
    while waiting.load(Ordering::SeqCst) != count {
        sleep(Duration::from_millis(5)).await;
    }
}

async fn deadline(talk: &TalkStub, waiting: &AtomicUsize) -> Result<(), String> {
    let within = |text, limit| {
        let mut request = Request::new(line(text));
        request.set_timeout(limit);
        request
    };
    let answer = talk.ask(within("deadline", LIMIT)).await.map_err(said)?;
    expect(answer.into_inner().text.as_str(), &"true")?;
    let failed = talk.ask(within("gate", Duration::from_millis(300))).await;
    expect(failed.err().map(|status| status.code()), &Some(Code::DeadlineExceeded))?;
    until(waiting, 0).await;
    Ok(())
}

async fn cancel(talk: &TalkStub, waiting: &AtomicUsize) -> Result<(), String> {
    tokio::select! {
        answer = talk.ask(line("gate")) => Err(format!("it is answered: {answer:?}")),
        () = until(waiting, 1) => Ok(()),
    }?;
    until(waiting, 0).await;
    ask(talk, "still here".into()).await
}

async fn drained(
    talk: &TalkStub,
    drain: &Notify,
    gate: &Notify,
    waiting: &AtomicUsize,
) -> Result<(), String> {
    let in_flight = talk.ask(line("gate"));
    let others = async {
        until(waiting, 1).await;
        drain.notify_one();
        let refused = loop {
            match talk.ask(line("too late")).await {
                Ok(_) => sleep(Duration::from_millis(5)).await,
                Err(status) => break status.code(),
            }
        };
        gate.notify_one();
        refused
    };
    let (answer, refused) = tokio::join!(in_flight, others);
    expect(answer.map_err(said)?.into_inner().text.as_str(), &"gate")?;
    expect(refused, &Code::Unavailable)
}
