//! Asynchronous events of a device: ports that come and go, queues that break.
//!
//! Not here: what to do about them.

/// What happened.
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

impl AsyncEventKind {
    /// The numbers of `enum ibv_event_type`, which are part of the kernel's ABI.
    #[cfg(any(test, feature = "ibverbs"))]
    pub(super) fn from_number(number: i32) -> Self {
        match number {
            0 => Self::CompletionQueueError,
            1 => Self::QueuePairFatal,
            2 => Self::QueuePairRequestError,
            3 => Self::QueuePairAccessError,
            8 => Self::DeviceFatal,
            9 => Self::PortActive,
            10 => Self::PortError,
            11 => Self::LidChange,
            14 => Self::SharedReceiveQueueError,
            15 => Self::ReceiveLimit,
            16 => Self::LastReceiveReached,
            18 => Self::GidChange,
            other => Self::Other(other),
        }
    }
}

/// An asynchronous event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: AsyncEventKind,
    /// The port it happened to, if it was one.
    pub port: Option<u8>,
    /// The number of the queue pair it happened to, if it was one.
    pub queue_pair_number: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_event_is_kept_as_its_number() {
        assert_eq!(AsyncEventKind::from_number(10), AsyncEventKind::PortError);
        assert_eq!(AsyncEventKind::from_number(99), AsyncEventKind::Other(99));
    }
}
