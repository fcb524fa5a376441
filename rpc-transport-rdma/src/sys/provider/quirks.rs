//! Deviations of a driver from the specification. Pure.
//!
//! Which driver does what is the table in `device/quirks`, which a provider is given.

/// The deviations of a driver from the specification that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quirks {
    /// A reason not to trust that a READ which is reported as complete is whole, if there is one.
    pub read_defect: Option<String>,
    /// A reason not to let peers take keys of windows away although that works, if there is one.
    pub window_defect: Option<&'static str>,
    /// True if windows are known to do what they should, so that no check at run time is needed.
    pub has_known_windows: bool,
    /// True if its queues are memory of the process, which counts as locked. Drivers of hardware
    /// allocate them in user space.
    pub queues_are_locked: bool,
    /// The receive slots of a queue pair that dies.
    pub receive_drain: ReceiveDrain,
}

impl Quirks {
    /// Those of a driver of which nothing is known but the specification.
    pub const NONE: Self = Self {
        read_defect: None,
        window_defect: None,
        has_known_windows: false,
        queues_are_locked: true,
        receive_drain: ReceiveDrain::SPECIFIED,
    };

    /// Returns the traffic class of an Ethernet port whose host says none: on hardware DSCP 26 with
    /// ECN, which UCX uses and the rest of a data center with it (`UCT_IB_DEFAULT_ROCEV2_DSCP`).
    #[cfg(any(feature = "ibverbs", test))]
    pub(crate) fn traffic_class(&self) -> u8 {
        if self.queues_are_locked { 106 } else { 0 }
    }
}

/// A driver's report that a dead queue pair has taken its last receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LastReceive {
    /// It raises [`LastReceiveReached`](crate::AsyncEventKind::LastReceiveReached). That is waited
    /// for in bounded time, since a device may break before.
    Told,
    /// It raises nothing, so that waiting would only cost time.
    Untold,
}

/// Receives of a shared receive queue that a drained queue pair may still have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leftover {
    /// Nothing: everything that it took has completed.
    Nothing,
    /// The receive of a message of which only a part came.
    HalfReceived,
}

/// In which order a device takes receives from a shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveOrder {
    /// In the order of posting, for certain: a provider that says so promises it.
    Posted,
    /// Not documented.
    Unknown,
}

/// A driver's treatment of the receive slots of a queue pair that dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveDrain {
    /// Report of the last receive.
    pub last_receive: LastReceive,
    /// Receives that are missing after it.
    pub leftover: Leftover,
    /// Order in which slots are taken.
    pub order: ReceiveOrder,
}

impl ReceiveDrain {
    /// The behavior that the specification requires, and no more.
    pub const SPECIFIED: Self = Self {
        last_receive: LastReceive::Told,
        leftover: Leftover::Nothing,
        order: ReceiveOrder::Unknown,
    };

    /// A device that gives everything back without a word.
    pub const SILENT: Self = Self {
        last_receive: LastReceive::Untold,
        leftover: Leftover::Nothing,
        order: ReceiveOrder::Posted,
    };

    /// A device that says when it is done, and keeps the receive of half a message.
    pub const LEAKY: Self = Self {
        last_receive: LastReceive::Told,
        leftover: Leftover::HalfReceived,
        order: ReceiveOrder::Posted,
    };
}
