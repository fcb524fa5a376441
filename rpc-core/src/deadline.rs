//! Deadlines: where a call's comes from and how it crosses the wire.
//!
//! A deadline is an instant of the local clock; what is sent is what is left of it, in
//! microseconds, so that the clocks of two hosts need not agree. Nothing here waits.
//!
//! A call inherits the deadline of the call whose handler makes it. The server sets it for its
//! thread around everything that it polls for a call, and a [`crate::Channel`] takes the earliest
//! of what its caller, its own rules and this say. A task that a handler spawns inherits nothing by
//! itself; [`Deadline::scope`] carries it there.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// The key under which `Request::set_timeout` leaves the timeout.
const GRPC_TIMEOUT: &str = "grpc-timeout";

/// The longest timeout that is told apart from none: a year keeps every sum of instants in range.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

thread_local! {
    /// The deadline that the code on this thread inherits. A plain cell, not one of tokio's
    /// task-locals: every call sets it, and that takes a few instructions.
    static INHERITED: Cell<Option<Deadline>> = const { Cell::new(None) };
}

/// The instant at which a call ends with `DEADLINE_EXCEEDED` if it has not ended before.
///
/// Insert one into `request.extensions_mut()` to set a call's deadline without the cost of
/// `Request::set_timeout`, which formats a header; a handler finds its call's deadline in
/// `request.extensions()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub Instant);

impl Deadline {
    /// The deadline `timeout` after `now`.
    #[must_use]
    pub fn after(now: Instant, timeout: Duration) -> Self {
        Self(now + timeout.min(TIMEOUT_MAX))
    }

    /// The deadline that a request header carries, from now on: 0 stands for none. The clock is
    /// looked at only where there is one.
    #[must_use]
    pub(crate) fn from_wire(timeout_us: u64) -> Option<Self> {
        (timeout_us > 0).then(|| Self::after(Instant::now(), Duration::from_micros(timeout_us)))
    }

    /// Returns the remaining time at `now`, in microseconds for the wire. At least 1, because 0
    /// stands for none.
    #[must_use]
    pub(crate) fn to_wire(self, now: Instant) -> u64 {
        let left = self.0.saturating_duration_since(now);
        u64::try_from(left.as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// Returns true if the deadline has passed at `now`.
    #[must_use]
    pub fn has_passed(self, now: Instant) -> bool {
        self.0 <= now
    }

    /// The deadline of the call that is being handled; `None` outside of one, and where the call
    /// has none.
    #[must_use]
    pub fn current() -> Option<Self> {
        INHERITED.get()
    }

    /// Returns the remaining time. Zero if the deadline has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Runs `future` as if it handled a call with that deadline: calls that it makes inherit it.
    /// What is inherited already stays in force, so that a deadline can only come nearer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe as `future` is.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example() {
    /// use farcall::Deadline;
    ///
    /// // A task of its own inherits nothing unless it is told.
    /// let inherited = Deadline::current();
    /// tokio::spawn(Deadline::scope(inherited, async {
    ///     // Calls made here end with the call that is being handled.
    /// }));
    /// # }
    /// ```
    pub fn scope<F: Future>(
        deadline: Option<Self>,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        let earliest = deadline.into_iter().chain(Self::current()).min();
        Inheriting { deadline: earliest, future: Some(future) }
    }

    /// Runs `future` without inheriting: calls that it makes have the deadlines that they set
    /// themselves, and those only. The future is still dropped with the handler that awaits it;
    /// to outlive the handler it has to be spawned.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe as `future` is.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn write_audit_log() {}
    /// # async fn example() {
    /// use farcall::Deadline;
    ///
    /// // The call that this makes is not cut short with the one that is being handled.
    /// Deadline::detached(write_audit_log()).await;
    /// # }
    /// ```
    pub fn detached<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
        Inheriting { deadline: None, future: Some(future) }
    }
}

/// The deadline that the code of this thread inherits until this is dropped, whatever it inherited
/// before: with the in-process transport, that may be the deadline of the caller's own call.
pub(crate) struct Inherited {
    outer: Option<Deadline>,
}

impl Inherited {
    pub(crate) fn enter(deadline: Option<Deadline>) -> Self {
        Self { outer: INHERITED.replace(deadline) }
    }
}

impl Drop for Inherited {
    fn drop(&mut self) {
        INHERITED.set(self.outer);
    }
}

pin_project! {
    /// A future that inherits a deadline while it is polled, and while it is dropped.
    struct Inheriting<F> {
        deadline: Option<Deadline>,
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for Inheriting<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _inherited = Inherited::enter(*this.deadline);
            this.future.set(None);
        }
    }
}

impl<F: Future> Future for Inheriting<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let _inherited = Inherited::enter(*this.deadline);
        // Polled after its end, it has nothing to poll.
        let Some(future) = this.future.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = future.poll(context);
        if polled.is_ready() {
            this.future.set(None);
        }
        polled
    }
}

/// A length of time without the digits that a reader of a message has no use for: to a thousandth
/// of its unit.
pub(crate) fn rounded(time: Duration) -> Duration {
    let step = match time.as_nanos() {
        1_000_000_000.. => 1_000_000,
        1_000_000.. => 1_000,
        _ => 1,
    };
    let steps = (time.as_nanos() + step / 2) / step;
    Duration::from_nanos(u64::try_from(steps * step).unwrap_or(u64::MAX))
}

/// Takes the timeout that `Request::set_timeout` left in `metadata` out of it.
///
/// The value is gRPC's: at most eight digits and a unit of `H`, `M`, `S`, `m`, `u` or `n`. One that
/// does not parse is left out of the call, as tonic does.
#[inline]
pub(crate) fn take_grpc_timeout(metadata: &mut MetadataMap) -> Option<Duration> {
    if metadata.is_empty() {
        return None;
    }
    let value = metadata.remove(GRPC_TIMEOUT)?;
    parse_grpc_timeout(value.to_str().ok()?)
}

/// The timeout that `Request::set_timeout` left in `metadata`, where it is left.
#[must_use]
pub fn grpc_timeout(metadata: &MetadataMap) -> Option<Duration> {
    parse_grpc_timeout(metadata.get(GRPC_TIMEOUT)?.to_str().ok()?)
}

/// Returns true for the value of a `grpc-timeout` that says a time.
#[must_use]
pub fn is_grpc_timeout(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|text| parse_grpc_timeout(text).is_some())
}

fn parse_grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_timeout_is_understood_and_taken_out() {
        let mut request = tonic::Request::new(());
        request.set_timeout(Duration::from_millis(1500));
        assert_eq!(grpc_timeout(request.metadata()), Some(Duration::from_millis(1500)));
        let taken = take_grpc_timeout(request.metadata_mut());
        assert_eq!(taken, Some(Duration::from_millis(1500)));
        assert!(request.metadata().is_empty());
    }

    #[test]
    fn a_length_of_time_is_rounded_to_what_a_reader_can_use() {
        for (nanos, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_500_499, "1.5ms"),
            (1_999_970_000, "2s"),
            (61_234_567_890, "61.235s"),
        ] {
            assert_eq!(format!("{:?}", rounded(Duration::from_nanos(nanos))), text);
        }
    }

    #[test]
    fn malformed_timeouts_are_left_out() {
        for text in ["", "S", "12", "123456789S", "1.5S", "-1S", "1x", "é"] {
            assert_eq!(parse_grpc_timeout(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_passed_deadline_still_crosses_the_wire_as_a_deadline() {
        let now = Instant::now();
        let deadline = Deadline(now);
        assert!(deadline.has_passed(now));
        assert_eq!(deadline.to_wire(now), 1);
        assert_eq!(Deadline::from_wire(0), None);
        assert!(Deadline::from_wire(u64::MAX).is_some());
    }

    #[tokio::test]
    async fn a_scope_only_brings_the_deadline_nearer() {
        let now = Instant::now();
        let near = Deadline::after(now, Duration::from_secs(1));
        let far = Deadline::after(now, Duration::from_secs(2));
        assert_eq!(Deadline::current(), None);
        let outer = Deadline::scope(Some(near), async {
            assert_eq!(Deadline::current(), Some(near));
            Deadline::scope(Some(far), async { assert_eq!(Deadline::current(), Some(near)) }).await;
            Deadline::scope(None, async { assert_eq!(Deadline::current(), Some(near)) }).await;
            Deadline::detached(async { assert_eq!(Deadline::current(), None) }).await;
            assert_eq!(Deadline::current(), Some(near));
        });
        outer.await;
        assert_eq!(Deadline::current(), None);
    }

    /// Notes the deadline that it is dropped under.
    struct Dropped<'a>(&'a Cell<Option<Deadline>>);

    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.set(Deadline::current());
        }
    }

    #[tokio::test]
    async fn future_is_dropped_under_the_deadline_of_its_scope() {
        let (seen, deadline) = (Cell::new(None), Deadline(Instant::now()));
        let dropped = Dropped(&seen);
        let mut waiting = Box::pin(Deadline::scope(Some(deadline), async move {
            let _dropped = dropped;
            std::future::pending::<()>().await;
        }));
        assert!(futures::poll!(&mut waiting).is_pending());
        assert_eq!(Deadline::current(), None);
        drop(waiting);
        assert_eq!((seen.get(), Deadline::current()), (Some(deadline), None));
    }

    #[test]
    fn panic_gives_the_outer_deadline_back() {
        let deadline = Deadline(Instant::now());
        let panicked = std::panic::catch_unwind(|| {
            let _inherited = Inherited::enter(Some(deadline));
            // As `panic!`, without a backtrace among the output of the tests.
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(panicked.is_err());
        assert_eq!(Deadline::current(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_remains_never_goes_below_zero() {
        let deadline = Deadline::after(Instant::now(), Duration::from_secs(1));
        assert_eq!(deadline.remaining(), Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(deadline.remaining(), Duration::ZERO);
    }
}
