//! The calls of a run, and how they end.

use std::time::Duration;

use bytes::Bytes;
use farcall::metadata::MetadataValue;
use farcall::{Code, Request, Status};
use farcall_suite::payload;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;
use futures::stream;

use super::faults::Severity;
use super::run::Tally;
use super::size::Size;

/// Frames up to here travel whole.
const SMALL_LEN_MAX: usize = 4000;

/// Metadata from here on makes a request large.
const LONG_METADATA_LEN_MIN: usize = 5000;
const METADATA_LEN_MAX: usize = 12_000;

/// A caller pauses after a call that failed, for up to 33 s: a path that failed its proof is not
/// tried again for a minute.
const PAUSE_BITS: u8 = 16;

/// Between two calls of a client that comes back.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(5);

/// The request of a call, and the expected answer.
struct Plan {
    payloads: Vec<Bytes>,
    metadata: Option<String>,
    timeout: Option<Duration>,
    is_stream: bool,
}

impl Plan {
    fn draw(rng: &mut fastrand::Rng, size: Size) -> Self {
        let is_stream = rng.u8(..10) < 3;
        let count = if is_stream { rng.usize(..size.stream_len_max) } else { 1 };
        let mut payloads = Vec::new();
        for _ in 0..count {
            let is_large = rng.u8(..10) < 3;
            let len = if is_large {
                rng.usize(5000..size.large_len_max)
            } else {
                rng.usize(..SMALL_LEN_MAX)
            };
            payloads.push(payload(rng.u64(..), len));
        }
        let is_long = rng.u8(..10) == 0;
        let metadata =
            is_long.then(|| "m".repeat(rng.usize(LONG_METADATA_LEN_MIN..METADATA_LEN_MAX)));
        Self { payloads, metadata, timeout: None, is_stream }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(text) = &self.metadata {
            request.metadata_mut().insert("x-long", MetadataValue::try_from(text).unwrap());
        }
        if let Some(timeout) = self.timeout {
            request.set_timeout(timeout);
        }
        request
    }

    /// Makes the call. Panics when something else comes back than was sent.
    async fn carry_out(&self, stub: &ProbeStub) -> Result<(), Status> {
        let message = |payload| EchoRequest { payload, ..Default::default() };
        let mut messages = self.payloads.clone().into_iter().map(message);
        if self.is_stream {
            let messages: Vec<_> = messages.collect();
            let mut replies = stub.chat(self.request(stream::iter(messages))).await?.into_inner();
            for payload in &self.payloads {
                let reply = replies.message().await?.expect("a stream ended early");
                assert!(reply.payload == payload, "{} bytes of a stream differ", payload.len());
            }
            assert_eq!(replies.message().await?, None, "a stream goes on");
            return Ok(());
        }
        let reply = stub.echo(self.request(messages.next().unwrap())).await?.into_inner();
        let sent = &self.payloads[0];
        assert!(reply.payload == sent, "{} bytes came back differently", sent.len());
        Ok(())
    }

    fn is_large(&self) -> bool {
        self.payloads.iter().any(|payload| payload.len() > SMALL_LEN_MAX)
    }
}

/// Calls until one is answered. The faults of the network may still fail some.
pub(crate) async fn recover(stub: &ProbeStub) {
    let echo = || stub.echo(Request::new(EchoRequest::default()));
    while let Err(status) = echo().await {
        assert!(may_fail(&status), "after the disturbances: {status}");
        tokio::time::sleep(RECOVERY_INTERVAL).await;
    }
}

/// Returns true if a call may end so when queue pairs die or memory is short.
fn may_fail(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::ResourceExhausted)
}

/// One task of a client. Panics with what a call did that it may not.
pub(crate) async fn make(
    stub: ProbeStub,
    (seed, task): (u64, u64),
    severity: Severity,
    size: Size,
) -> Tally {
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(1000) + task);
    let mut tally = Tally::default();
    for _ in 0..size.calls_per_task {
        let mut plan = Plan::draw(&mut rng, size);
        let patience = Duration::from_micros(rng.u64(..30_000));
        let kind = rng.u8(..10);
        if kind == 0 {
            plan.timeout = Some(patience);
        }
        let call = plan.carry_out(&stub);
        let ended = if kind < 3 && kind > 0 {
            match tokio::time::timeout(patience, call).await {
                Ok(ended) => ended,
                Err(_) => {
                    tally.given_up += 1;
                    continue;
                }
            }
        } else {
            call.await
        };
        match ended {
            Ok(()) => {
                tally.answered += 1;
                tally.large += u64::from(plan.is_large());
                tally.streams += u64::from(plan.is_stream);
            }
            Err(status) if kind == 0 && status.code() == Code::DeadlineExceeded => {
                tally.expired += 1;
            }
            Err(status) => {
                let may_fail = severity != Severity::Harmless && may_fail(&status);
                let lens: Vec<_> = plan.payloads.iter().map(Bytes::len).collect();
                assert!(may_fail, "a call of {lens:?} bytes, {severity:?}: {status}");
                tally.failed += 1;
                // Until its channel has connected again, each call would fail at once.
                tokio::time::sleep(Duration::from_millis(1 << rng.u8(..PAUSE_BITS))).await;
            }
        }
    }
    tally
}
