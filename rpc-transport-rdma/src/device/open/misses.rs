//! Addresses that no RDMA port was found for, for a short time.
//!
//! Looking for a port opens every device, which costs system calls and firmware commands; whose
//! connections come in by an address without one would make each handshake cost that. Devices that
//! are not in use send no event when an address or a port comes, so what was not found is looked
//! for again after [`KEPT_FOR`]. Time is an argument.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rpc_core::Deadline;
use tokio::time::Instant;

use crate::device::DeviceError;

/// How long a search that found nothing stands for others: one search a second costs a few percent
/// of a processor at worst (10 to 50 ms a device), and people who bring a port up wait that long.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(1);

/// Addresses kept at most, so that it is bounded whatever asks; a host has fewer.
const COUNT_MAX: usize = 1024;

/// Searches that found nothing, by the local address that they looked for.
#[derive(Debug, Default)]
pub(super) struct Misses(HashMap<IpAddr, Miss>);

#[derive(Debug)]
struct Miss {
    until: Instant,
    error: Arc<DeviceError>,
}

impl Misses {
    /// Why nothing was found for an address, if it was looked for a short time ago.
    pub(super) fn get(&self, address: IpAddr, now: Instant) -> Option<Arc<DeviceError>> {
        let miss = self.0.get(&address).filter(|miss| now < miss.until)?;
        Some(Arc::clone(&miss.error))
    }

    /// Keeps why nothing was found for an address.
    pub(super) fn keep(&mut self, address: IpAddr, error: Arc<DeviceError>, now: Instant) {
        self.0.retain(|_, miss| now < miss.until);
        if self.0.len() < COUNT_MAX {
            let until = Deadline::after(now, KEPT_FOR).0;
            self.0.insert(address, Miss { until, error });
        }
    }

    /// Forgets everything, because a device has said that something changed.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_found_is_kept_for_its_time_and_bounded() {
        let (mut misses, now) = (Misses::default(), Instant::now());
        let address = |index: u32| IpAddr::from(index.to_be_bytes());
        for index in 0..2 * u32::try_from(COUNT_MAX).unwrap() {
            misses.keep(address(index), Arc::new(DeviceError::NoDevice), now);
        }
        assert_eq!(misses.0.len(), COUNT_MAX);
        assert!(misses.get(address(0), now + KEPT_FOR / 2).is_some());
        assert!(misses.get(address(0), now + KEPT_FOR).is_none());
        misses.keep(address(7), Arc::new(DeviceError::NoDevice), now + KEPT_FOR);
        assert_eq!(misses.0.len(), 1, "what is too old makes way");
        misses.clear();
        assert!(misses.get(address(7), now + KEPT_FOR).is_none());
    }
}
