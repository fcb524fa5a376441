//! The state of a device, and the kinds of its events.

use std::time::Duration;

/// The state of a device that is or was in use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStatus {
    /// Its name.
    pub device: String,
    /// True if it is in use now.
    pub is_open: bool,
    /// Number of its lanes.
    pub lane_count: usize,
    /// Firmware commands that wait or are carried out. Many, for long, mean firmware that is slow
    /// or hangs.
    pub pending_commands: usize,
    /// The longest time of a firmware command since the device was opened, in steps of a
    /// microsecond. Zero while none has taken 100 ms.
    pub slowest_command: Duration,
    /// Bytes that the process has locked, as its limit counts them: registered memory, and on
    /// hardware the queues.
    pub locked_bytes: u64,
    /// Number of events of each kind, including those of earlier openings.
    pub events: Vec<(AsyncEventKind, u64)>,
}

impl DeviceStatus {
    /// Returns the number of events of this kind.
    #[must_use]
    pub fn event_count(&self, kind: AsyncEventKind) -> u64 {
        self.events.iter().find(|(other, _)| *other == kind).map_or(0, |(_, count)| *count)
    }
}

/// The error behind the end of a connection that an event of its device has ended: a port that went
/// down, for example, because its cable was pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the device: {kind:?}")]
#[non_exhaustive]
pub struct DeviceEvent {
    /// The event.
    pub kind: AsyncEventKind,
}

impl DeviceEvent {
    pub(crate) fn new(kind: AsyncEventKind) -> Self {
        Self { kind }
    }
}

/// An asynchronous event of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEventKind {
    /// A completion queue overran or broke; its queue pairs are lost.
    CompletionQueueError,
    /// A queue pair broke.
    QueuePairFatal,
    /// A queue pair got an invalid request.
    QueuePairRequestError,
    /// A queue pair's peer violated access rights.
    QueuePairAccessError,
    /// The device is lost.
    DeviceFatal,
    /// A port came up.
    PortActive,
    /// A port went down.
    PortError,
    /// A port's GID table changed.
    GidChange,
    /// A port's LID changed.
    LidChange,
    /// A shared receive queue broke.
    SharedReceiveQueueError,
    /// A shared receive queue has fewer receives than its limit, which is disarmed now.
    ReceiveLimit,
    /// The last receive of a queue pair in the error state was consumed. It may never come.
    LastReceiveReached,
    /// Another event, as verbs numbers it.
    Other(i32),
}
