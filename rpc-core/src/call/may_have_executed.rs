//! The mark of a status whose call was on its way when its connection ended.

use std::error::Error;
use std::sync::Arc;

use thiserror::Error;
use tonic::Status;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the call was in flight when its connection ended: it may have been executed")]
pub struct MayHaveExecuted;

impl MayHaveExecuted {
    /// Whether the status says that its call may have been executed.
    #[must_use]
    pub fn is_said_by(status: &Status) -> bool {
        status.source().is_some_and(<dyn Error>::is::<Self>)
    }

    /// Marks a status, whatever it said before: a call of which one attempt may have been executed
    /// stays so, also when a later attempt surely was not.
    pub(crate) fn mark(mut status: Status) -> Status {
        status.set_source(Arc::new(Self));
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NotExecuted;

    #[test]
    fn the_mark_takes_the_place_of_the_opposite_one() {
        let never_sent = NotExecuted::mark(Status::unavailable("gone"));
        assert!(!MayHaveExecuted::is_said_by(&never_sent));
        let replayed = MayHaveExecuted::mark(never_sent);
        assert!(MayHaveExecuted::is_said_by(&replayed) && !NotExecuted::is_said_by(&replayed));
    }
}
