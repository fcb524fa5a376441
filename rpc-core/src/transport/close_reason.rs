//! Reasons for which a connection ends.

use std::time::Duration;
use std::{fmt, io};

use thiserror::Error;

use crate::readable::Reason;
use crate::wire::ProtocolError;

/// Why a link ended.
#[derive(Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// We closed it.
    #[error("closed on this side")]
    Local,
    /// The peer closed it in order.
    #[error("closed by the peer")]
    Peer,
    /// The peer violated the protocol.
    #[error(transparent)]
    Protocol(Reason),
    /// The peer did not answer a ping, and sent nothing else either.
    #[error("the peer is silent: nothing came in within {timeout:?} of a ping (keepalive.timeout)")]
    Silent {
        /// Time that it had.
        timeout: Duration,
    },
    /// The peer is there, and has stopped taking or sending.
    #[error("{} for {timeout:?} (progress_timeout)", describe(*takes_nothing))]
    Stalled {
        /// True if the peer took nothing of what waits for it; false if it began a large frame and
        /// sent nothing more of it.
        takes_nothing: bool,
        /// Time that it had.
        timeout: Duration,
    },
    /// The server's memory was short, and the peer took too little of what waited for it.
    #[error("memory was short, and the peer took too little of its share (server.max_memory)")]
    MemoryShort,
    /// The tokio runtime ended on which a task of this side served the connection. It says nothing
    /// of the link or the peer.
    #[error("the tokio runtime that served the connection has ended")]
    RuntimeEnded,
    /// The link failed. The source is the error behind it, if there is one.
    #[error(transparent)]
    Failed(Reason),
}

#[doc(hidden)]
impl From<ProtocolError> for CloseReason {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error.to_string().into())
    }
}

/// The text alone: it has those of the causes.
impl fmt::Debug for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl CloseReason {
    /// Finds the reason for which a connection ended among an error and its sources: of a call's
    /// status, or of a [`ConnectError`](crate::connect::ConnectError).
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::{CloseReason, Status};
    ///
    /// /// Returns true if the cable, and not the peer's program, is to be looked at.
    /// fn is_link_failure(status: &Status) -> bool {
    ///     CloseReason::of(status).is_some_and(CloseReason::is_failure)
    /// }
    /// # assert!(!is_link_failure(&Status::aborted("no")));
    /// ```
    #[must_use]
    pub fn of<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            // An I/O error passes the source of what it holds, and not that itself.
            let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            let reason = error.downcast_ref().or_else(|| held?.downcast_ref());
            if reason.is_some() {
                return reason;
            }
            next = error.source();
        }
        None
    }

    /// Returns true if the link failed under both ends, as opposed to one of them ending it.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Failed(_) | Self::Silent { .. } | Self::Stalled { .. } | Self::MemoryShort => {
                true
            }
            Self::Local | Self::Peer | Self::Protocol(_) | Self::RuntimeEnded => false,
        }
    }
}

/// Returns the reason of a link whose task is dropped before its end: the runtime drops its tasks
/// when it ends, and a panic drops the one that it happens in.
#[must_use]
pub fn task_dropped() -> CloseReason {
    match std::thread::panicking() {
        true => CloseReason::Failed("the connection's task panicked, which is a bug".into()),
        false => CloseReason::RuntimeEnded,
    }
}

fn describe(takes_nothing: bool) -> &'static str {
    match takes_nothing {
        true => "the peer has taken nothing of what waits for it",
        false => "the peer has begun a large frame and sent nothing more of it",
    }
}
