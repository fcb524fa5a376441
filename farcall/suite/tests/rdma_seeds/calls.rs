//! The calls of a run, and how they end.

use std::time::Duration;

use farcall::{Code, Request};
use farcall_suite::payload;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;

use super::faults::Severity;
use super::run::Tally;
use super::size::Size;

/// Frames up to here travel whole.
const SMALL_LEN_MAX: usize = 4000;

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
        let is_large = rng.u8(..10) < 3;
        let len =
            if is_large { rng.usize(5000..size.large_len_max) } else { rng.usize(..SMALL_LEN_MAX) };
        let (sent, patience) =
            (payload(rng.u64(..), len), Duration::from_micros(rng.u64(..30_000)));
        let mut request = Request::new(EchoRequest { payload: sent.clone(), ..Default::default() });
        let kind = rng.u8(..10);
        if kind == 0 {
            request.set_timeout(patience);
        }
        let call = stub.echo(request);
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
            Ok(reply) => {
                assert!(reply.into_inner().payload == sent, "{len} bytes came back differently");
                tally.answered += 1;
                tally.large += u64::from(is_large);
            }
            Err(status) if kind == 0 && status.code() == Code::DeadlineExceeded => {
                tally.expired += 1;
            }
            Err(status) => {
                let may_fail = severity != Severity::Harmless
                    && matches!(status.code(), Code::Unavailable | Code::ResourceExhausted);
                assert!(may_fail, "a call of {len} bytes, {severity:?}: {status}");
                tally.failed += 1;
            }
        }
    }
    tally
}
