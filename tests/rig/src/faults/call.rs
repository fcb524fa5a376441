//! One call of each kind, with every byte of it checked.

use std::fmt;

use bytes::Bytes;
use farcall::{Code, NotExecuted, Status};
use farcall_testkit::calls::{Difference, PayloadSource, same_bytes};
use futures::stream;

use farcall_probe::streams::Digest;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::proto::{DownloadRequest, EchoRequest, ProduceRequest, UploadReply};
use farcall_testkit::calls::payload;

/// The longest message of a stream; the usual ones are small.
const STREAMED_MAX: usize = 32 << 10;

/// A large message: dozens of packets, and a READ of its own over RDMA.
const LARGE: usize = 256 << 10;

/// A small message: in one packet, and in one receive slot over RDMA.
const SMALL_MAX: usize = 100;

/// Messages of one stream.
const MESSAGES: usize = 6;

/// The kinds of calls, and where their payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    UnarySmall,
    UnaryUp,
    UnaryDown,
    ClientStream,
    ServerStream,
    Bidi,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::UnarySmall,
        Self::UnaryUp,
        Self::UnaryDown,
        Self::ClientStream,
        Self::ServerStream,
        Self::Bidi,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::UnarySmall => "unary small",
            Self::UnaryUp => "unary large up",
            Self::UnaryDown => "unary large down",
            Self::ClientStream => "client stream",
            Self::ServerStream => "server stream",
            Self::Bidi => "bidi",
        })
    }
}

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// With the right answer.
    Answered,
    /// With an answer whose bytes are not the right ones.
    WrongBytes,
    /// With a status that says that it was not executed.
    NotExecuted(i32),
    /// With a status that leaves that open.
    Failed(i32),
    /// Not at all, within the bound on everything.
    Endless,
}

impl End {
    fn of(status: &Status) -> Self {
        let code = status.code() as i32;
        if NotExecuted::matches(status) { Self::NotExecuted(code) } else { Self::Failed(code) }
    }

    /// The status's code, if it is one.
    pub(super) fn code(self) -> Option<Code> {
        match self {
            Self::NotExecuted(code) | Self::Failed(code) => Some(Code::from_i32(code)),
            Self::Answered | Self::WrongBytes | Self::Endless => None,
        }
    }
}

/// Characters of a value that are shown.
const SHOWN_MAX: usize = 100;

/// A difference between an answer and the expected one.
struct WrongBytes(String);

/// A failure of a call.
enum Wrong {
    Status(Status),
    Bytes(String),
}

impl From<Status> for Wrong {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<WrongBytes> for Wrong {
    fn from(WrongBytes(text): WrongBytes) -> Self {
        Self::Bytes(text)
    }
}

impl From<Difference> for Wrong {
    fn from(difference: Difference) -> Self {
        Self::Bytes(difference.to_string())
    }
}

/// A caller of one kind of call.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    stub: ProbeStub,
    kind: Kind,
    payloads: PayloadSource,
}

impl Caller {
    pub(super) fn new(stub: ProbeStub, kind: Kind, seed: u64) -> Self {
        Self { stub, kind, payloads: PayloadSource::new(seed, 2 * LARGE) }
    }

    /// Makes one call; a failure comes with its words.
    pub(super) async fn call(&mut self) -> (End, Option<String>) {
        let result = match self.kind {
            Kind::UnarySmall => self.unary_small().await,
            Kind::UnaryUp => self.unary_up().await,
            Kind::UnaryDown => self.unary_down().await,
            Kind::ClientStream => self.client_stream().await,
            Kind::ServerStream => self.server_stream().await,
            Kind::Bidi => self.bidi().await,
        };
        match result {
            Ok(()) => (End::Answered, None),
            Err(Wrong::Bytes(text)) => (End::WrongBytes, Some(format!("A wrong answer: {text}"))),
            Err(Wrong::Status(status)) => {
                (End::of(&status), Some(format!("{:?}: {}", status.code(), status.message())))
            }
        }
    }

    async fn unary_small(&mut self) -> Result<(), Wrong> {
        let sent = self.message(SMALL_MAX);
        let reply = self.stub.echo(sent.clone()).await?.into_inner();
        Ok(same_bytes(&reply.payload, &sent.payload)?)
    }

    async fn unary_up(&mut self) -> Result<(), Wrong> {
        let payload = self.payloads.cut(LARGE);
        let expected = digest([&payload]);
        let request = EchoRequest { payload, ..Default::default() };
        let reply = self.stub.digest(request).await?.into_inner();
        Ok(same(&reply, &expected)?)
    }

    async fn unary_down(&mut self) -> Result<(), Wrong> {
        let seed = self.payloads.random.u64(..);
        let request = ProduceRequest { seed, len: LARGE as u64 };
        let reply = self.stub.produce(request).await?.into_inner();
        Ok(same_bytes(&reply.payload, &payload(seed, LARGE))?)
    }

    async fn client_stream(&mut self) -> Result<(), Wrong> {
        let messages = self.messages();
        let expected = digest(messages.iter().map(|message| &message.payload));
        let reply = self.stub.upload(stream::iter(messages)).await?.into_inner();
        Ok(same(&reply, &expected)?)
    }

    async fn server_stream(&mut self) -> Result<(), Wrong> {
        let mut messages = Vec::new();
        for message in self.messages() {
            let (seed, len) = (self.payloads.random.u64(..), message.payload.len() as u64);
            messages.push(ProduceRequest { seed, len });
        }
        let request = DownloadRequest { messages: messages.clone(), ..Default::default() };
        let mut replies = self.stub.download(request).await?.into_inner();
        for ProduceRequest { seed, len } in messages {
            let reply = replies.message().await?.ok_or_else(too_few)?;
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            same_bytes(&reply.payload, &payload(seed, len))?;
        }
        Ok(same(&replies.message().await?.map(|reply| reply.payload), &None)?)
    }

    async fn bidi(&mut self) -> Result<(), Wrong> {
        let messages = self.messages();
        let mut replies = self.stub.chat(stream::iter(messages.clone())).await?.into_inner();
        for message in messages {
            let reply = replies.message().await?.ok_or_else(too_few)?;
            same_bytes(&reply.payload, &message.payload)?;
        }
        Ok(same(&replies.message().await?.map(|reply| reply.payload), &None)?)
    }

    /// The messages of a stream: small ones, and one of any length.
    fn messages(&mut self) -> Vec<EchoRequest> {
        let long = self.payloads.random.usize(0..MESSAGES);
        let len_max = |index| if index == long { STREAMED_MAX } else { SMALL_MAX };
        (0..MESSAGES).map(|index| self.message(len_max(index))).collect()
    }

    fn message(&mut self, len_max: usize) -> EchoRequest {
        let len = self.payloads.random.usize(1..=len_max);
        EchoRequest { payload: self.payloads.cut(len), ..Default::default() }
    }
}

fn digest<'a>(payloads: impl IntoIterator<Item = &'a Bytes>) -> UploadReply {
    let mut digest = Digest::default();
    payloads.into_iter().for_each(|payload| digest.add(payload));
    digest.into_reply()
}

fn same<T: PartialEq + fmt::Debug>(found: &T, expected: &T) -> Result<(), WrongBytes> {
    if found == expected {
        return Ok(());
    }
    let shown = |value: &T| format!("{value:?}").chars().take(SHOWN_MAX).collect::<String>();
    Err(WrongBytes(format!("{} instead of {}", shown(found), shown(expected))))
}

fn too_few() -> WrongBytes {
    WrongBytes("the stream of answers ended early".into())
}
