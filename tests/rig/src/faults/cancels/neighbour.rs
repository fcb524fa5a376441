//! Calls on the same connection that run to their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farcall::Status;
use farcall_testkit::calls::PayloadSource;

use crate::calls::CheckedCalls;
use farcall_suite::proto::probe_rpc::ProbeStub;

/// The longest payload: it takes a READ too, and all neighbours' together are shorter than
/// [`LEN_MIN`](super::tally::LEN_MIN).
const LEN_MAX: usize = 16 << 10;

/// Timeout of a call among large ones, on an emulated processor.
const LIMIT: Duration = Duration::from_secs(30);

/// Makes calls one after the other and checks every byte.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) stub: ProbeStub,
    pub(super) payloads: PayloadSource,
    pub(super) stop: Arc<AtomicBool>,
}

impl Neighbour {
    /// Calls until it is stopped; gives the number of calls.
    pub(super) async fn run(mut self) -> Result<u64, Status> {
        let mut calls = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let len = self.payloads.random.usize(1..=LEN_MAX);
            let payload = self.payloads.cut(len);
            let call = CheckedCalls::new(self.stub.clone()).echo(payload);
            let answered = tokio::time::timeout(LIMIT, call).await;
            answered.map_err(|_| {
                Status::deadline_exceeded(format!("a neighbour's call took over {LIMIT:?}"))
            })??;
            calls += 1;
        }
        Ok(calls)
    }
}
