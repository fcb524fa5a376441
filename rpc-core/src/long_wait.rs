//! Waits of seconds, which are always under way, outside of the runtime's timers.
//!
//! While a timer of a tokio runtime is set, each of its waits for I/O ends at a time: the runtime
//! reads the clock and looks through its timers around it, and the kernel sets a timer of its own.
//! A call alone on a TCP connection takes a twentieth longer for that. What looks after a
//! connection waits as long as the connection lives, and is never urgent, so that a thread of
//! `futures-timer`, one for the process, keeps its time.

use std::time::Instant;

use futures_timer::Delay;

/// Waits until then; late by what a thread takes to wake this one. On a runtime whose clock is not
/// the system's, because a test has paused it, the runtime keeps the time.
///
/// # Cancel safety
///
/// Nothing is lost when it is dropped.
pub(crate) async fn wait_until(due: Instant) {
    if has_system_clock() {
        Delay::new(due.saturating_duration_since(Instant::now())).await;
    } else {
        // In memory of its own, which is not needed otherwise.
        Box::pin(tokio::time::sleep_until(due.into())).await;
    }
}

/// A paused clock stands at a time before this, or was moved beyond it.
fn has_system_clock() -> bool {
    let before = Instant::now();
    let now = tokio::time::Instant::now().into_std();
    before <= now && now <= Instant::now()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Far more than any test takes.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn it_needs_no_timer_of_the_runtime() {
        // Without timers: asked for one, it would panic.
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let due = Instant::now() + Duration::from_millis(1);
        runtime.block_on(wait_until(due));
        assert!(Instant::now() >= due);
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_is_followed() {
        let start = tokio::time::Instant::now();
        wait_until((start + LONG).into_std()).await;
        assert!(start.elapsed() >= LONG);
    }
}
