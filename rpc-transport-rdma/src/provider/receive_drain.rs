//! What a driver does with the receive slots of a queue pair that dies, by driver and kernel.
//!
//! | driver | event of the last receive | a half-received message | slots are filled |
//! |---|---|---|---|
//! | Soft-RoCE of Linux 6.1 | never raised | its receive is flushed | in the order of posting |
//! | Soft-RoCE of others | raised | its receive is lost | in the order of posting |
//! | hardware | raised, says the specification | its receive is flushed before | not documented |
//!
//! The rows of Soft-RoCE were seen in `tests/verbs/closing.rs`; its queue of receives is a
//! ring in the kernel's `rxe_srq.c`, from whose front alone a queue pair takes. libmlx5, mlx4 and
//! hns free the receives of a queue pair that is destroyed before they were polled, and bnxt_re
//! and irdma skip them, so that with all of them nothing may be left to poll by then. Pure.

/// Whether a driver says when a dead queue pair has taken its last receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LastReceive {
    /// It raises [`LastReceiveReached`](crate::verbs::AsyncEventKind::LastReceiveReached). That is waited
    /// for in bounded time, since a device may break before.
    Told,
    /// It raises nothing, so that waiting would only cost time.
    Untold,
}

/// What a drained queue pair may still have of a shared receive queue.
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

/// What a driver does with the receive slots of a queue pair that dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveDrain {
    /// Whether it says when the last receive was taken.
    pub last_receive: LastReceive,
    /// What is missing after that.
    pub leftover: Leftover,
    /// Which slots are taken first.
    pub order: ReceiveOrder,
}

impl ReceiveDrain {
    /// What the specification asks of a device, and no more.
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

    /// What Soft-RoCE does on a kernel, given its release as `uname -r` prints it.
    #[cfg(any(test, feature = "ibverbs"))]
    pub(crate) fn of_soft_roce(release: Option<&str>) -> Self {
        match release.is_some_and(|release| release.trim_start().starts_with("6.1.")) {
            true => Self::SILENT,
            false => Self::LEAKY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_roce_is_what_was_seen_of_a_kernel_and_the_worst_of_others() {
        for release in ["6.1.0-18-amd64\n", "6.1.129"] {
            assert_eq!(ReceiveDrain::of_soft_roce(Some(release)), ReceiveDrain::SILENT);
        }
        for release in ["6.12.9-amd64", "6.10.1", "5.15.0", "6.18.2", "nonsense", ""] {
            assert_eq!(ReceiveDrain::of_soft_roce(Some(release)), ReceiveDrain::LEAKY);
        }
        assert_eq!(ReceiveDrain::of_soft_roce(None), ReceiveDrain::LEAKY);
    }
}
