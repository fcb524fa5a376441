//! The marks on a status that say whether its call may have been executed.
//!
//! A status has one source, and the mark is it. What ended the connection is the source of the
//! mark, for programs that tell a failed link from a peer that broke the protocol.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;
use tonic::{Code, Status};

use crate::Deadline;
use crate::connect::ConnectError;
use crate::transport::CloseReason;

/// The error behind a status.
type Cause = Arc<dyn Error + Send + Sync>;

/// The source of a status whose connection has ended, until the call is marked.
#[derive(Clone)]
struct ConnectionEnded(CloseReason);

impl fmt::Display for ConnectionEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection has ended")
    }
}

/// A status shows its source in this way, and has the reason in its text.
impl fmt::Debug for ConnectionEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionEnded")
    }
}

impl Error for ConnectionEnded {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// Makes the end of a connection the source of a status.
pub(crate) fn ended_by(mut status: Status, reason: &CloseReason) -> Status {
    status.set_source(Arc::new(ConnectionEnded(reason.clone())));
    status
}

/// Returns the error behind a status that this module or a channel without a connection has made.
fn cause(status: &Status) -> Option<Cause> {
    let source = status.source()?;
    if let Some(NotExecuted { cause }) = source.downcast_ref() {
        return cause.clone();
    }
    if let Some(MayHaveExecuted { cause }) = source.downcast_ref() {
        return cause.clone();
    }
    if let Some(ConnectionEnded(reason)) = source.downcast_ref() {
        return Some(Arc::new(reason.clone()));
    }
    ConnectError::shared_of(status).map(|error| error as Cause)
}

/// The source of a status whose call no handler has seen, so that starting it again is safe
/// whatever it does.
///
/// A call that was never sent has it, and one that the server refused: because it shuts down,
/// because a limit was met, or because it has no such method. A status without it says nothing:
/// the call may have been executed, or not.
///
/// Its own source is what ended the connection, where that is the reason: a
/// [`CloseReason`](crate::transport::CloseReason).
#[derive(Clone)]
pub struct NotExecuted {
    cause: Option<Cause>,
}

impl fmt::Display for NotExecuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no handler has seen the call")
    }
}

impl Error for NotExecuted {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

/// A status shows its source in this way, and its text behind it.
impl fmt::Debug for NotExecuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NotExecuted")
    }
}

impl NotExecuted {
    /// Returns true if the call that ended with `status` was not executed.
    #[must_use]
    pub fn matches(status: &Status) -> bool {
        // Without a connection nothing was sent either.
        status.source().is_some_and(<dyn Error>::is::<Self>) || ConnectError::of(status).is_some()
    }

    /// Marks a status, unless it has a source that says more. Public for the crates that make calls
    /// by another protocol.
    #[doc(hidden)]
    #[must_use]
    pub fn mark(mut status: Status) -> Status {
        if status.source().is_none_or(<dyn Error>::is::<ConnectionEnded>) {
            let cause = cause(&status);
            status.set_source(Arc::new(Self { cause }));
        }
        status
    }

    /// Returns true if the call may be retried transparently: a server that is going away refused
    /// it, as opposed to one that has met a limit.
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
///     if NotExecuted::matches(status) {
///         "call again"
///     } else if MayHaveExecuted::matches(status) {
///         "look first whether it has happened"
///     } else {
///         "the server has decided"
///     }
/// }
/// # assert_eq!(advice(&Status::aborted("no")), "the server has decided");
/// ```
///
/// Its own source is what ended the connection, where that is known: a
/// [`CloseReason`](crate::transport::CloseReason).
#[derive(Clone)]
pub struct MayHaveExecuted {
    cause: Option<Cause>,
}

impl fmt::Display for MayHaveExecuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the call was in flight when its connection ended, so it may have been \
                     executed",
        )
    }
}

impl Error for MayHaveExecuted {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

/// A status shows its source in this way, and its text behind it.
impl fmt::Debug for MayHaveExecuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MayHaveExecuted")
    }
}

impl MayHaveExecuted {
    /// Returns true if the call that ended with `status` may have been executed.
    #[must_use]
    pub fn matches(status: &Status) -> bool {
        status.source().is_some_and(<dyn Error>::is::<Self>)
    }

    /// Marks a status, whatever it said before: a call of which one attempt may have been executed
    /// stays so, also when a later attempt surely was not. Public for the crates that make calls by
    /// another protocol.
    #[doc(hidden)]
    #[must_use]
    pub fn mark(mut status: Status) -> Status {
        let cause = cause(&status);
        status.set_source(Arc::new(Self { cause }));
        status
    }
}

impl Deadline {
    /// Returns true if this deadline, which has passed, explains `status`. The peer and its
    /// protocol may keep the same deadline, and say so a moment before a timer of this side. A
    /// call that was never sent says more itself.
    pub(crate) fn is_cause_of(self, status: &Status) -> bool {
        matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded)
            && !NotExecuted::matches(status)
            && self.has_passed(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_marked_status_says_that_nothing_was_executed() {
        let plain = Status::unavailable("gone");
        assert!(!NotExecuted::matches(&plain));
        let marked = NotExecuted::mark(plain);
        assert!(NotExecuted::matches(&marked));
        assert!(NotExecuted::is_retryable(&marked));
    }

    #[test]
    fn a_limit_that_was_met_invites_no_other_start() {
        let shed = NotExecuted::mark(Status::resource_exhausted("full"));
        assert!(NotExecuted::matches(&shed));
        assert!(!NotExecuted::is_retryable(&shed));
    }

    #[test]
    fn marks_keep_what_ended_the_connection() {
        let ended = ended_by(Status::unavailable("gone"), &CloseReason::Peer);
        for marked in [
            NotExecuted::mark(ended.clone()),
            MayHaveExecuted::mark(ended.clone()),
            MayHaveExecuted::mark(NotExecuted::mark(ended.clone())),
        ] {
            assert_eq!(CloseReason::of(&marked), Some(&CloseReason::Peer));
        }
        assert_eq!(CloseReason::of(&MayHaveExecuted::mark(Status::unavailable("gone"))), None);
    }

    #[test]
    fn the_mark_takes_the_place_of_the_opposite_one() {
        let never_sent = NotExecuted::mark(Status::unavailable("gone"));
        assert!(!MayHaveExecuted::matches(&never_sent));
        let replayed = MayHaveExecuted::mark(never_sent);
        assert!(MayHaveExecuted::matches(&replayed) && !NotExecuted::matches(&replayed));
    }
}
