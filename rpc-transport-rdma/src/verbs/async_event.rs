//! Asynchronous events of a device: ports that come and go, queues that break.
//!
//! Not here: what to do about them.

use crate::AsyncEventKind;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_event_is_kept_as_its_number() {
        assert_eq!(AsyncEventKind::from_number(10), AsyncEventKind::PortError);
        assert_eq!(AsyncEventKind::from_number(99), AsyncEventKind::Other(99));
    }
}
