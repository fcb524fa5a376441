//! The party that writes next.
//!
//! ```text
//!          a frame is queued             all is written
//!  Idle ──────────────────────▶ Anyone ──────────────────▶ Idle
//!                                 │
//!            ┌────────────────────┼─────────────────────┐
//!   the socket is full      turn is over          window is full
//!            ▼                    ▼                     ▼
//!   Driver(SocketFull) ─▶ Driver(TurnOver) ◀─ Driver(WindowFull)
//!                 writable        │        an ack
//!                                 └─▶ any of them but Anyone
//! ```
//!
//! Under `Anyone`, a task has been told to write: a sender when it queued its frame, or the driver
//! when it lifted the cork. At rest and uncorked, the turn is never `Anyone`: queued frames would
//! wait for the next sender. Under `Driver`, the connection's task continues on its own.
//!
//! Callers on several threads that one read has woken would each make a write of their own. There,
//! the turn goes from `Idle` to `Driver(Deferred)`: see
//! [`DEFERRED_COUNT_MIN`](super::queue::DEFERRED_COUNT_MIN).

/// The party that writes next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// No party: everything queued is written.
    #[default]
    Idle,
    /// The task that was told to write, or one that is already writing.
    Anyone,
    /// The connection's task.
    Driver(Blocked),
}

/// The condition that the connection's task waits for before it writes the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// The socket accepts no more. No other task writes.
    SocketFull,
    /// Other tasks have their turn. Senders write small frames.
    TurnOver,
    /// The peer has enough chunks to read. Senders write small frames.
    WindowFull,
    /// Other senders are about to queue frames, and one write will carry them all.
    Deferred,
}
