//! A piece of work as plain values for a device, and what can be wrong with it.

use super::memory_window::MemoryWindows;
use super::{RawOperation, RawSegment, Work, WorkKind};

/// What the device is to do with which memory.
pub(super) struct Parts {
    pub(super) kind: WorkKind,
    pub(super) operation: RawOperation,
    /// `None` for what has no bytes.
    pub(super) segment: Option<RawSegment>,
}

impl Parts {
    /// Takes a piece of work apart, or says why it cannot be. Its windows are among `windows`.
    pub(super) fn of(work: &Work, windows: &MemoryWindows) -> Result<Self, &'static str> {
        Ok(match work {
            Work::Send { slot, len, invalidate } => {
                if *len as usize > slot.len() {
                    return Err("the message is longer than its slot");
                }
                let operation = invalidate.map_or(RawOperation::Send, RawOperation::SendInvalidate);
                let segment = (*len > 0).then(|| slot.segment(*len));
                Self { kind: WorkKind::Send, operation, segment }
            }
            Work::Read { len: 0, .. } => return Err("a READ of nothing"),
            Work::Read { sink, offset, len, remote } => {
                let segment = sink.segment(*offset, *len);
                let segment = Some(segment.ok_or("the READ does not fit its sink")?);
                Self { kind: WorkKind::Read, operation: RawOperation::Read(*remote), segment }
            }
            Work::Bind(binding) => {
                let operation = RawOperation::Bind(windows.bind(binding)?);
                Self { kind: WorkKind::Bind, operation, segment: None }
            }
            Work::Invalidate(binding) => {
                let operation = RawOperation::Invalidate(windows.bound_key(binding)?);
                Self { kind: WorkKind::Invalidate, operation, segment: None }
            }
        })
    }
}

/// Records at the windows that work has succeeded.
pub(super) fn work_done(work: &mut Work, windows: &mut MemoryWindows) {
    match work {
        Work::Bind(binding) => windows.handle_bound(binding),
        Work::Invalidate(binding) => binding.handle_revoked(),
        Work::Send { .. } | Work::Read { .. } => {}
    }
}
