//! Memory of paths that failed their proofs, by pair of addresses.
//!
//! A path that drops long packets is tried once more at once, with packets that nearly every path
//! carries. One that fails then, or brings wrong bytes, is paused: each attempt costs both ends
//! queue pairs and up to three seconds. Nothing here concerns a device or another pair, so that a
//! peer that fails proofs on purpose costs its own address alone. Time is an argument.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use rpc_core::Deadline;
use tokio::time::Instant;

use crate::verbs::{Gid, Mtu};

/// The MTU that is tried after a larger one: that of Ethernet's usual 1,500 bytes.
const NARROW: Mtu = Mtu::B1024;

/// Time for which a failure is kept. Networks are repaired, and MTUs raised.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// Pause after the first failure that another MTU cannot help. It doubles with each further one,
/// up to [`KEPT_FOR`].
const FIRST_PAUSE: Duration = Duration::from_secs(60);

/// Pairs kept at most. The one that failed first makes way.
const COUNT_MAX: usize = 4096;

/// Two addresses that a path joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AddressPair {
    /// The GID of the port here.
    pub(crate) local: Gid,
    /// The address of the peer on the byte stream.
    pub(crate) peer: IpAddr,
}

/// Pairs of addresses whose paths failed.
#[derive(Debug, Default)]
pub(crate) struct PathMemory(Mutex<HashMap<AddressPair, FailedPath>>);

#[derive(Debug)]
struct FailedPath {
    failed_at: Instant,
    /// The largest MTU to offer.
    mtu_max: Mtu,
    pause: Option<Pause>,
}

#[derive(Debug, Clone)]
struct Pause {
    until: Instant,
    length: Duration,
    reason: String,
}

impl PathMemory {
    /// Returns the largest MTU to offer for a path.
    ///
    /// # Errors
    ///
    /// Returns the reason if the pair is paused.
    pub(crate) fn mtu_max(&self, pair: AddressPair, now: Instant) -> Result<Mtu, String> {
        let mut failed = self.0.lock();
        failed.retain(|_, path| path.is_kept(now));
        let Some(path) = failed.get(&pair) else { return Ok(Mtu::B4096) };
        let Some(pause) = path.pause.as_ref().filter(|pause| now < pause.until) else {
            return Ok(path.mtu_max);
        };
        let seconds = (pause.until - now).as_millis().div_ceil(1000);
        let AddressPair { local, peer } = pair;
        Err(format!(
            "the path from {local} to {peer} failed its proof and is tried again in {seconds} s: \
             {}",
            pause.reason
        ))
    }

    /// Records that a path failed at `mtu`. Returns true if a smaller MTU may help.
    pub(crate) fn handle_failure(
        &self,
        pair: AddressPair,
        mtu: Mtu,
        loses_packets: bool,
        reason: &str,
        now: Instant,
    ) -> bool {
        let mut failed = self.0.lock();
        failed.retain(|_, path| path.is_kept(now));
        if failed.len() >= COUNT_MAX && !failed.contains_key(&pair) {
            let oldest = failed.iter().min_by_key(|(_, path)| path.failed_at);
            let oldest = oldest.map(|(pair, _)| *pair);
            oldest.into_iter().for_each(|pair| drop(failed.remove(&pair)));
        }
        let fresh = FailedPath { failed_at: now, mtu_max: Mtu::B4096, pause: None };
        let path = failed.entry(pair).or_insert(fresh);
        path.failed_at = now;
        if loses_packets && mtu > NARROW {
            path.mtu_max = NARROW;
            return true;
        }
        // Attempts that were made at the same time fail together, and are one failure.
        if path.pause.as_ref().is_some_and(|pause| now < pause.until) {
            return false;
        }
        let length = path.pause.as_ref().map_or(FIRST_PAUSE, |pause| 2 * pause.length);
        let length = length.min(KEPT_FOR);
        let until = Deadline::after(now, length).0;
        path.pause = Some(Pause { until, length, reason: reason.to_owned() });
        false
    }
}

impl FailedPath {
    /// Returns true if it still counts. A pause that was long is remembered for as long again, so
    /// that the next one is longer.
    fn is_kept(&self, now: Instant) -> bool {
        let paused_until = self.pause.as_ref().map(|pause| pause.until);
        let since = paused_until.map_or(self.failed_at, |until| until.max(self.failed_at));
        now < Deadline::after(since, KEPT_FOR).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(host: u32) -> AddressPair {
        let peer = IpAddr::from((0x0a00_0000 + host).to_be_bytes());
        AddressPair { local: Gid::from_ip([10, 0, 0, 1].into()), peer }
    }

    #[test]
    fn a_path_is_tried_at_a_smaller_mtu_first_and_then_paused() {
        let (memory, start) = (PathMemory::default(), Instant::now());
        assert!(memory.handle_failure(pair(2), Mtu::B4096, true, "lost", start));
        assert_eq!(memory.mtu_max(pair(2), start), Ok(Mtu::B1024), "at once");
        let mut now = start;
        for seconds in [60, 120, 240, 480, 600, 600] {
            assert!(!memory.handle_failure(pair(2), Mtu::B1024, true, "still lost", now));
            let paused = memory.mtu_max(pair(2), now).unwrap_err();
            assert!(paused.contains("10.0.0.2") && paused.contains("still lost"), "{paused}");
            now += Duration::from_secs(seconds - 1);
            assert!(memory.mtu_max(pair(2), now).is_err(), "{seconds} s");
            now += Duration::from_secs(1);
            assert_eq!(memory.mtu_max(pair(2), now), Ok(Mtu::B1024), "{seconds} s");
        }
        assert_eq!(memory.mtu_max(pair(3), start), Ok(Mtu::B4096), "another pair");
        assert_eq!(memory.mtu_max(pair(2), now + 2 * KEPT_FOR), Ok(Mtu::B4096));
    }

    #[test]
    fn wrong_bytes_pause_a_path_at_once() {
        let (memory, now) = (PathMemory::default(), Instant::now());
        assert!(!memory.handle_failure(pair(2), Mtu::B4096, false, "wrong bytes", now));
        assert!(memory.mtu_max(pair(2), now).is_err());
        assert_eq!(memory.mtu_max(pair(2), now + FIRST_PAUSE), Ok(Mtu::B4096));
    }

    #[test]
    fn failures_of_simultaneous_attempts_pause_once() {
        let (memory, now) = (PathMemory::default(), Instant::now());
        for ms in 0..10 {
            let now = now + Duration::from_millis(ms);
            assert!(!memory.handle_failure(pair(2), Mtu::B1024, true, "lost", now));
        }
        assert_eq!(memory.mtu_max(pair(2), now + FIRST_PAUSE), Ok(Mtu::B4096));
        let later = now + FIRST_PAUSE;
        memory.handle_failure(pair(2), Mtu::B1024, true, "lost", later);
        assert!(memory.mtu_max(pair(2), later + FIRST_PAUSE).is_err(), "twice as long");
    }

    #[test]
    fn a_smaller_mtu_outlives_an_earlier_pause() {
        let (memory, start) = (PathMemory::default(), Instant::now());
        memory.handle_failure(pair(2), Mtu::B4096, false, "wrong bytes", start);
        let lost = start + KEPT_FOR;
        assert!(memory.handle_failure(pair(2), Mtu::B4096, true, "lost", lost));
        let before = lost + KEPT_FOR - Duration::from_secs(1);
        assert_eq!(memory.mtu_max(pair(2), before), Ok(Mtu::B1024));
        assert_eq!(memory.mtu_max(pair(2), lost + KEPT_FOR), Ok(Mtu::B4096));
    }

    #[test]
    fn the_oldest_failure_makes_way() {
        let (memory, now) = (PathMemory::default(), Instant::now());
        for host in 0..u32::try_from(COUNT_MAX).unwrap() + 1 {
            let now = now + Duration::from_millis(host.into());
            memory.handle_failure(pair(host), Mtu::B4096, true, "lost", now);
        }
        let now = now + Duration::from_secs(10);
        assert_eq!(memory.0.lock().len(), COUNT_MAX);
        assert_eq!(memory.mtu_max(pair(0), now), Ok(Mtu::B4096));
        assert_eq!(memory.mtu_max(pair(1), now), Ok(Mtu::B1024));
    }
}
