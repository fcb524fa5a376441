//! One call of a random kind and size, which ends by itself, by its deadline, or because we drop
//! it.

use std::time::Duration;

use bytes::Bytes;
use farcall::{Code, Deadline, Status};
use farcall_suite::proto::ProduceRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_testkit::calls::PayloadSource;
use futures::FutureExt as _;
use tokio::time::Instant;

use super::tally::{Ended, KINDS};
use crate::calls::{CallFailure, CheckedCalls};

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
        let calls = CheckedCalls { stub: self.stub.clone(), deadline };
        let call = match kind {
            0 => calls.echo(self.payload(LEN_MAX)).boxed(),
            1 => calls.download(self.wanted()).boxed(),
            2 => calls.upload(self.stream()).boxed(),
            _ => calls.chat(self.stream()).boxed(),
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
            Some(Err(CallFailure::Status(status))) if deadline.is_some() && is_timeout(&status) => {
                Ok((kind, Ended::TimedOut))
            }
            Some(Err(failure)) => Err(failure.into()),
        }
    }

    fn wanted(&mut self) -> Vec<ProduceRequest> {
        let count = self.payloads.random.usize(0..MESSAGES_MAX);
        (0..count)
            .map(|_| ProduceRequest {
                seed: self.payloads.random.u64(..),
                len: self.len(LEN_MAX) as u64,
            })
            .collect()
    }

    fn stream(&mut self) -> Vec<Bytes> {
        let count = self.payloads.random.usize(0..MESSAGES_MAX);
        (0..count).map(|_| self.payload(LEN_MAX / 4)).collect()
    }

    fn payload(&mut self, len_max: usize) -> Bytes {
        let len = self.len(len_max);
        self.payloads.cut(len)
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

fn is_timeout(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded
}
