//! The share of a server's memory budget that the window of a stream reserves.
//!
//! A sender may fill its window at any time, and the handler decides how long it stays filled. So
//! what counts is the window as it was granted, from the beginning of the stream, and not what has
//! come: a peer that opens streams first and fills them later is refused the streams. Windows begin
//! small and widen while there is memory to spare, so that streams that were admitted go on, slowed
//! by flow control, when there is not. They shrink where their holder has more than its share.
//! Only the message that crosses the line of a window counts when it has come, whether it fits or
//! not.

use tonic::Status;

use crate::calls::window::{Resize, Window};
use crate::limits::connection::MESSAGE_HELD;
use crate::limits::memory::{MemoryCharge, MemoryShare};

/// The part of a memory budget that one stream has. By default there is no budget, as for clients.
#[derive(Debug, Default)]
pub(crate) struct WindowMemory {
    share: MemoryShare,
    charge: MemoryCharge,
}

impl WindowMemory {
    /// Takes what `window` binds.
    ///
    /// # Errors
    ///
    /// When it does not fit.
    pub(crate) fn open(share: &MemoryShare, window: Window) -> Result<Self, Status> {
        let charge = share.try_take(bytes_of(window))?;
        Ok(Self { share: share.clone(), charge })
    }

    /// Takes what a wider window binds, if that is to spare. A holder that has more than its share
    /// gives some of it back.
    pub(super) fn resize(&mut self, window: Window, wider: Window) -> Resize {
        if wider != window && self.share.try_grow(&mut self.charge, bytes_of(wider)) {
            Resize::Widen
        } else if self.charge.may_grow() {
            Resize::Keep
        } else {
            Resize::Narrow
        }
    }

    /// Counts what has come, if that is more than the window.
    pub(super) fn hold(&mut self, waiting: Window) {
        let len = bytes_of(waiting);
        if len > self.charge.len() {
            self.charge.set(len);
        }
    }

    /// Counts what waits, or what may come, whichever is more.
    pub(super) fn settle(&mut self, waiting: Window, window: Window) {
        self.charge.set(bytes_of(waiting).max(bytes_of(window)));
    }
}

/// Returns the memory of a full window, in bytes.
fn bytes_of(Window { messages, bytes }: Window) -> u64 {
    u64::from(bytes) + u64::from(messages) * MESSAGE_HELD
}
