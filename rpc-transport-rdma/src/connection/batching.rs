//! Doorbell batching: whether a connection posts now, or once for several completions.
//!
//! ```text
//!   Off ──the worker handles completions──> Handling ──several frames came, none is queued──> Held
//!    ^                                         │                                               │
//!    └──────────────otherwise──────────────────┴──────────the woken tasks have run─────────────┘
//! ```
//! A post is a call into the kernel on some devices, and a doorbell on all. Pure: `posting` carries
//! it out.

/// Frames that wait while posting is held back until some are posted all the same, so that the peer
/// has something to do meanwhile.
const HELD_FRAMES_MAX: usize = 16;

/// The state of a connection's held-back posts.
#[derive(Debug, Default)]
pub(crate) enum Batching {
    /// Everything is posted at once.
    #[default]
    Off,
    /// The worker handles completions: slots of messages are not posted again yet, and what goes
    /// out would grant them anew. So many frames came since.
    Handling { frame_count: usize },
    /// All slots are posted again, and callers that were woken are about to send.
    Held,
}

impl Batching {
    /// Returns true if nothing is posted now, with this number of waiting frames.
    pub(super) fn holds_back(&self, outgoing_len: usize) -> bool {
        match self {
            Self::Off => false,
            Self::Handling { .. } => true,
            // In portions, so that the first callers do not wait for the last ones.
            Self::Held => outgoing_len == 0 || !outgoing_len.is_multiple_of(HELD_FRAMES_MAX),
        }
    }

    /// Counts a frame that came.
    pub(super) fn count_frame(&mut self) {
        if let Self::Handling { frame_count } = self {
            *frame_count += 1;
        }
    }

    /// The worker has handled what there was. Keeps batching if it delivered several frames and
    /// nothing is queued: the woken tasks are about to send. Returns whether it does.
    pub(super) fn hold(&mut self, outgoing_len: usize) -> bool {
        let holds = matches!(self, Self::Handling { frame_count: 2.. }) && outgoing_len == 0;
        *self = if holds { Self::Held } else { Self::Off };
        holds
    }
}

/// The state of a connection after its completions were handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchEnd {
    /// It keeps batching until the callers that it has woken have run.
    Held,
    /// Its outgoing work is posted, as far as the device takes it.
    Posted,
    /// Its queue pairs are halted, and nothing is in flight.
    Drained,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handling(frame_count: usize) -> Batching {
        Batching::Handling { frame_count }
    }

    #[test]
    fn nothing_is_posted_while_completions_are_handled() {
        assert!(!Batching::Off.holds_back(1));
        assert!(handling(0).holds_back(0) && handling(9).holds_back(1000));
    }

    #[test]
    fn batching_continues_after_several_unanswered_frames() {
        for (frame_count, outgoing_len, holds) in
            [(0, 0, false), (1, 0, false), (2, 0, true), (2, 1, false), (9, 0, true)]
        {
            let mut batching = handling(0);
            (0..frame_count).for_each(|_| batching.count_frame());
            assert_eq!(batching.hold(outgoing_len), holds, "{frame_count}, {outgoing_len}");
            assert_eq!(matches!(batching, Batching::Held), holds);
        }
        assert!(!Batching::Off.hold(0), "no completions were handled");
    }

    #[test]
    fn what_is_held_goes_out_sixteen_at_a_time() {
        let posted = (0..=40).filter(|len| !Batching::Held.holds_back(*len)).collect::<Vec<_>>();
        assert_eq!(posted, [16, 32]);
    }
}
