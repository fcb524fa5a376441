//! Disturbances of a run's device and network from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall::sim::{SimDevice, SimMtu, SimNetwork, SimQuery, SimVerb};
use rpc_transport_rdma::sim::lab;
use tokio::time::sleep;

use super::faults::{HOST, Severity};

/// `EIO`.
const INPUT_OUTPUT_ERROR: i32 = 5;

/// The longest time that firmware hangs, in milliseconds: shorter than the minute after which the
/// driver gives a command up, since what it could not destroy then is left on the device.
const HANG_MS_MAX: u64 = 50_000;

/// Commands that only the device's own tasks give, on the simulation's clock.
const BACKGROUND: [SimVerb; 5] = [
    SimVerb::AllocateWindow,
    SimVerb::DeallocateWindow,
    SimVerb::DestroyQueuePair,
    SimVerb::DeregisterMemory,
    SimVerb::DestroyQueue,
];

const QUERIES: [SimQuery; 2] = [SimQuery::Port(1), SimQuery::GidTable];

/// Disturbances of a run at most: it goes on for longer where its callers wait.
const COUNT_MAX: usize = 30;

/// A kind of disturbance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// One of two bonded ports is lost for a while.
    LostLagPort,
    /// Firmware commands take longer, until they are set again.
    SlowCommands,
    /// All queue pairs break at once.
    BrokenQueuePairs,
    /// The link is down for a while.
    LinkDown,
    /// The same, brought up again by the device, and others come meanwhile.
    Flap,
    /// Firmware answers no command for a while.
    HungFirmware,
    /// The path carries shorter packets than the ports for a while.
    NarrowPath,
    /// Queries of the port, or of the GID table, fail for a while.
    FailingQueries,
}

impl Disturbance {
    pub(crate) const COUNT: usize = 8;

    /// Those that no call may fail by.
    const HARMLESS: [Self; 2] = [Self::LostLagPort, Self::SlowCommands];

    const ALL: [Self; Self::COUNT] = [
        Self::LostLagPort,
        Self::SlowCommands,
        Self::BrokenQueuePairs,
        Self::LinkDown,
        Self::Flap,
        Self::HungFirmware,
        Self::NarrowPath,
        Self::FailingQueries,
    ];
}

/// Counts of disturbances by kind, in the order of [`Disturbance`].
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; Disturbance::COUNT]);

impl Counts {
    pub(crate) fn get(&self) -> [u64; Disturbance::COUNT] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn add(&self, kind: Disturbance) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The source of the disturbances of a run.
pub(crate) struct Pest {
    pub(crate) network: SimNetwork,
    pub(crate) device: SimDevice,
    pub(crate) lag_ports: u8,
    pub(crate) severity: Severity,
    pub(crate) counts: Arc<Counts>,
}

impl Pest {
    /// Disturbs the run. Dropped, it leaves disturbed what is, for [`restore`].
    pub(crate) async fn disturb(self, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let is_violent = self.severity == Severity::Violent;
        let all = if is_violent { &Disturbance::ALL[..] } else { &Disturbance::HARMLESS };
        let is_possible =
            |kind: &&Disturbance| **kind != Disturbance::LostLagPort || self.lag_ports > 1;
        let kinds: Vec<Disturbance> = all.iter().filter(is_possible).copied().collect();
        for _ in 0..COUNT_MAX {
            sleep(Duration::from_millis(rng.u64(20..400))).await;
            let kind = kinds[rng.usize(..kinds.len())];
            self.counts.add(kind);
            self.carry_out(kind, &mut rng).await;
        }
    }

    async fn carry_out(&self, kind: Disturbance, rng: &mut fastrand::Rng) {
        let time = Duration::from_millis(rng.u64(1..800));
        let device = &self.device;
        match kind {
            Disturbance::LostLagPort => {
                device.lose_lag_port(rng.u8(1..=self.lag_ports));
                sleep(time).await;
                device.link_up();
            }
            Disturbance::SlowCommands => self.slow_down(rng),
            Disturbance::BrokenQueuePairs => device.break_queue_pairs(),
            Disturbance::LinkDown => {
                device.link_down();
                sleep(time).await;
                device.link_up();
            }
            Disturbance::Flap => device.flap(time),
            Disturbance::HungFirmware => self.hang(rng).await,
            Disturbance::NarrowPath => {
                self.network.set_path_mtu(HOST, HOST, SimMtu::B1024);
                sleep(time).await;
                self.network.set_path_mtu(HOST, HOST, SimMtu::B4096);
            }
            Disturbance::FailingQueries => {
                let query = QUERIES[rng.usize(..QUERIES.len())];
                device.fail_queries(query, Some(INPUT_OUTPUT_ERROR));
                sleep(time).await;
                device.fail_queries(query, None);
            }
        }
    }

    /// Handshakes wait for commands in real time, so that theirs are hardly slower.
    fn slow_down(&self, rng: &mut fastrand::Rng) {
        for verb in BACKGROUND {
            self.device.set_command_delay(verb, Duration::from_millis(rng.u64(..20)));
        }
        let short = Duration::from_micros(rng.u64(..50));
        self.device.set_command_delay(SimVerb::ModifyQueuePair, short);
    }

    /// Lets firmware hang for a while of the simulation's time, which stands still as soon as a
    /// handshake waits for the firmware. So that ends it, too.
    async fn hang(&self, rng: &mut fastrand::Rng) {
        let time = (rng.u64(1..800) << rng.u8(..8)).min(HANG_MS_MAX);
        let hold = self.device.hang_firmware();
        tokio::select! {
            biased;
            () = lab::thread_is_blocked(&hold) => {}
            () = sleep(Duration::from_millis(time)) => {}
        }
    }
}

/// Ends all disturbances but that of the path, which clients come back to as it is. The end of a
/// run waits for commands in real time.
pub(crate) fn restore(device: &SimDevice) {
    device.link_up();
    for query in QUERIES {
        device.fail_queries(query, None);
    }
    for verb in BACKGROUND.into_iter().chain([SimVerb::ModifyQueuePair]) {
        device.set_command_delay(verb, Duration::ZERO);
    }
}

/// Describes counts of disturbances in the order of [`Disturbance`].
pub(crate) fn describe(counts: &[u64; Disturbance::COUNT]) -> String {
    let named = Disturbance::ALL.iter().zip(counts);
    named.map(|(kind, count)| format!("{count} {kind:?}")).collect::<Vec<_>>().join(", ")
}
