//! Classifies errors by the obstacle that they put in a path's way.

use rpc_core::connect::{Declined, Obstacle};

use crate::device::DeviceError;
use crate::verbs::VerbsError;

/// Declines what the settings, or the address, exclude.
pub(super) fn excluded(reason: impl Into<String>) -> Declined {
    Declined::with(Obstacle::Excluded, reason)
}

/// Declines what other connections leave no room for.
pub(super) fn in_use(reason: String) -> Declined {
    Declined::with(Obstacle::InUse, reason)
}

/// Returns the obstacle behind an error of a device or of a search for one.
fn obstacle(error: &(dyn std::error::Error + 'static)) -> Obstacle {
    let device: Option<&DeviceError> = error.downcast_ref();
    let verbs = match device {
        Some(DeviceError::NoDevice) => return Obstacle::NoDevice,
        Some(DeviceError::InvalidName { .. } | DeviceError::NoSuchPort { .. }) => {
            return Obstacle::Excluded;
        }
        Some(DeviceError::SearchPending { .. }) => return Obstacle::Refused,
        Some(DeviceError::Verbs(error) | DeviceError::NoAnswer { source: error, .. }) => {
            Some(error)
        }
        Some(_) => return Obstacle::NoPort,
        None => error.downcast_ref(),
    };
    match verbs {
        Some(VerbsError::Library { is_missing: true, .. }) => Obstacle::NoLibrary,
        Some(VerbsError::Library { is_missing: false, .. }) => Obstacle::UnusableLibrary,
        // Otherwise it is the machine or the device that has nothing left for now.
        Some(error) if error.is_over_lock_limit() => Obstacle::LockLimit,
        Some(VerbsError::LimitExceeded { .. }) => Obstacle::Excluded,
        Some(VerbsError::NoSuchDevice { .. }) => Obstacle::NoSuchDevice,
        Some(VerbsError::CompletionQueueFull { .. }) => Obstacle::InUse,
        _ => Obstacle::Refused,
    }
}

/// An error with its causes, in one line.
pub(super) fn declined(error: &(dyn std::error::Error + 'static)) -> Declined {
    let obstacle = obstacle(error);
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    Declined::with(obstacle, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::LockedMemory;

    #[test]
    fn each_error_stands_for_its_obstacle() {
        let lock = |limit| {
            let memory = LockedMemory { locked: 1 << 16, limit };
            VerbsError::out_of_memory("register memory", 1, memory, None)
        };
        let library = |is_missing| VerbsError::Library { reason: "none".into(), is_missing };
        let named = VerbsError::NoSuchDevice { name: "a".into(), found: Vec::new() };
        let down = DeviceError::PortDown {
            address: std::net::Ipv4Addr::LOCALHOST.into(),
            device: "a".into(),
            port: 1,
            state: 1,
        };
        let refused = std::io::Error::from_raw_os_error(libc::EBUSY);
        let full = VerbsError::CompletionQueueFull { wanted: 2, free: 1, capacity: 4 };
        let table: [(Box<dyn std::error::Error>, Obstacle, bool); 10] = [
            (Box::new(lock(Some(1 << 16))), Obstacle::LockLimit, false),
            (Box::new(lock(None)), Obstacle::Refused, true),
            (Box::new(library(true)), Obstacle::NoLibrary, false),
            (Box::new(DeviceError::Verbs(library(true))), Obstacle::NoLibrary, false),
            (Box::new(library(false)), Obstacle::UnusableLibrary, false),
            (Box::new(named), Obstacle::NoSuchDevice, true),
            (Box::new(DeviceError::NoDevice), Obstacle::NoDevice, true),
            (Box::new(down), Obstacle::NoPort, true),
            (Box::new(VerbsError::system("open it", refused)), Obstacle::Refused, true),
            (Box::new(full), Obstacle::InUse, true),
        ];
        for (error, expected, can_pass) in table {
            let found = declined(&*error).obstacle;
            assert_eq!((found, found.can_pass()), (expected, can_pass), "{error}");
        }
    }
}
