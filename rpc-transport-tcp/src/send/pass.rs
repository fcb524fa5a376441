//! A writer's pass: everything that one task writes between locking and unlocking the scheduler.

use crate::send::frame::LargeFrame;

/// The kind of task that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A task that has just sent a frame.
    Sender,
    /// The connection's task.
    Driver,
}

/// The state of a pass.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) writer: Writer,
    pub(crate) bytes: usize,
    pub(crate) is_socket_full: bool,
    /// Frames that will not be sent. They are dropped when no lock is held, because the application
    /// may own their memory.
    pub(crate) discarded: Vec<LargeFrame>,
}

/// A writer's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Write the scheduler's slices.
    Write,
    /// Stop: nothing is left.
    Done,
    /// Stop, and notify the connection's task. It is its turn.
    Yield,
    /// Stop: the connection's task continues after the peer's next ack.
    AwaitAck,
}

impl Pass {
    pub(crate) fn new(writer: Writer) -> Self {
        Self { writer, bytes: 0, is_socket_full: false, discarded: Vec::new() }
    }

    /// Records a write of `len` bytes. `is_socket_full` tells if the socket accepts no more.
    pub(crate) fn advance(&mut self, len: usize, is_socket_full: bool) {
        self.bytes += len;
        self.is_socket_full = is_socket_full;
    }
}
