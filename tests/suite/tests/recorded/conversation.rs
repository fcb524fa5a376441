//! The actions of the recordings' clients, and the results that they must see.

use std::time::Duration;

use farcall::sim::SimNetwork;
use farcall::{Channel, Code, Compression, Listener, Rdma, RdmaConfig, Request, Server};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::LIMIT;
use crate::proto::Line;
use crate::proto::talk_rpc::{TalkService, TalkStub};
use crate::talk::{DETAILS, FAILURE, LONG_LEN, Talker, line, marks};

/// One connection and the calls on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversation {
    /// A call with a message and metadata each way.
    Unary,
    /// A call that fails with a message, details and metadata.
    Status,
    /// A stream of answers.
    ServerStream,
    /// A stream of requests.
    ClientStream,
    /// A stream each way, whose messages take turns.
    Bidirectional,
    /// A call with a deadline.
    Deadline,
    /// A call that its client cancels, and another one on the same connection.
    Cancel,
    /// A request and a response that travel in chunks.
    Long,
    /// A call whose messages are compressed.
    Compressed,
    /// A server that drains while a stream is open.
    GoAway,
    /// An upgrade to RDMA that the server accepts and the client finds not to work, and a call over
    /// TCP. The devices of both sides are simulated, on networks that nothing joins.
    Upgrade,
}

impl Conversation {
    /// Every conversation.
    pub(crate) const ALL: [Self; 11] = [
        Self::Unary,
        Self::Status,
        Self::ServerStream,
        Self::ClientStream,
        Self::Bidirectional,
        Self::Deadline,
        Self::Cancel,
        Self::Long,
        Self::Compressed,
        Self::GoAway,
        Self::Upgrade,
    ];

    /// The name of its recording.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::Status => "status",
            Self::ServerStream => "server-stream",
            Self::ClientStream => "client-stream",
            Self::Bidirectional => "bidirectional",
            Self::Deadline => "deadline",
            Self::Cancel => "cancel",
            Self::Long => "long",
            Self::Compressed => "compressed",
            Self::GoAway => "go-away",
            Self::Upgrade => "upgrade",
        }
    }

    fn scheme(self) -> &'static str {
        if self == Self::Upgrade { "auto" } else { "tcp" }
    }

    fn compression(self) -> Compression {
        if self == Self::Compressed { Compression::ON.with_min_len(1) } else { Compression::OFF }
    }

    /// Devices of one side, on a network of its own where the conversation needs any.
    fn rdma(self) -> Rdma {
        let network = SimNetwork::new(1);
        if self == Self::Upgrade {
            network.add_device("sim0", &["127.0.0.1".parse().expect("it is an address")]);
        }
        Rdma::simulated(&network, RdmaConfig::default())
    }

    /// Starts today's server, and returns its port. It drains when a client asks for that.
    pub(crate) async fn serve(self) -> u16 {
        let talker = Talker::default();
        let drain = talker.drain.clone();
        let server = Server::builder()
            .rdma(&self.rdma())
            .compression(self.compression())
            .drain_timeout(LIMIT)
            .add_service(TalkService::new(talker));
        let address = format!("{}://127.0.0.1:0", self.scheme());
        let listener: Listener = server.bind(&*address).await.expect("loopback has a port");
        let address = listener.local_address().to_string();
        tokio::spawn(
            listener.serve().with_graceful_shutdown(async move { drain.notified().await }),
        );
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
        port.expect("the address ends with a port")
    }

    /// Holds the conversation with the server at that port, by today's client.
    pub(crate) async fn hold(self, port: u16) {
        let address = format!("{}://127.0.0.1:{port}", self.scheme());
        let builder = Channel::builder(&*address).expect("the address is one");
        let channel = builder.rdma(&self.rdma()).compression(self.compression()).connect_lazy();
        let talk = TalkStub::new(channel.clone());
        match self {
            Self::Unary => ask_with_marks(&talk).await,
            Self::Status => ask_and_fail(&talk).await,
            Self::ServerStream => listen(&talk).await,
            Self::ClientStream => tell(&talk).await,
            Self::Bidirectional => chat(&talk, ["one", "two"]).await,
            Self::Deadline => {
                let mut request = Request::new(line("deadline"));
                request.set_timeout(Duration::from_secs(600));
                assert_eq!(talk.ask(request).await.expect("it has time").into_inner().text, "true");
            }
            Self::Cancel => {
                let parked = talk.ask(line("park"));
                let given_up = tokio::time::timeout(Duration::from_millis(300), parked).await;
                assert!(given_up.is_err(), "nothing answers a call that is parked");
                ask(&talk, "still here").await;
            }
            Self::Long => {
                ask(&talk, &"b".repeat(LONG_LEN)).await;
                let answer = talk.ask(line("long")).await.expect("it is answered").into_inner();
                assert_eq!(answer.text, "a".repeat(LONG_LEN));
            }
            Self::Compressed => ask(&talk, &"more of the same ".repeat(20)).await,
            Self::GoAway => chat(&talk, ["one", "drain"]).await,
            Self::Upgrade => {
                ask(&talk, "over tcp").await;
                let path = channel.path();
                assert_eq!(path.transport(), Some("tcp"), "{path}");
                assert!(path.reason().is_some_and(|reason| reason.contains("rdma")), "{path}");
            }
        }
    }
}

async fn ask(talk: &TalkStub, text: &str) {
    let answer = talk.ask(line(text)).await.expect("it is answered");
    assert_eq!(answer.into_inner(), line(text));
}

async fn ask_with_marks(talk: &TalkStub) {
    let mut request = Request::new(line("hello"));
    *request.metadata_mut() = marks();
    let answer = talk.ask(request).await.expect("it is answered");
    let sent = marks();
    assert_eq!(answer.metadata().get("x-mark"), sent.get("x-mark"));
    assert_eq!(answer.metadata().get_bin("x-mark-bin"), sent.get_bin("x-mark-bin"));
    assert_eq!(answer.into_inner(), line("hello"));
}

async fn ask_and_fail(talk: &TalkStub) {
    let status = talk.ask(line("fail")).await.expect_err("it fails");
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, FAILURE));
    assert_eq!(status.details(), DETAILS);
    assert_eq!(status.metadata().get_bin("x-mark-bin"), marks().get_bin("x-mark-bin"));
}

async fn listen(talk: &TalkStub) {
    let mut request = Request::new(line("one two three"));
    *request.metadata_mut() = marks();
    let answer = talk.listen(request).await.expect("the stream begins");
    assert_eq!(answer.metadata().get("x-mark"), marks().get("x-mark"));
    let mut lines = answer.into_inner();
    for word in ["one", "two", "three"] {
        assert_eq!(lines.message().await.expect("the stream goes on"), Some(line(word)));
    }
    assert_eq!(lines.message().await.expect("the stream ends in order"), None);
}

async fn tell(talk: &TalkStub) {
    let lines = tokio_stream::iter(["one", "two", "three"].map(line));
    let answer = talk.tell(lines).await.expect("it is answered");
    assert_eq!(answer.into_inner(), line("one two three"));
}

async fn chat(talk: &TalkStub, texts: [&str; 2]) {
    let (lines, stream) = mpsc::channel::<Line>(1);
    let answer = talk.chat(ReceiverStream::new(stream)).await.expect("the stream begins");
    let mut answers = answer.into_inner();
    for text in texts {
        lines.send(line(text)).await.expect("the stream is open");
        assert_eq!(answers.message().await.expect("it is answered"), Some(line(text)));
    }
    drop(lines);
    assert_eq!(answers.message().await.expect("the stream ends in order"), None);
}
