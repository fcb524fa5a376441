//! The deadline that calls inherit from the call whose handler makes them.
//!
//! It is a task-local: the server sets it around everything that it polls for a call, and a
//! [`crate::Channel`] takes the earliest of what its caller, its own rules and this say. A task
//! that a handler spawns inherits nothing by itself; [`Deadline::scope`] carries it there.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::Deadline;

tokio::task_local! {
    static INHERITED: Option<Deadline>;
}

impl Deadline {
    /// The deadline of the call that is being handled; `None` outside of one, and where the call
    /// has none.
    #[must_use]
    pub fn current() -> Option<Self> {
        INHERITED.try_with(|deadline| *deadline).ok().flatten()
    }

    /// What is left now; zero when the deadline has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Runs `future` as if it handled a call with that deadline: calls that it makes inherit it.
    /// What is inherited already stays in force, so that a deadline can only come nearer.
    ///
    /// # Cancel safety
    ///
    /// As `future`.
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
        INHERITED.scope(earliest, future)
    }

    /// Runs `future` without inheriting: calls that it makes have the deadlines that they set
    /// themselves, and those only. The future is still dropped with the handler that awaits it;
    /// to outlive the handler it has to be spawned.
    ///
    /// # Cancel safety
    ///
    /// As `future`.
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
        INHERITED.scope(None, future)
    }

    /// Runs `future` for a call with that deadline, whatever the task around it inherits: with the
    /// in-process transport that may be the caller's own.
    pub(crate) fn of_call<F: Future>(
        deadline: Option<Self>,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        INHERITED.scope(deadline, future)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[tokio::test(start_paused = true)]
    async fn what_remains_never_goes_below_zero() {
        let deadline = Deadline::after(Instant::now(), Duration::from_secs(1));
        assert_eq!(deadline.remaining(), Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(deadline.remaining(), Duration::ZERO);
    }
}
