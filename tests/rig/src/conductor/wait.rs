//! Waits for a condition that nothing announces.

use std::time::{Duration, Instant};

use crate::RigError;

/// Between two looks at the condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until something holds, and returns the time that it took.
pub(crate) fn until(
    what: &str,
    limit: Duration,
    mut holds: impl FnMut() -> Result<bool, RigError>,
) -> Result<Duration, RigError> {
    let started = Instant::now();
    while !holds()? {
        if started.elapsed() > limit {
            return Err(RigError::late(what, limit));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(started.elapsed())
}
