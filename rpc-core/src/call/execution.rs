//! The marks on a status that say whether its call may have been executed.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;
use tonic::{Code, Status};

use crate::connect::ConnectError;

/// The source of a status whose call no handler has seen, so that starting it again is safe
/// whatever it does.
///
/// A call that was never sent has it, and one that the server refused: because it shuts down,
/// because a limit was met, or because it has no such method. A status without it says nothing:
/// the call may have been executed, or not.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("no handler has seen the call")]
pub struct NotExecuted;

/// A status shows its source in this way, and its text behind it.
impl fmt::Debug for NotExecuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NotExecuted")
    }
}

impl NotExecuted {
    /// Whether the status says that its call was not executed.
    #[must_use]
    pub fn is_said_by(status: &Status) -> bool {
        // Without a connection nothing was sent either.
        status.source().is_some_and(<dyn Error>::is::<Self>) || ConnectError::of(status).is_some()
    }

    /// Marks a status, unless it has a source that says more. Public for the crates that make calls
    /// by another protocol.
    #[doc(hidden)]
    #[must_use]
    pub fn mark(mut status: Status) -> Status {
        if status.source().is_none() {
            status.set_source(Arc::new(Self));
        }
        status
    }

    /// Whether the call may be retried transparently: a server that is going away refused it, as
    /// opposed to one that has met a limit.
    pub(crate) fn is_retryable(status: &Status) -> bool {
        let is_marked = status.source().is_some_and(<dyn Error>::is::<Self>);
        status.code() == Code::Unavailable && is_marked
    }
}

/// The source of a status whose call was in flight when its connection ended: it may have been
/// executed, or not, and no peer is left that could tell.
///
/// A method that is idempotent by its `.proto` (`idempotency_level`) is then called once more, and
/// its caller sees this only when that was not possible or ended in the same way. A status without
/// this mark and without [`crate::NotExecuted`] comes from the server or from a deadline.
///
/// # Examples
///
/// ```
/// use farcall::{MayHaveExecuted, NotExecuted, Status};
///
/// fn advice(status: &Status) -> &'static str {
///     if NotExecuted::is_said_by(status) {
///         "call again"
///     } else if MayHaveExecuted::is_said_by(status) {
///         "look first whether it has happened"
///     } else {
///         "the server has decided"
///     }
/// }
/// # assert_eq!(advice(&Status::aborted("no")), "the server has decided");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("the call was in flight when its connection ended: it may have been executed")]
pub struct MayHaveExecuted;

/// A status shows its source in this way, and its text behind it.
impl fmt::Debug for MayHaveExecuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MayHaveExecuted")
    }
}

impl MayHaveExecuted {
    /// Whether the status says that its call may have been executed.
    #[must_use]
    pub fn is_said_by(status: &Status) -> bool {
        status.source().is_some_and(<dyn Error>::is::<Self>)
    }

    /// Marks a status, whatever it said before: a call of which one attempt may have been executed
    /// stays so, also when a later attempt surely was not. Public for the crates that make calls by
    /// another protocol.
    #[doc(hidden)]
    #[must_use]
    pub fn mark(mut status: Status) -> Status {
        status.set_source(Arc::new(Self));
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_marked_status_says_that_nothing_was_executed() {
        let plain = Status::unavailable("gone");
        assert!(!NotExecuted::is_said_by(&plain));
        let marked = NotExecuted::mark(plain);
        assert!(NotExecuted::is_said_by(&marked));
        assert!(NotExecuted::is_retryable(&marked));
    }

    #[test]
    fn a_limit_that_was_met_invites_no_other_start() {
        let shed = NotExecuted::mark(Status::resource_exhausted("full"));
        assert!(NotExecuted::is_said_by(&shed));
        assert!(!NotExecuted::is_retryable(&shed));
    }

    #[test]
    fn the_mark_takes_the_place_of_the_opposite_one() {
        let never_sent = NotExecuted::mark(Status::unavailable("gone"));
        assert!(!MayHaveExecuted::is_said_by(&never_sent));
        let replayed = MayHaveExecuted::mark(never_sent);
        assert!(MayHaveExecuted::is_said_by(&replayed) && !NotExecuted::is_said_by(&replayed));
    }
}
