//! The share of a server's memory budget that the window of a stream reserves.
//!
//! A sender may fill its window at any time, and the handler decides how long it stays filled. So
//! what counts is the window as it was granted, from the beginning of the stream, and not what has
//! come: a peer that opens streams first and fills them later is refused the streams. Windows begin
//! small and widen while there is memory to spare, so that streams that were admitted go on, slowed
//! by flow control, when there is not. They shrink where their holder has more than its share.
//! Only the message that crosses the line of a window counts when it has come, whether it fits or
//! not.
//!
//! A client has no budget for its peers. Its windows count what is beyond the one that each of its
//! streams begins with, in a budget of their connection.

use tonic::Status;

use crate::calls::window::{Resize, Window};
use crate::limits::connection::MESSAGE_HELD;
use crate::limits::memory::{MemoryCharge, MemoryShare};

/// The part that a holder has to have left beside a window that widens, in windows of that width.
/// New streams and calls of the holder find room in it, and its streams come to have windows of
/// about the same width.
const LEFT_TO_WIDEN: u64 = 8;

/// The part that a holder has to have left for a window to stay as wide as it is.
const LEFT_TO_KEEP: u64 = 4;

/// The part of a memory budget that one stream has. By default there is no budget.
#[derive(Debug, Default)]
pub(crate) struct WindowMemory {
    share: MemoryShare,
    charge: MemoryCharge,
    /// Bytes that do not count.
    exempt: u64,
}

impl WindowMemory {
    /// Takes what `window` binds.
    ///
    /// # Errors
    ///
    /// When it does not fit.
    pub(crate) fn open(share: &MemoryShare, window: Window) -> Result<Self, Status> {
        let charge = share.try_take(bytes_of(window))?;
        Ok(Self { share: share.clone(), charge, exempt: 0 })
    }

    /// The memory of a stream that is never refused: what `first` binds does not count.
    pub(crate) fn beyond(share: &MemoryShare, first: Window) -> Self {
        Self { share: share.clone(), charge: share.take(0), exempt: bytes_of(first) }
    }

    /// Takes what a wider window binds, if that is to spare. A holder that has little left beside
    /// this window gives some of it back.
    pub(super) fn resize(&mut self, window: Window, wider: Window) -> Resize {
        let [len, wider_len] = [window, wider].map(|window| self.counted(window));
        let left = wider_len.saturating_mul(LEFT_TO_WIDEN);
        if wider != window && self.share.try_grow(&mut self.charge, wider_len, left) {
            Resize::Widen
        } else if self.charge.may_grow_by(len.saturating_mul(LEFT_TO_KEEP)) {
            Resize::Keep
        } else {
            Resize::Narrow
        }
    }

    /// Counts what has come, if that is more than the window.
    pub(super) fn hold(&mut self, waiting: Window) {
        let len = self.counted(waiting);
        if len > self.charge.len() {
            self.charge.set(len);
        }
    }

    /// Counts what waits, or what may come, whichever is more.
    pub(super) fn settle(&mut self, waiting: Window, window: Window) {
        self.charge.set(self.counted(waiting).max(self.counted(window)));
    }

    fn counted(&self, window: Window) -> u64 {
        bytes_of(window).saturating_sub(self.exempt)
    }
}

/// Returns the memory of a full window, in bytes.
fn bytes_of(Window { messages, bytes }: Window) -> u64 {
    u64::from(bytes) + u64::from(messages) * MESSAGE_HELD
}
