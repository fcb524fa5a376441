//! One run: a server, its clients, and what must be left of them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use farcall::sim::SimNetwork;
use farcall::{Limits, RdmaConfig, Server};
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::{OnLoopback, Probe};
use rpc_core::client::ClientConfig;
use rpc_core::connect::UpgradePolicy;
use rpc_core::inproc::{InprocConnector, InprocListener};
use rpc_transport_rdma::sim::{SimCensus, lab};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::calls;
use super::faults::{self, Severity};
use super::pest::{self, Counts, Disturbance, Pest};
use super::size::Size;

/// Of the simulation's time: far longer than all timeouts in a row.
const LIMIT: Duration = Duration::from_secs(3600);

/// Between two looks at what is left.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The events of one run or many.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answered: u64,
    pub(crate) large: u64,
    pub(crate) streams: u64,
    pub(crate) given_up: u64,
    pub(crate) expired: u64,
    pub(crate) failed: u64,
    broken: u64,
    late_writes: u64,
    timeouts: u64,
    refused: u64,
    retransmitted: u64,
    cut: u64,
    held_events: u64,
    lost_by_class: u64,
    lost_by_lag_port: u64,
    disturbances: [u64; Disturbance::COUNT],
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.large += other.large;
        self.streams += other.streams;
        self.given_up += other.given_up;
        self.expired += other.expired;
        self.failed += other.failed;
        self.broken += other.broken;
        self.late_writes += other.late_writes;
        self.timeouts += other.timeouts;
        self.refused += other.refused;
        self.retransmitted += other.retransmitted;
        self.cut += other.cut;
        self.held_events += other.held_events;
        self.lost_by_class += other.lost_by_class;
        self.lost_by_lag_port += other.lost_by_lag_port;
        for (count, more) in self.disturbances.iter_mut().zip(other.disturbances) {
            *count += more;
        }
    }

    /// Returns true if every kind of event has happened that the runs must show.
    pub(crate) fn has_everything(&self) -> bool {
        let ends = [self.answered, self.large, self.given_up, self.expired, self.failed];
        let faults = [self.broken, self.late_writes, self.timeouts, self.refused];
        let others = [self.streams, self.retransmitted, self.cut, self.held_events];
        let losses = [self.lost_by_class, self.lost_by_lag_port];
        let counts = ends.into_iter().chain(faults).chain(others).chain(losses);
        let counts = counts.chain(self.disturbances);
        counts.into_iter().all(|count| count > 0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answered, large, streams, given_up, expired, failed, .. } = self;
        let Self { broken, late_writes, timeouts, refused, .. } = self;
        let Self { retransmitted, cut, held_events, lost_by_class, lost_by_lag_port, .. } = self;
        write!(
            f,
            "{answered} calls answered ({large} large, {streams} streams), {given_up} given up, \
             {expired} expired, {failed} failed; {broken} queue pairs broken, {late_writes} late \
             writes, {timeouts} timeouts, {refused} posts refused, {retransmitted} sent again, \
             {cut} cut in the middle, {held_events} events held back, {lost_by_class} lost by \
             their class, {lost_by_lag_port} lost by their LAG port; {}",
            pest::describe(&self.disturbances)
        )
    }
}

/// The settings of both ends.
fn config(size: Size) -> RdmaConfig {
    let mut config = RdmaConfig::default();
    config.receive_slots = size.receive_slots;
    config.send_slots = size.send_slots;
    config.max_credits = 8;
    config.max_connections = 8;
    config.send_depth = 16;
    config.max_source_bytes = size.large_bytes;
    config.max_sink_bytes = size.large_bytes;
    config.max_read_len = size.max_read_len;
    config.spin = Duration::ZERO;
    config
}

/// Returns true if nothing of a connection is left at this end.
fn is_clean(upgrade: &OnLoopback) -> bool {
    upgrade.lanes().iter().all(|lane| {
        lane.connection_count == 0
            && lane.promised_slots == 0
            && lane.claimed_entries == lane.receive_slots
            && lane.send_slots_in_use == 0
            && lane.source_bytes_in_use == 0
            && lane.sink_bytes_in_use == 0
    })
}

/// Runs a seed to its end. Panics, naming the seed, when it shows what it may not.
pub(crate) fn run(seed: u64, size: Size) -> Tally {
    let network = SimNetwork::new(seed);
    let shown = catch_unwind(AssertUnwindSafe(|| show(seed, &network, size)));
    shown.unwrap_or_else(|panic| {
        eprintln!("seed {seed} failed; violations: {:?}", network.violations());
        eprintln!("to see it again: FARCALL_SIM_FIRST_SEED={seed} FARCALL_SIM_SEEDS=1");
        resume_unwind(panic)
    })
}

fn show(seed: u64, network: &SimNetwork, size: Size) -> Tally {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap();
    let mut tally = runtime.block_on(async {
        let ended = tokio::time::timeout(LIMIT, scenario(seed, network, size)).await;
        ended.unwrap_or_else(|_| panic!("the run does not end; left: {:?}", lab::census(network)))
    });
    drop(runtime);
    assert_eq!(network.violations(), []);
    assert_eq!(lab::census(network), SimCensus::default(), "something is left on the device");
    let counters = network.counters();
    tally.broken = counters.broken_queue_pairs;
    tally.late_writes = counters.late_writes;
    tally.timeouts = counters.timeouts;
    tally.refused = counters.refused_posts;
    tally.retransmitted = counters.retransmissions;
    tally.cut = counters.cut_transfers;
    tally.held_events = counters.delayed_events + counters.coalesced_events;
    tally.lost_by_class = counters.lost_by_class.values().sum();
    tally.lost_by_lag_port = counters.lost_by_lag_port;
    tally
}

async fn scenario(seed: u64, network: &SimNetwork, size: Size) -> Tally {
    let severity = Severity::of(seed);
    let device = faults::device(seed);
    let lag_ports = device.ports[0].lag_ports;
    let device = network.add_device_with(device);
    faults::begin(network, severity, seed);
    let upgrades = [(); 2].map(|()| OnLoopback::new(network, self::config(size)));
    let name = format!("seed-{seed}");
    let listener = InprocListener::bind(name.clone()).unwrap();
    let probe = ProbeService::new(Probe::new().0);
    let limits = Limits::default().with_max_stream_bytes(size.max_stream_bytes);
    let builder = Server::builder().limits(limits).upgrade(upgrades[0].clone()).add_service(probe);
    let server = builder.build();
    let (shutdown, shut_down) = oneshot::channel::<()>();
    let serving = server.serve_incoming(listener);
    let serving = serving.with_graceful_shutdown(async { drop(shut_down.await) });
    let serving = tokio::spawn(serving);
    let counts = Arc::<Counts>::default();
    let pest = Pest {
        network: network.clone(),
        device: device.clone(),
        lag_ports,
        severity,
        counts: Arc::clone(&counts),
    };
    let pestering = tokio::spawn(pest.disturb(seed));
    let channel = || {
        let policy = UpgradePolicy::Require(upgrades[1].clone());
        let config = ClientConfig::with_settings(|it| it.limits = limits);
        let config = ClientConfig { policy, ..config };
        rpc_core::Channel::new(InprocConnector::new(&name, config))
    };
    let stubs: Vec<_> = (0..size.clients).map(|_| ProbeStub::new(channel().into())).collect();
    let mut tally = call(seed, severity, &stubs, size).await;
    pestering.abort();
    pest::restore(&device);
    for stub in stubs {
        calls::recover(&stub).await;
    }
    tally.disturbances = counts.get();
    drop(shutdown);
    serving.await.unwrap().unwrap();
    while !upgrades.iter().all(|upgrade| is_clean(upgrade)) {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    tally
}

/// Makes the calls of all clients and waits for their ends.
async fn call(seed: u64, severity: Severity, stubs: &[ProbeStub], size: Size) -> Tally {
    let mut tasks = JoinSet::new();
    for (client, stub) in (0..).zip(stubs) {
        for task in 0..size.tasks_per_client {
            let task = client * size.tasks_per_client + task;
            tasks.spawn(calls::make(stub.clone(), (seed, task), severity, size));
        }
    }
    let mut tally = Tally::default();
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(ended) => tally.add(&ended),
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
    tally
}
