//! Completions: what the device says about a finished work request.
//!
//! A [`Completion`] is the permission to take buffers back, so only a completion queue makes one,
//! it can be neither copied nor forged, and handling it consumes it.

use std::fmt;

use crate::sys::provider::{RemoteKey, WorkId, WorkKind};

/// A completion as a provider reports it: plain numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawCompletion {
    /// Identity of the work request.
    pub work_id: u64,
    /// Status as verbs numbers it; 0 is success.
    pub status: u32,
    /// Operation as verbs numbers it; junk unless the status is success.
    pub opcode: u32,
    /// The vendor's error code; meaningful unless the status is success.
    pub vendor_error: u32,
    /// Bytes transferred; junk unless the status is success and the operation received or read.
    pub byte_len: u32,
    /// Number of the queue pair.
    pub queue_pair_number: u32,
    /// The key that an arriving message took away, when the device says that it did; junk unless
    /// the status is success and the operation received.
    pub invalidated_key: Option<RemoteKey>,
}

/// A finished work request.
#[derive(Debug)]
#[must_use = "a completion that is not handled keeps its buffers in flight for ever"]
pub struct Completion {
    work_id: WorkId,
    queue_pair_number: u32,
    outcome: Result<Success, CompletionError>,
}

/// The parts that only a successful completion has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Success {
    pub(crate) opcode: u32,
    pub(crate) byte_len: u32,
    invalidated_key: Option<RemoteKey>,
}

impl Completion {
    /// Interprets what a provider reported.
    pub(crate) fn from_raw(raw: &RawCompletion) -> Self {
        let outcome = match raw.status {
            0 => Ok(Success {
                opcode: raw.opcode,
                byte_len: raw.byte_len,
                invalidated_key: raw.invalidated_key,
            }),
            status => Err(CompletionError {
                status: WorkStatus::from_number(status),
                vendor_error: raw.vendor_error,
            }),
        };
        Self {
            work_id: WorkId::from_u64(raw.work_id),
            queue_pair_number: raw.queue_pair_number,
            outcome,
        }
    }

    /// Returns the kind of the posted work. A [`WorkKind::Receive`] goes to the shared receive
    /// queue, everything else to the queue pair with this tag.
    #[must_use]
    pub fn kind(&self) -> WorkKind {
        self.work_id.kind()
    }

    /// The tag of the queue that posted the work.
    #[must_use]
    pub fn tag(&self) -> u32 {
        self.work_id.tag()
    }

    /// Identity of the work request.
    #[must_use]
    pub fn work_id(&self) -> WorkId {
        self.work_id
    }

    /// Number of the queue pair: for a receive, the one that the message arrived on.
    #[must_use]
    pub fn queue_pair_number(&self) -> u32 {
        self.queue_pair_number
    }

    /// The error, if the work request failed.
    #[must_use]
    pub fn error(&self) -> Option<CompletionError> {
        self.outcome.err()
    }

    /// The key that the received message took away (`SEND_WITH_INV`), if the device says so.
    #[must_use]
    pub fn invalidated_key(&self) -> Option<RemoteKey> {
        let success = self.outcome.as_ref().ok();
        success.filter(|_| self.kind() == WorkKind::Receive)?.invalidated_key
    }

    /// Uses it up.
    pub(crate) fn into_parts(self) -> (WorkId, u32, Result<Success, CompletionError>) {
        (self.work_id, self.queue_pair_number, self.outcome)
    }
}

/// Why a work request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("work request failed: {status} (vendor error {vendor_error:#x})")]
pub struct CompletionError {
    /// The device's status.
    pub status: WorkStatus,
    /// The vendor's own code, for its documentation.
    pub vendor_error: u32,
}

impl CompletionError {
    /// Returns true if the request was only flushed, after another one failed or the queue pair was
    /// halted. A flush does not name the cause.
    #[must_use]
    pub fn is_flush(&self) -> bool {
        self.status == WorkStatus::Flushed
    }
}

/// The status of a failed work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkStatus {
    /// The message does not fit the receive buffer, or is longer than the device can send.
    LocalLength,
    /// The queue pair could not execute the request.
    LocalOperation,
    /// The local key does not open the buffer.
    LocalProtection,
    /// Thrown out because the queue pair is in the error state.
    Flushed,
    /// A memory window could not be bound.
    WindowBind,
    /// The peer's answer made no sense.
    BadResponse,
    /// The local memory does not allow the access.
    LocalAccess,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer's memory does not allow the access: a bad key, or past the end.
    RemoteAccess,
    /// The peer could not execute the request.
    RemoteOperation,
    /// The peer did not acknowledge within the timeout and its retries.
    RetryExceeded,
    /// The peer had no receive posted for longer than the retries allow.
    ReceiverNotReady,
    /// The device failed.
    Fatal,
    /// Another status, as verbs numbers it.
    Other(u32),
}

impl WorkStatus {
    /// The numbers of `enum ibv_wc_status`, which are part of the kernel's ABI.
    fn from_number(number: u32) -> Self {
        match number {
            1 => Self::LocalLength,
            2 => Self::LocalOperation,
            4 => Self::LocalProtection,
            5 => Self::Flushed,
            6 => Self::WindowBind,
            7 => Self::BadResponse,
            8 => Self::LocalAccess,
            9 => Self::RemoteInvalidRequest,
            10 => Self::RemoteAccess,
            11 => Self::RemoteOperation,
            12 => Self::RetryExceeded,
            13 => Self::ReceiverNotReady,
            19 => Self::Fatal,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for WorkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::LocalLength => "local length error",
            Self::LocalOperation => "local queue pair operation error",
            Self::LocalProtection => "local protection error",
            Self::Flushed => "flushed",
            Self::WindowBind => "memory window bind error",
            Self::BadResponse => "bad response",
            Self::LocalAccess => "local access error",
            Self::RemoteInvalidRequest => "remote invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperation => "remote operation error",
            Self::RetryExceeded => "retries exceeded: the peer does not answer",
            Self::ReceiverNotReady => "receiver not ready retries exceeded",
            Self::Fatal => "fatal device error",
            Self::Other(number) => return write!(f, "status {number}"),
        };
        f.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_completion_carries_its_status_and_nothing_else() {
        let raw = RawCompletion { status: 10, opcode: 77, byte_len: 99, ..Default::default() };
        let error = Completion::from_raw(&raw).error().unwrap();
        assert_eq!(error.status, WorkStatus::RemoteAccess);
        assert!(!error.is_flush());
    }

    #[test]
    fn an_unknown_status_is_kept_as_its_number() {
        assert_eq!(WorkStatus::from_number(4711), WorkStatus::Other(4711));
        assert_eq!(WorkStatus::Other(4711).to_string(), "status 4711");
    }
}
