//! The log of calls: one line for each call that failed, on either side,
//! and a server's access log.
//!
//! A line about a failed call has the target `farcall::call`. Its level is what the status says of
//! the system, and is the same on both sides:
//!
//! - WARN for `UNKNOWN`, `DEADLINE_EXCEEDED`, `RESOURCE_EXHAUSTED`, `UNIMPLEMENTED`, `INTERNAL`,
//!   `UNAVAILABLE` and `DATA_LOSS`: something does not work, and an operator may have to act.
//! - DEBUG for all others: an answer of the application, such as `NOT_FOUND`, or a call that its
//!   client gave up.
//!
//! So a service whose lookups miss all day writes nothing at INFO, the usual level in production. A
//! peer can cause these lines: those of WARN are limited, each status by itself, and what of a
//! status may be a peer's is escaped and cut.
//!
//! The access log has the target `farcall::access`, INFO, and a line for every call, without a
//! limit: it is off unless the operator asks for it.
//!
//! A call that ends well costs the failure log two reads of an atomic, and a look at the clock
//! where a subscriber listens at all.

use std::fmt;
use std::time::Duration;

use tonic::Code;
use tracing::Level;
use tracing::field::display;
use tracing::level_filters::LevelFilter;

use crate::deadline::rounded;
use crate::limits::log::LogLimit;
use crate::wire::PeerText;

/// The calls that have a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallLog {
    /// Those that fail.
    pub(crate) failures: bool,
    /// All of them.
    pub(crate) access: bool,
    /// True if each call is counted for operators.
    pub(crate) is_counted: bool,
}

impl Default for CallLog {
    fn default() -> Self {
        Self { failures: true, access: false, is_counted: false }
    }
}

impl CallLog {
    /// Returns true if the end of a call that begins now may be logged or counted for operators.
    pub(crate) fn needs_start(self) -> bool {
        let least = match self {
            Self { is_counted: true, .. } => return true,
            Self { failures: true, .. } => LevelFilter::WARN,
            Self { access: true, .. } => LevelFilter::INFO,
            Self { .. } => return false,
        };
        LevelFilter::current() >= least
    }
}

/// A call that has failed, as its line tells it.
pub(crate) struct FailedCall<'a> {
    /// `/package.Service/Method`.
    pub(crate) method: &'a str,
    /// The other side.
    pub(crate) peer: &'a dyn fmt::Display,
    /// The transport of the connection; absent where there was none.
    pub(crate) transport: Option<&'static str>,
    pub(crate) code: Code,
    /// The status's text.
    pub(crate) message: &'a str,
    pub(crate) took: Duration,
}

impl FailedCall<'_> {
    /// Writes the line, unless there were many with this code.
    pub(crate) fn log(&self, limit: &LogLimit) {
        let Self { method, peer, transport, code, message, took } = *self;
        let (code, took) = (NameOf(code), rounded(took));
        let transport = transport.map(display);
        let Some(kind) = code.kind() else { return self.log_as_answer("a call failed") };
        if !tracing::enabled!(target: "farcall::call", Level::WARN) {
            return;
        }
        if let Some(left_out) = limit.admit(Level::WARN, kind) {
            let (error, left_out) = (PeerText::new(message), left_out.field());
            tracing::warn!(
                target: "farcall::call",
                method, %peer, transport, %code, ?took, left_out, %error, "a call failed"
            );
        }
    }

    /// Writes the line about a call that the client makes elsewhere, as it does when a server shuts
    /// down.
    pub(crate) fn log_redirected(&self) {
        self.log_as_answer("a call was sent elsewhere");
    }

    /// Writes a line that asks for no action of an operator.
    fn log_as_answer(&self, event: &'static str) {
        if !tracing::enabled!(target: "farcall::call", Level::DEBUG) {
            return;
        }
        let Self { method, peer, transport, code, message, took } = *self;
        let transport = transport.map(display);
        let (code, took, error) = (NameOf(code), rounded(took), PeerText::new(message));
        tracing::debug!(
            target: "farcall::call",
            method, %peer, transport, %code, ?took, %error, "{event}"
        );
    }
}

/// The name of a code, as gRPC's documents have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameOf(pub(crate) Code);

impl NameOf {
    /// Returns the kind that lines about this code count as, where their number is limited.
    fn kind(self) -> Option<&'static str> {
        match self.0 {
            Code::Unknown => Some("a call failed: UNKNOWN"),
            Code::DeadlineExceeded => Some("a call failed: DEADLINE_EXCEEDED"),
            Code::ResourceExhausted => Some("a call failed: RESOURCE_EXHAUSTED"),
            Code::Unimplemented => Some("a call failed: UNIMPLEMENTED"),
            Code::Internal => Some("a call failed: INTERNAL"),
            Code::Unavailable => Some("a call failed: UNAVAILABLE"),
            Code::DataLoss => Some("a call failed: DATA_LOSS"),
            Code::Ok
            | Code::Cancelled
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unauthenticated => None,
        }
    }
}

impl fmt::Display for NameOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Code::Ok => "OK",
            Code::Cancelled => "CANCELLED",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
            Code::Unauthenticated => "UNAUTHENTICATED",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::log::captured::CapturedLog;

    fn fail(limit: &LogLimit, code: Code, message: &str) {
        let (peer, took) = (&"tcp://a:1" as &dyn fmt::Display, Duration::from_micros(1500));
        let transport = Some("tcp");
        FailedCall { method: "/t.T/M", peer, transport, code, message, took }.log(limit);
    }

    #[test]
    fn a_line_says_which_call_failed_where_and_how() {
        let (log, limit) = (CapturedLog::start(), LogLimit::default());
        fail(&limit, Code::Unavailable, "gone\nFORGED");
        fail(&limit, Code::NotFound, "no such key");
        let lines = log.take_lines();
        let event = "farcall::call: a call failed method=\"/t.T/M\" peer=tcp://a:1 transport=tcp \
                     code=UNAVAILABLE took=1.5ms error=gone\\nFORGED";
        assert!(lines[0].contains("WARN") && lines[0].ends_with(event), "{lines:#?}");
        assert!(lines[1].contains("DEBUG") && lines[1].contains("code=NOT_FOUND"), "{lines:#?}");
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn a_flood_of_one_code_hides_no_other() {
        let (log, limit) = (CapturedLog::start(), LogLimit::default());
        for _ in 0..1000 {
            fail(&limit, Code::Unavailable, "gone");
        }
        assert_eq!(log.take_lines().len(), 10);
        fail(&limit, Code::Internal, "a bug");
        assert_eq!(log.take_lines().len(), 1);
    }
}
