//! Calls of each kind to the suite's service, with every byte of the answer checked.

use std::fmt;

use bytes::Bytes;
use farcall::{Deadline, Request, Status};
use farcall_probe::streams::Digest;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::proto::{DownloadRequest, EchoRequest, ProduceRequest, UploadReply};
use farcall_testkit::calls::{Difference, payload, same_bytes};
use futures::stream;

/// The failure of a call.
#[derive(Debug)]
pub(crate) enum CallFailure {
    /// It ended with a status.
    Status(Status),
    /// Its answer is not the right one.
    WrongAnswer(String),
}

impl From<Status> for CallFailure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Difference> for CallFailure {
    fn from(difference: Difference) -> Self {
        Self::WrongAnswer(difference.to_string())
    }
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{:?}: {}", status.code(), status.message()),
            Self::WrongAnswer(text) => write!(f, "a wrong answer: {text}"),
        }
    }
}

/// For callers that count calls by status: a wrong answer is lost data.
impl From<CallFailure> for Status {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::Status(status) => status,
            CallFailure::WrongAnswer(text) => Self::data_loss(text),
        }
    }
}

/// A caller whose calls check their answers.
#[derive(Debug, Clone)]
pub(crate) struct CheckedCalls {
    pub(crate) stub: ProbeStub,
    /// The deadline of each call, if it has one.
    pub(crate) deadline: Option<Deadline>,
}

impl CheckedCalls {
    /// Calls without a deadline.
    pub(crate) fn new(stub: ProbeStub) -> Self {
        Self { stub, deadline: None }
    }

    /// Sends a payload, which comes back.
    pub(crate) async fn echo(self, payload: Bytes) -> Result<(), CallFailure> {
        let sent = self.request(message(payload.clone()));
        let reply = self.stub.echo(sent).await?.into_inner();
        Ok(same_bytes(&reply.payload, &payload)?)
    }

    /// Sends a payload, whose digest comes back.
    pub(crate) async fn digest(self, payload: Bytes) -> Result<(), CallFailure> {
        let expected = digest([&payload]);
        let reply = self.stub.digest(self.request(message(payload))).await?.into_inner();
        same(&reply, &expected)
    }

    /// Receives a payload.
    pub(crate) async fn produce(self, wanted: ProduceRequest) -> Result<(), CallFailure> {
        let reply = self.stub.produce(self.request(wanted)).await?.into_inner();
        Ok(same_bytes(&reply.payload, &produced(wanted))?)
    }

    /// Sends a stream of payloads, whose digest comes back.
    pub(crate) async fn upload(self, payloads: Vec<Bytes>) -> Result<(), CallFailure> {
        let expected = digest(&payloads);
        let messages = self.request(stream::iter(payloads.into_iter().map(message)));
        let reply = self.stub.upload(messages).await?.into_inner();
        same(&reply, &expected)
    }

    /// Receives a stream of payloads.
    pub(crate) async fn download(self, wanted: Vec<ProduceRequest>) -> Result<(), CallFailure> {
        let request = DownloadRequest { messages: wanted.clone(), ..Default::default() };
        let mut replies = self.stub.download(self.request(request)).await?.into_inner();
        for wanted in wanted {
            let reply = replies.message().await?.ok_or_else(too_few)?;
            same_bytes(&reply.payload, &produced(wanted))?;
        }
        same(&replies.message().await?.map(|reply| reply.payload), &None)
    }

    /// Sends a stream of payloads, each of which comes back.
    pub(crate) async fn chat(self, payloads: Vec<Bytes>) -> Result<(), CallFailure> {
        let messages = stream::iter(payloads.clone().into_iter().map(message));
        let mut replies = self.stub.chat(self.request(messages)).await?.into_inner();
        for payload in payloads {
            let reply = replies.message().await?.ok_or_else(too_few)?;
            same_bytes(&reply.payload, &payload)?;
        }
        same(&replies.message().await?.map(|reply| reply.payload), &None)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(deadline) = self.deadline {
            request.extensions_mut().insert(deadline);
        }
        request
    }
}

fn message(payload: Bytes) -> EchoRequest {
    EchoRequest { payload, ..Default::default() }
}

fn digest<'a>(payloads: impl IntoIterator<Item = &'a Bytes>) -> UploadReply {
    let mut digest = Digest::default();
    payloads.into_iter().for_each(|payload| digest.add(payload));
    digest.into_reply()
}

fn produced(wanted: ProduceRequest) -> Bytes {
    payload(wanted.seed, usize::try_from(wanted.len).unwrap_or(usize::MAX))
}

/// Characters of a value that are shown.
const SHOWN_MAX: usize = 100;

fn same<T: PartialEq + fmt::Debug>(found: &T, expected: &T) -> Result<(), CallFailure> {
    if found == expected {
        return Ok(());
    }
    let shown = |value: &T| format!("{value:?}").chars().take(SHOWN_MAX).collect::<String>();
    Err(CallFailure::WrongAnswer(format!("{} instead of {}", shown(found), shown(expected))))
}

fn too_few() -> CallFailure {
    CallFailure::WrongAnswer("the stream of answers ended early".into())
}
