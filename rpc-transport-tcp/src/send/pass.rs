//! A writer's pass: what one task writes from locking the scheduler to unlocking it.

use crate::send::frame::LargeFrame;

/// A task that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A task that has just sent a frame.
    Sender,
    /// The connection's task.
    Driver,
}

/// What one task writes until it unlocks the scheduler.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) writer: Writer,
    pub(crate) bytes: usize,
    pub(crate) is_socket_full: bool,
    /// Frames that are not sent any more, to be dropped when nothing is locked: their memory may be
    /// the application's.
    pub(crate) discarded: Vec<LargeFrame>,
}

/// What a writer does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It writes the scheduler's slices.
    Write,
    /// It ends: nothing is left.
    Done,
    /// It ends, and tells the connection's task, whose turn it is.
    Yield,
    /// It ends: the connection's task goes on after the peer's next ack.
    AwaitAck,
}

impl Pass {
    pub(crate) fn new(writer: Writer) -> Self {
        Self { writer, bytes: 0, is_socket_full: false, discarded: Vec::new() }
    }

    /// Records a write of `len` bytes, and whether the socket takes no more after it.
    pub(crate) fn advance(&mut self, len: usize, is_socket_full: bool) {
        self.bytes += len;
        self.is_socket_full = is_socket_full;
    }
}
