//! What the two ends of a connection have agreed on.

use super::Compression;
use super::settings::NEVER;
use crate::wire::hello::DEFLATE;
use crate::wire::{FrameHeader, ProtocolError};

/// What the two ends of a connection have agreed on. By default nothing is compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// Whether this side has said that it accepts compressed messages.
    is_accepted: bool,
    /// From which length on messages are compressed whose calls say nothing of it; absent where the
    /// peer accepts none.
    from: Option<u32>,
}

impl Negotiated {
    /// What holds after this side has said that it accepts the encodings `said`, and the peer
    /// `heard`. Bits of encodings that this version does not know mean nothing.
    pub(crate) fn new(own: Compression, said: u32, heard: u32) -> Self {
        let is_built_in = cfg!(feature = "compression");
        let is_sent = heard & DEFLATE != 0 && is_built_in;
        Self { is_accepted: said & DEFLATE != 0, from: is_sent.then_some(own.from()) }
    }

    /// Whether the peer may send compressed messages.
    #[must_use]
    pub fn is_accepted(self) -> bool {
        self.is_accepted
    }

    /// Whether this side may.
    #[must_use]
    pub fn is_sent(self) -> bool {
        self.from.is_some()
    }

    /// From which length on a call's messages are compressed, of which its stub or its service says
    /// `of_call`; absent where the peer accepts none.
    #[inline]
    pub(crate) fn from(self, of_call: Option<u32>) -> Option<u32> {
        self.from.map(|from| of_call.unwrap_or(from))
    }

    /// Checks that the peer was told that it may send the frame.
    ///
    /// # Errors
    ///
    /// When it is compressed, and this side has not said that it accepts that.
    #[inline]
    pub(crate) fn check(self, header: &FrameHeader) -> Result<(), ProtocolError> {
        if !header.is_deflated || self.is_accepted {
            return Ok(());
        }
        Err(ProtocolError::NotNegotiated { kind: header.kind })
    }
}

/// Whether a message is compressed of which those from `from` on are.
#[inline]
pub(crate) fn is_due(from: Option<u32>, len: impl FnOnce() -> usize) -> bool {
    from.is_some_and(|from| from != NEVER && len() as u64 >= u64::from(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FrameKind;

    #[test]
    fn each_direction_needs_the_word_of_its_receiver() {
        let is_built_in = cfg!(feature = "compression");
        for (said, heard) in [(0, 0), (0, 1), (1, 0), (1, 1), (0xfffe, 0xfffe), (3, 0xffff)] {
            let negotiated = Negotiated::new(Compression::ON, said, heard);
            assert_eq!(negotiated.is_accepted(), said & 1 != 0);
            assert_eq!(negotiated.is_sent(), heard & 1 != 0 && is_built_in);
            let header =
                FrameHeader { is_deflated: true, ..FrameHeader::bare(FrameKind::Request, 1) };
            assert_eq!(negotiated.check(&header).is_ok(), said & 1 != 0);
            assert!(negotiated.check(&FrameHeader::bare(FrameKind::Request, 1)).is_ok());
        }
    }

    #[test]
    fn a_call_may_say_its_own_length_or_none_at_all() {
        let sent = Negotiated { is_accepted: false, from: Some(1024) };
        for (of_call, len, due) in [
            (None, 1023, false),
            (None, 1024, true),
            (Some(10), 10, true),
            (Some(2000), 1999, false),
            (Some(NEVER), usize::MAX, false),
        ] {
            assert_eq!(is_due(sent.from(of_call), || len), due, "{of_call:?}, {len}");
        }
        assert!(!is_due(Negotiated::default().from(Some(1)), || unreachable!(
            "no length is needed"
        )));
    }
}
