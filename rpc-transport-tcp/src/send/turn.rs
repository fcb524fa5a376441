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
//! Under `Anyone` a task has been told to write: a sender when it queued its frame, or the driver
//! when it lifted the cork. At rest and uncorked the turn is never `Anyone`, else what is queued
//! would wait for the next sender. Under `Driver` the connection's task goes on by itself.
//!
//! Callers on several threads that one read has woken would each write alone. There the turn goes
//! from `Idle` to `Driver(Deferred)`: see [`DEFERRED_COUNT_MIN`](super::queue::DEFERRED_COUNT_MIN).

/// The party that writes next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// None: all that was queued is written.
    #[default]
    Idle,
    /// The task that was told to, or one that is writing already.
    Anyone,
    /// The connection's task.
    Driver(Blocked),
}

/// What the connection's task waits for until it writes what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// The socket takes no more; no other task writes.
    SocketFull,
    /// Other tasks have their turn; senders write small frames.
    TurnOver,
    /// The peer has enough chunks to read; senders write small frames.
    WindowFull,
    /// Other senders are about to queue frames, which one write takes along.
    Deferred,
}
