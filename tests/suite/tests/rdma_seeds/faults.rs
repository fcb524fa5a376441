//! The faults of a run.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use farcall::sim::{SimDeviceConfig, SimFaults, SimMtu, SimNetwork};
use rpc_transport_rdma::verbs::ReceiveDrain;

/// The address of both ends.
pub(crate) const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Rates of ports and queue pairs, in bytes per second. The longest call has some milliseconds.
const RATES: std::ops::RangeInclusive<u64> = 100_000_000..=2_000_000_000;

/// The severity of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Nothing that a call may notice but by its time.
    Harmless,
    /// Queue pairs break and posts are refused.
    Breaking,
    /// The link goes down and up, all queue pairs break at once, firmware hangs, queries fail, and
    /// the path carries shorter packets than before.
    Violent,
}

impl Severity {
    pub(crate) fn of(seed: u64) -> Self {
        match seed % 3 {
            0 => Self::Harmless,
            1 => Self::Breaking,
            _ => Self::Violent,
        }
    }
}

/// Returns the device of a run. In half of the runs each, it bonds two ports, its ports have rates,
/// and its traffic class is the lossless one.
pub(crate) fn device(seed: u64) -> SimDeviceConfig {
    let mut rng = fastrand::Rng::with_seed(seed.rotate_left(32));
    let mut config = SimDeviceConfig::new("sim0", &[HOST]);
    config.receive_drain = ReceiveDrain::LEAKY;
    let port = &mut config.ports[0];
    port.lag_ports = rng.u8(1..=2);
    if rng.bool() {
        (port.rate.per_port, port.rate.per_queue_pair) = (rng.u64(RATES), rng.u64(RATES));
    }
    port.traffic_class = if rng.bool() { SimFaults::default().lossless_class } else { 0 };
    config
}

/// Begins the faults of a run.
pub(crate) fn begin(network: &SimNetwork, severity: Severity, seed: u64) {
    let mut faults = SimFaults::harmless();
    faults.refused_receive = 0.02;
    faults.lossy_class = 0.02;
    if seed.is_multiple_of(7) {
        // The proof of a path waits 3 s for as many as three events in a row, and a lost LAG port
        // may take 0.8 s of them.
        faults.event_delay_max = Duration::from_millis(600);
    }
    drivers(&mut faults, seed);
    if severity != Severity::Harmless {
        faults.broken_queue_pair = 0.002;
        faults.cut_transfer = 0.002;
        faults.refused_post = 0.002;
        faults.refused_registration = 0.02;
        faults.kept_window = 0.05;
        if seed.is_multiple_of(5) {
            // From the beginning: no path is proven before its ends agree on a smaller MTU.
            network.set_path_mtu(HOST, HOST, SimMtu::B1024);
        }
    }
    network.set_faults(faults);
    network.set_latency(Duration::from_micros(5)..=Duration::from_millis(3));
}

/// Sets the driver's treatment of the receives of dying queue pairs, each in half of the runs.
fn drivers(faults: &mut SimFaults, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(!seed);
    for likelihood in [
        &mut faults.purge_on_destroy,
        &mut faults.late_last_receive,
        &mut faults.missing_last_receive,
        &mut faults.lost_receive,
    ] {
        *likelihood = if rng.bool() { 0.0 } else { rng.f64() };
    }
}
