//! A frame that is sent again and again: what a session keeps of each adds up.

use arbitrary::Arbitrary;

use crate::craft::{Craft, Rarely};

/// The most frames of a flood, which has so many rarely: a script with one takes as long as
/// hundreds without. A build that is not optimised takes ten times as long for a frame.
const FRAMES_MAX: u64 = if cfg!(debug_assertions) { 2 << 10 } else { 16 << 10 };

/// A frame that is sent many times.
#[derive(Debug, Arbitrary)]
pub(crate) struct Flood {
    pub(crate) craft: Craft,
    count: u16,
    ahead: u8,
    spread: Spread,
    shape: Shape,
    /// Set if the flood's calls are made before it, to a handler that reads one message at most.
    pub(crate) has_stuck_calls: bool,
    /// Set if frames are announced and never come.
    pub(crate) is_announced: bool,
    /// Set if each frame is followed by a cancel of its call.
    pub(crate) is_cancelled: bool,
    /// Set if frames are of any kind, not of the one whose turn it is.
    is_any_kind: bool,
}

/// Over which calls a flood spreads.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Spread {
    OneCall,
    /// All calls that the session admits, in turn.
    AllCalls,
    /// Each frame has a call of its own.
    NewCalls,
}

/// A flaw of the frames of a flood.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Shape {
    AsCrafted,
    Burdened,
    Empty,
    Tiny,
}

/// The call of one frame of a flood.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// One that the script picks by this number.
    Known(u8),
    /// One that never was, by its id.
    New(u64),
}

impl Flood {
    /// Returns the number of frames. Most floods are short; one in 128 has up to [`FRAMES_MAX`].
    pub(crate) fn frame_count(&self) -> u64 {
        let count = u64::from(self.count);
        if count >> 9 == 0 { FRAMES_MAX >> (count % 4) } else { count % 48 }
    }

    /// The same with frames of its shape.
    pub(crate) fn shaped(mut self) -> Self {
        match self.shape {
            Shape::AsCrafted => {}
            Shape::Burdened => self.craft.is_burdened = Rarely::NOW,
            Shape::Empty => self.craft.is_empty = Rarely::NOW,
            Shape::Tiny => self.craft.is_tiny = Rarely::NOW,
        }
        if self.is_any_kind {
            self.craft.is_any_kind = Rarely::NOW;
        }
        self
    }

    /// The calls over which it spreads, by the numbers with which a script picks them.
    pub(crate) fn known_calls(&self, calls_max: u8) -> Vec<u8> {
        let count = match self.spread {
            Spread::OneCall => 1,
            Spread::AllCalls => calls_max,
            Spread::NewCalls => 0,
        };
        (0..count).map(|turn| self.craft.call.wrapping_add(turn)).collect()
    }

    /// The call of a frame.
    pub(crate) fn target(&self, calls_max: u8, number: u64) -> Target {
        let turn = u8::try_from(number % u64::from(calls_max.max(1))).unwrap_or(0);
        match self.spread {
            Spread::OneCall => Target::Known(self.craft.call),
            Spread::AllCalls => Target::Known(self.craft.call.wrapping_add(turn)),
            Spread::NewCalls => Target::New(1 << 32 | u64::from(self.craft.call) << 16 | number),
        }
    }

    /// Returns the distance of a frame to its turn. One flood in four has a gap, and all frames
    /// behind it wait.
    pub(crate) fn ahead(&self, number: u64) -> u64 {
        let gap = u64::from(self.ahead).saturating_sub(192) / 16;
        if gap == 0 { 0 } else { gap + number }
    }
}
