//! Large calls that are given up at a random moment, mostly.

use std::pin::pin;
use std::time::Duration;

use farcall::rdma::LaneInfo;
use farcall::{Rdma, Status};
use farcall_testkit::calls::PayloadSource;
use futures::future::{Either, select};
use futures::{FutureExt as _, TryFutureExt as _, poll};

use super::tally::{LEN_MIN, Moment, Tally};
use crate::calls::CheckedCalls;
use farcall_suite::proto::ProduceRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;

/// The longest payload.
pub(super) const LEN_MAX: usize = 1 << 20;

/// Timeout of a call that is not cancelled, and of the cleanup after others.
const LIMIT: Duration = Duration::from_secs(30);

/// Between two looks at what a lane has on its way.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// Calls are given up after up to this long, which is about what one takes among others.
const PATIENCE_MAX_US: u64 = 60_000;

/// Turns of the runtime, at most, after which a call is given up that has been seen on its way.
const TURNS_MAX: usize = 200;

/// The direction of the payload.
#[derive(Debug, Clone, Copy)]
enum Direction {
    Up,
    Down,
    Both,
}

/// Makes calls over one connection with a lane of its own.
#[derive(Debug)]
pub(super) struct Victim {
    pub(super) stub: ProbeStub,
    pub(super) rdma: Rdma,
    pub(super) payloads: PayloadSource,
}

impl Victim {
    /// Makes so many calls. An error is an end that giving up does not explain.
    pub(super) async fn run(&mut self, count: u64) -> Result<Tally, Status> {
        let mut tally = Tally::default();
        for _ in 0..count {
            tally.add(self.one().await?);
        }
        Ok(tally)
    }

    async fn one(&mut self) -> Result<Moment, Status> {
        // Half of the calls begin among what those before them have left.
        let is_quiet = self.payloads.random.bool();
        if is_quiet {
            self.until(|lane| !is_busy(lane)).await?;
        }
        let direction =
            self.payloads.random.choice([Direction::Up, Direction::Down, Direction::Both]);
        let call = self.call(direction.unwrap_or(Direction::Both));
        let mut call = pin!(call);
        let how = self.payloads.random.u8(0..10);
        if how == 0 {
            return match poll!(&mut call) {
                std::task::Poll::Ready(result) => result.map(|()| Moment::Answered),
                std::task::Poll::Pending => Ok(Moment::FirstPoll),
            };
        }
        if how == 1 {
            let answered = tokio::time::timeout(LIMIT, call).await;
            let late = |_| Status::deadline_exceeded(format!("a call took over {LIMIT:?}"));
            return answered.map_err(late)?.map(|()| Moment::Answered);
        }
        let patience = Duration::from_micros(self.payloads.random.u64(0..PATIENCE_MAX_US));
        let turns = self.payloads.random.usize(0..TURNS_MAX);
        let moment = self.moment(how < 6, patience, turns);
        match select(call, pin!(moment)).await {
            Either::Left((result, _)) => result.map(|()| Moment::Answered),
            Either::Right((waited, _)) => {
                waited?;
                Ok(if is_quiet { Moment::of(&self.lane()) } else { Moment::Crowded })
            }
        }
    }

    /// Waits for the moment to give up: after a time, or a little after something large is on its
    /// way.
    async fn moment(&self, by_time: bool, patience: Duration, turns: usize) -> Result<(), Status> {
        if by_time {
            tokio::time::sleep(patience).await;
            return Ok(());
        }
        self.until(is_busy).await?;
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn until(&self, holds: impl Fn(&LaneInfo) -> bool) -> Result<(), Status> {
        let waiting = async {
            while !holds(&self.lane()) {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        tokio::time::timeout(LIMIT, waiting).await.map_err(|_| {
            Status::deadline_exceeded(format!("the lane stays as it is: {:?}", self.lane()))
        })
    }

    fn lane(&self) -> LaneInfo {
        let mut lanes = self.rdma.lanes();
        lanes.pop().expect("the connection has a lane, and its devices no other")
    }

    /// One call of a random length, with every byte checked if it comes to its end.
    fn call(
        &mut self,
        direction: Direction,
    ) -> impl Future<Output = Result<(), Status>> + Send + use<> {
        let (calls, seed) = (CheckedCalls::new(self.stub.clone()), self.payloads.random.u64(..));
        let len = self.payloads.random.usize(LEN_MIN..=LEN_MAX);
        let sent = self.payloads.cut(len);
        let call = match direction {
            Direction::Up => calls.digest(sent).boxed(),
            Direction::Down => calls.produce(ProduceRequest { seed, len: len as u64 }).boxed(),
            Direction::Both => calls.echo(sent).boxed(),
        };
        call.map_err(Status::from)
    }
}

fn is_busy(lane: &LaneInfo) -> bool {
    lane.source_bytes_in_use.max(lane.sink_bytes_in_use) >= LEN_MIN as u64
}
