//! The faults of a run.

use std::time::Duration;

use farcall::sim::{SimDevice, SimFaults, SimNetwork};

/// The severity of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Nothing that a call may notice but by its time.
    Harmless,
    /// Queue pairs break and posts are refused.
    Breaking,
    /// The link goes down and up, and all queue pairs break at once.
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

/// Begins the faults of a run.
pub(crate) fn begin(network: &SimNetwork, severity: Severity, seed: u64) {
    let mut faults = SimFaults::harmless();
    faults.refused_receive = 0.02;
    if seed.is_multiple_of(7) {
        // Long, and shorter than what a connection waits for by itself.
        faults.event_delay_max = Duration::from_secs(1);
    }
    drivers(&mut faults, seed);
    if severity != Severity::Harmless {
        faults.broken_queue_pair = 0.002;
        faults.cut_transfer = 0.002;
        faults.refused_post = 0.002;
        faults.refused_registration = 0.02;
        faults.kept_window = 0.05;
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

/// Disturbs the device from outside, until it is dropped.
pub(crate) async fn pester(device: SimDevice, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(20..400))).await;
        match rng.u8(..3) {
            0 => device.break_queue_pairs(),
            _ => {
                device.link_down();
                tokio::time::sleep(Duration::from_millis(rng.u64(1..800))).await;
                device.link_up();
            }
        }
    }
}
