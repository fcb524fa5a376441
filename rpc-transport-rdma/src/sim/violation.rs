//! A program's violations of a device's rules, as far as the device can notice them.

use super::SimVerb;

/// A breach of the contract between a provider and the queues above it. On hardware most of these
/// are silent corruption.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimViolation {
    /// More requests were posted than the send queue holds.
    #[error("queue pair {number}: posted beyond the depth of {depth}")]
    SendQueueOverrun {
        /// Number of the queue pair.
        number: u32,
        /// Its depth.
        depth: u32,
    },
    /// More receives were posted than the shared receive queue holds.
    #[error("a shared receive queue: posted beyond the depth of {depth}")]
    ReceiveQueueOverrun {
        /// Its depth.
        depth: u32,
    },
    /// More has completed than the completion queue holds.
    #[error("a completion queue of {capacity} entries overran")]
    CompletionQueueOverrun {
        /// Its capacity.
        capacity: u32,
    },
    /// A request names memory that is not registered at this device.
    #[error("a request names {len} bytes at {address:#x}, which its key does not open")]
    UnknownMemory {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        len: u32,
    },
    /// A request would have the device write to memory that was not registered for that.
    #[error("a request writes to {len} bytes at {address:#x}, registered for something else")]
    WrongAccess {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        len: u32,
    },
    /// A request names memory that another request in flight writes to, or writes to memory that
    /// another names.
    #[error("a request names {len} bytes at {address:#x}, which another in flight has")]
    MemoryInUse {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        len: u32,
    },
    /// The bytes of a message changed between its post and its departure.
    #[error("{len} bytes at {address:#x} changed while they were being sent")]
    ChangedInFlight {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        len: u32,
    },
    /// Memory was deregistered while a request in flight named it. It is leaked.
    #[error("{len} bytes at {address:#x} were deregistered with work in flight")]
    DeregisteredInUse {
        /// Address of the region.
        address: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Memory was deregistered while a window was bound to it. It is leaked.
    #[error("{len} bytes at {address:#x} were deregistered with a window bound to them")]
    DeregisteredBound {
        /// Address of the region.
        address: u64,
        /// Number of bytes.
        len: u64,
    },
    /// A queue pair was destroyed while an older window was bound to it, which takes some devices
    /// a minute.
    #[error("queue pair {number}: destroyed with an older window bound to it")]
    DestroyedBound {
        /// Number of the queue pair.
        number: u32,
    },
    /// More bytes were to be sent inline than the queue pair can.
    #[error("queue pair {number}: {len} bytes inline, of at most {max}")]
    InlineTooLong {
        /// Number of the queue pair.
        number: u32,
        /// Number of bytes.
        len: u32,
        /// The maximum.
        max: u32,
    },
    /// A lane, its timers or its device's watch ran a firmware command, which may take a minute. So
    /// did a sender that had its connection's lock.
    #[error("a lane ran a firmware command: {verb:?}")]
    CommandOnLane {
        /// The command.
        verb: SimVerb,
    },
    /// Something was posted before the queue pair was connected.
    #[error("queue pair {number}: posted before it was connected")]
    NotConnected {
        /// Number of the queue pair.
        number: u32,
    },
}
