//! One call of a random kind and size, which ends by itself, by its deadline, or because we drop
//! it.

use std::time::Duration;

use farcall::{Code, Deadline, Request, Status};
use farcall_testkit::calls::PayloadSource;
use futures::{FutureExt, stream};
use tokio::time::Instant;

use super::tally::{Ended, KINDS};
use crate::payload::same_payload;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::proto::{DownloadRequest, EchoRequest, ProduceRequest};

/// The longest message.
pub(super) const LEN_MAX: usize = 2 << 20;

/// The longest of most messages.
const USUAL_LEN_MAX: usize = 64 << 10;

/// The most messages of one stream.
const MESSAGES_MAX: usize = 40;

/// Deadlines are drawn from up to here: some pass before the call is sent, most while it waits
/// among 256 others, some never.
const DEADLINE_MAX_US: u64 = 30_000;

/// Calls that are given up are so after this at the latest.
const CANCEL_MAX_US: u64 = 10_000;

/// A caller.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) stub: ProbeStub,
    /// Payloads up to [`LEN_MAX`] bytes.
    pub(super) payloads: PayloadSource,
}

impl Caller {
    /// Makes one call, and says of which kind it was and how it ended. An error is an end that
    /// nothing of ours explains.
    pub(super) async fn call(&mut self) -> Result<(usize, Ended), Status> {
        let kind = self.payloads.random.usize(0..KINDS.len());
        let timeout_us = self.payloads.random.u64(0..DEADLINE_MAX_US);
        let deadline = (self.payloads.random.u8(0..10) == 0)
            .then(|| Deadline(Instant::now() + Duration::from_micros(timeout_us)));
        let call = match kind {
            0 => self.unary(deadline).boxed(),
            1 => self.download(deadline).boxed(),
            2 => self.upload(deadline).boxed(),
            _ => self.chat(deadline).boxed(),
        };
        let cancel_us = self.payloads.random.u64(0..CANCEL_MAX_US);
        let answered = match self.payloads.random.u8(0..10) {
            0 => tokio::time::timeout(Duration::from_micros(cancel_us), call).await.ok(),
            1 if cancel_us.is_multiple_of(4) => call.now_or_never(),
            _ => Some(call.await),
        };
        match answered {
            None => Ok((kind, Ended::Cancelled)),
            Some(Ok(())) => Ok((kind, Ended::Answered)),
            Some(Err(status)) if deadline.is_some() && is_timeout(&status) => {
                Ok((kind, Ended::TimedOut))
            }
            Some(Err(status)) => Err(status),
        }
    }

    fn unary(
        &mut self,
        deadline: Option<Deadline>,
    ) -> impl Future<Output = Result<(), Status>> + Send + use<> {
        let (stub, sent) = (self.stub.clone(), self.message(LEN_MAX));
        async move {
            let reply = stub.echo(request(sent.clone(), deadline)).await?.into_inner();
            same_payload("the echo", &reply.payload, &sent.payload)
        }
    }

    fn download(
        &mut self,
        deadline: Option<Deadline>,
    ) -> impl Future<Output = Result<(), Status>> + Send + use<> {
        let stub = self.stub.clone();
        let count = self.payloads.random.usize(0..MESSAGES_MAX);
        let wanted: Vec<_> = (0..count)
            .map(|_| ProduceRequest {
                seed: self.payloads.random.u64(..),
                len: self.len(LEN_MAX) as u64,
            })
            .collect();
        async move {
            let lens: Vec<_> = wanted.iter().map(|wanted| wanted.len).collect();
            let wanted = DownloadRequest { messages: wanted, ..Default::default() };
            let mut replies = stub.download(request(wanted, deadline)).await?.into_inner();
            for len in lens {
                let reply = replies.message().await?.unwrap_or_default();
                same("the length of a message", &(reply.payload.len() as u64), &len)?;
            }
            same("what follows the last message", &replies.message().await?, &None)
        }
    }

    fn upload(
        &mut self,
        deadline: Option<Deadline>,
    ) -> impl Future<Output = Result<(), Status>> + Send + use<> {
        let (stub, messages) = (self.stub.clone(), self.messages());
        async move {
            let count = messages.len() as u64;
            let bytes: usize = messages.iter().map(|message| message.payload.len()).sum();
            let reply = stub.upload(request(stream::iter(messages), deadline)).await?.into_inner();
            same("what the server read", &(reply.count, reply.bytes), &(count, bytes as u64))
        }
    }

    fn chat(
        &mut self,
        deadline: Option<Deadline>,
    ) -> impl Future<Output = Result<(), Status>> + Send + use<> {
        let (stub, messages) = (self.stub.clone(), self.messages());
        async move {
            let sent = stream::iter(messages.clone());
            let mut replies = stub.chat(request(sent, deadline)).await?.into_inner();
            for message in messages {
                let reply = replies.message().await?.unwrap_or_default();
                same_payload("an answer", &reply.payload, &message.payload)?;
            }
            same("what follows the last answer", &replies.message().await?, &None)
        }
    }

    fn messages(&mut self) -> Vec<EchoRequest> {
        (0..self.payloads.random.usize(0..MESSAGES_MAX))
            .map(|_| self.message(LEN_MAX / 4))
            .collect()
    }

    fn message(&mut self, len_max: usize) -> EchoRequest {
        let len = self.len(len_max);
        EchoRequest { payload: self.payloads.cut(len), ..Default::default() }
    }

    /// Mostly a few bytes, often up to [`USUAL_LEN_MAX`], rarely up to `len_max`.
    fn len(&mut self, len_max: usize) -> usize {
        match self.payloads.random.u8(..) {
            0 => self.payloads.random.usize(0..=len_max),
            1..=60 => self.payloads.random.usize(0..=USUAL_LEN_MAX),
            _ => self.payloads.random.usize(0..500),
        }
    }
}

fn request<T>(message: T, deadline: Option<Deadline>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(deadline) = deadline {
        request.extensions_mut().insert(deadline);
    }
    request
}

fn is_timeout(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded
}

fn same<T: PartialEq>(what: &str, found: &T, expected: &T) -> Result<(), Status> {
    if found == expected {
        return Ok(());
    }
    Err(Status::data_loss(format!("{what} is not what it had to be")))
}
