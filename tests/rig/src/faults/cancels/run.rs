//! The connections, the calls, and what is left when they have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farcall::rdma::LaneInfo;
use farcall::{Channel, Rdma, Status};
use farcall_testkit::calls::PayloadSource;
use farcall_testkit::counters::{ProcessStatus, resident_kib};
use futures::future::try_join_all;
use tokio::task::JoinHandle;

use super::neighbour::Neighbour;
use super::tally::{Moment, Tally};
use super::victim::{LEN_MAX, Victim};
use crate::RigError;
use crate::conductor::wait::until;
use crate::conductor::watchdog::Watchdog;
use crate::faults::cancellations::Cancellations;
use crate::faults::config::{rdma, settings};
use crate::faults::device::{Resources, queue_pairs};
use crate::faults::lab::Lab;
use farcall_suite::Failure;
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::ProbeStub;

/// The calls are made in so many parts, with a look at the memory between them.
const PARTS: u64 = 10;

/// The most parts. Those beyond [`PARTS`] are made while a moment was hit too rarely: which moments
/// calls are in depends on the speed of the machine.
const PARTS_MAX: u32 = 30;

/// After so many parts memory has to be flat, or after half of a longer run: pools reach their
/// height late, since that takes many large messages at the same moment.
const WARM_UP_PARTS: usize = 5;

/// Maximum memory at the end, as a multiple of that before, besides what an allocator is free to
/// keep.
const GROWTH_MAX: f64 = 1.1;
const SLACK_KIB: u64 = 4096;
const SLACK_REGIONS: u64 = 8;

/// Neighbours on each connection.
const NEIGHBOURS: u64 = 2;

/// The bound on one part of 1,000 calls; measured in emulation it takes a tenth.
const PART_LIMIT: Duration = Duration::from_secs(300);

/// The bound on a handshake: all connections are made at once, each with memory to register.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// The bound on what follows the last call.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// At least one of so many calls has to be hit in each of the moments that matter.
const HIT_SHARE: u64 = 50;

/// The amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelPlan {
    /// Calls in all, those of neighbours not counted.
    pub calls: u64,
    /// Connections, each with a lane of its own.
    pub connections: u64,
    /// Seed of the calls.
    pub seed: u64,
}

/// A connection under test.
#[derive(Debug, Clone)]
struct Line {
    channel: Channel,
    rdma: Rdma,
}

impl Line {
    fn lanes(&self) -> Vec<LaneInfo> {
        self.rdma.lanes()
    }

    fn is_idle(&self) -> bool {
        let is_idle = |lane: &LaneInfo| {
            let bytes = (lane.source_bytes_in_use, lane.sink_bytes_in_use);
            lane.connection_count == 1 && lane.send_slots_in_use == 0 && bytes == (0, 0)
        };
        let calls = self.channel.info().map_or(0, |info| info.calls_in_flight);
        calls == 0 && self.lanes().iter().all(is_idle)
    }
}

/// Memory at a moment: what the processes have, and what is registered with the devices.
#[derive(Debug, Clone)]
struct Memory {
    client_kib: u64,
    server_kib: u64,
    registered: Resources,
}

/// Makes the calls of a plan, prints what was seen, and says whether all is as it has to be.
///
/// # Errors
///
/// Returns an error if the machine is not the virtual one, or something around the calls hung.
pub fn cancels(plan: &CancelPlan) -> Result<bool, RigError> {
    let watchdog = Watchdog::start();
    watchdog.enter_row("cancels");
    let mut lab = Lab::on_one_host()?;
    let CancelPlan { calls, connections, seed } = *plan;
    println!("== cancels: {calls} calls over {connections} connections, seed {seed}");
    let untouched = Resources::read()?;
    lab.start_server()?;
    let started = Instant::now();
    let complaints = lines_and_calls(plan, &mut lab, &watchdog)?;
    watchdog.enter("the end");
    lab.end_server()?;
    let mut complaints = complaints;
    match untouched.until_back() {
        Ok(took) => println!("  everything on the devices was freed after {took:.1?}"),
        Err(error) => complaints.push(error.to_string()),
    }
    for complaint in &complaints {
        println!("  FAILED: {complaint}");
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("cancels {seconds:>14.1} s  {}", if complaints.is_empty() { "ok" } else { "FAILED" });
    Ok(complaints.is_empty())
}

fn lines_and_calls(
    plan: &CancelPlan,
    lab: &mut Lab,
    watchdog: &Watchdog,
) -> Result<Vec<String>, RigError> {
    watchdog.enter("connecting");
    let lines = connect(plan, lab)?;
    let (pairs, resources) = (queue_pairs()?, Resources::read()?);
    let addresses: Vec<_> = lines.iter().map(|line| ends(&line.channel)).collect();
    let mut complaints = Vec::new();
    watchdog.enter_for("the calls", PART_LIMIT * PARTS_MAX);
    let (tally, neighbours, memory) = match calls(plan, lab, &lines) {
        Ok(seen) => seen,
        Err(CallsError::Status(status)) => {
            return Ok(vec![format!("{:?}: {}", status.code(), status.message())]);
        }
        Err(CallsError::Fault(error)) => return Err(error),
    };
    watchdog.enter("what is left");
    print!("{tally}");
    println!("  {neighbours} calls of neighbours on the same connections, all right");
    complaints.extend(too_few(&tally, plan));
    complaints.extend(left_over(lab, &lines)?);
    let now = queue_pairs()?;
    if now != pairs {
        complaints.push(format!("other queue pairs than at first: {now:?}, not {pairs:?}"));
    }
    let reset = |(line, before): (&Line, &Option<String>)| ends(&line.channel) != *before;
    let resets = lines.iter().zip(&addresses).filter(|&pair| reset(pair)).count();
    println!("  {resets} of {} connections were made anew", lines.len());
    if resets > 0 {
        complaints.push(format!("{resets} connections were made anew"));
    }
    complaints.extend(resources.without("mr").differs_from(&Resources::read()?.without("mr")));
    complaints.extend(grown(&memory));
    Ok(complaints)
}

/// The connection's text; another one has another port.
fn ends(channel: &Channel) -> Option<String> {
    channel.info().map(|info| format!("{} {}", info.transport, info.addresses))
}

fn connect(plan: &CancelPlan, lab: &Lab) -> Result<Vec<Line>, RigError> {
    let address = format!("rdma://{}", lab.authority);
    let connecting = (0..plan.connections).map(|_| async {
        let builder = settings().channel(Channel::builder(&address)?);
        let rdma = rdma(&lab.authority);
        let builder = builder.handshake_timeout(CONNECT_LIMIT).rdma(&rdma);
        Ok::<_, Failure>(Line { channel: builder.connect().await?, rdma })
    });
    Ok(lab.runtime.block_on(try_join_all(connecting))?)
}

/// Why the calls were not made to their end.
enum CallsError {
    /// A call ended as none may.
    Status(Status),
    Fault(RigError),
}

impl<T: Into<RigError>> From<T> for CallsError {
    fn from(error: T) -> Self {
        Self::Fault(error.into())
    }
}

fn calls(
    plan: &CancelPlan,
    lab: &mut Lab,
    lines: &[Line],
) -> Result<(Tally, u64, Vec<Memory>), CallsError> {
    let handle = lab.runtime.handle().clone();
    let _entered = handle.enter();
    let payloads = PayloadSource::new(plan.seed, 2 * LEN_MAX);
    let stop = Arc::new(AtomicBool::new(false));
    let mut seeds = (1..).map(|number| plan.seed.wrapping_mul(1000).wrapping_add(number));
    let mut payloads = || payloads.with_seed(seeds.next().unwrap_or_default());
    let (mut neighbours, mut victims) = (Vec::new(), Vec::new());
    for Line { channel, rdma } in lines {
        let stub = ProbeStub::new(channel.clone());
        for _ in 0..NEIGHBOURS {
            let (stub, payloads, stop) = (stub.clone(), payloads(), Arc::clone(&stop));
            neighbours.push(handle.spawn(Neighbour { stub, payloads, stop }.run()));
        }
        victims.push(Victim { stub, rdma: rdma.clone(), payloads: payloads() });
    }
    let mut tally = Tally::default();
    let mut memory = Vec::new();
    for part in 1..=PARTS_MAX.into() {
        if part > PARTS && too_few(&tally, plan).is_empty() {
            break;
        }
        let count = plan.calls * part / PARTS - plan.calls * (part - 1) / PARTS;
        victims = handle.block_on(share(victims, count, &mut tally))?;
        let server_kib = ProcessStatus::of(lab.server()?.id())?.resident_kib()?;
        let registered = Resources::read()?;
        let now = Memory { client_kib: resident_kib()?, server_kib, registered };
        println!(
            "  {:>6} calls: client {} KiB, server {} KiB, {}",
            tally.total(),
            now.client_kib,
            now.server_kib,
            now.registered
        );
        memory.push(now);
    }
    stop.store(true, Ordering::Relaxed);
    let made = handle.block_on(last_calls(neighbours))?;
    Ok((tally, made, memory))
}

/// Shares `count` calls among the victims, and gives them back.
async fn share(
    victims: Vec<Victim>,
    count: u64,
    tally: &mut Tally,
) -> Result<Vec<Victim>, CallsError> {
    let share = count.div_ceil(victims.len().max(1) as u64);
    let mut left = count;
    let mut tasks = Vec::new();
    for mut victim in victims {
        let mine = share.min(left);
        left -= mine;
        tasks.push(tokio::spawn(async move {
            let result = victim.run(mine).await;
            (victim, result)
        }));
    }
    let mut victims = Vec::new();
    for ended in tokio::time::timeout(PART_LIMIT, try_join_all(tasks))
        .await
        .map_err(|_| RigError::late("a part of the calls", PART_LIMIT))?
        .map_err(Failure::from)?
    {
        let (victim, result) = ended;
        tally.merge(&result.map_err(CallsError::Status)?);
        victims.push(victim);
    }
    Ok(victims)
}

async fn last_calls(neighbours: Vec<JoinHandle<Result<u64, Status>>>) -> Result<u64, CallsError> {
    let mut made = 0;
    for calls in tokio::time::timeout(IDLE_LIMIT, try_join_all(neighbours))
        .await
        .map_err(|_| RigError::late("the neighbours' last calls", IDLE_LIMIT))?
        .map_err(Failure::from)?
    {
        made += calls.map_err(CallsError::Status)?;
    }
    Ok(made)
}

/// Names the moments that were hit too rarely to show anything.
fn too_few(tally: &Tally, plan: &CancelPlan) -> Vec<String> {
    let mut complaints = Vec::new();
    if tally.total() < plan.calls {
        complaints.push(format!("{} calls instead of {}", tally.total(), plan.calls));
    }
    for moment in [Moment::Answered, Moment::FirstPoll, Moment::RequestRead, Moment::AnswerRead] {
        if tally.of(moment) < plan.calls / HIT_SHARE {
            complaints.push(format!("only {} calls: {moment:?}", tally.of(moment)));
        }
    }
    complaints
}

/// Returns everything that pools and tables on either side still hold.
fn left_over(lab: &mut Lab, lines: &[Line]) -> Result<Vec<String>, RigError> {
    let mut report = lab.report()?;
    let idle = until("idle pools", IDLE_LIMIT, || {
        report = lab.report()?;
        Ok(report.is_idle() && lines.iter().all(Line::is_idle))
    });
    let lanes: Vec<_> = lines.iter().flat_map(Line::lanes).collect();
    let ours = Cancellations::of(&lanes);
    println!("  client: {ours}");
    println!("  server: {}", report.cancellations);
    let mut complaints = Vec::new();
    let overdue = ours.overdue + report.cancellations.overdue;
    if overdue > 0 {
        complaints.push(format!("{overdue} frames were not let go of in time"));
    }
    match idle {
        Ok(took) => println!("  pools and tables of both sides were empty after {took:.1?}"),
        Err(error) => {
            complaints.push(format!("{error}: the server has {report:?}, we have {lanes:?}"));
        }
    }
    Ok(complaints)
}

/// The processes whose memory is not flat.
fn grown(memory: &[Memory]) -> Vec<String> {
    let warm_up_parts = WARM_UP_PARTS.max(memory.len() / 2);
    let (Some(first), Some(last)) = (memory.get(warm_up_parts - 1), memory.last()) else {
        return vec!["memory was not looked at".to_owned()];
    };
    let pairs = [
        ("the client's KiB", first.client_kib, last.client_kib, SLACK_KIB),
        ("the server's KiB", first.server_kib, last.server_kib, SLACK_KIB),
        ("memory regions", first.registered.of("mr"), last.registered.of("mr"), SLACK_REGIONS),
    ];
    let has_grown = |&(_, first, last, slack): &(&str, u64, u64, u64)| {
        last.saturating_sub(slack) as f64 > first as f64 * GROWTH_MAX
    };
    let text = |(what, first, last, _)| format!("{what} grew from {first} to {last}");
    pairs.into_iter().filter(has_grown).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(client_kib: u64) -> Memory {
        Memory { client_kib, server_kib: 50_000, registered: Resources::default() }
    }

    #[test]
    fn memory_that_grows_in_the_second_half_is_found() {
        let flat: Vec<_> = (0..PARTS).map(|part| memory(100_000 + part)).collect();
        assert_eq!(grown(&flat), [""; 0]);
        let late: Vec<_> = (0..PARTS).map(|part| memory(10_000 * part.min(5))).collect();
        assert_eq!(grown(&late).len(), 1, "{:?}", grown(&late));
        let long: Vec<_> = (0..2 * PARTS).map(|part| memory(10_000 * part.clamp(5, 9))).collect();
        assert_eq!(grown(&long), [""; 0], "pools of a longer run reach their height later");
        assert_eq!(grown(&[]).len(), 1);
    }

    #[test]
    fn calls_that_hit_nothing_show_nothing() {
        let plan = CancelPlan { calls: 100, connections: 1, seed: 1 };
        let mut tally = Tally::default();
        (0..100).for_each(|_| tally.add(Moment::Between));
        assert_eq!(too_few(&tally, &plan).len(), 4);
    }
}
