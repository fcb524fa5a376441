//! The kinds of frames, and their numbers on the wire.

/// Declares every kind once, with its number. The list of all kinds and both directions of the
/// translation are made from that, so that a new kind can be missing in none of them. Two kinds of
/// one number are an unreachable pattern.
macro_rules! frame_kinds {
    ($($(#[$doc:meta])+ $kind:ident = $number:literal,)+) => {
        /// The kind of a frame.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum FrameKind {
            $($(#[$doc])+ $kind,)+
        }

        impl FrameKind {
            /// Every kind, in the order of the numbers; for tests that play a peer.
            #[doc(hidden)]
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Its number, which is the first byte of a frame.
            #[must_use]
            pub fn to_wire(self) -> u8 {
                match self {
                    $(Self::$kind => $number,)+
                }
            }

            /// The kind with that number, if there is one.
            pub(super) fn from_wire(value: u8) -> Option<Self> {
                match value {
                    $($number => Some(Self::$kind),)+
                    _ => None,
                }
            }
        }
    };
}

frame_kinds! {
    /// Starts a call: the client's message, unless its messages follow.
    Request = 1,
    /// Ends a call: the server's status and, where the answer is one message, that message.
    Response = 2,
    /// The client gives the call up; nothing answers it.
    Cancel = 3,
    /// The metadata with which the server begins a stream of messages.
    Headers = 4,
    /// Messages of a stream, each behind its length in four bytes.
    Messages = 5,
    /// The client's stream has ended in order.
    HalfClose = 6,
    /// Total amount of the other side's stream that may be sent.
    Window = 7,
    /// Asks for a pong, to learn whether the other side is there.
    Ping = 8,
    /// Answers a ping.
    Pong = 9,
    /// The server starts no more calls on this connection; those in flight go on.
    GoAway = 10,
}

#[cfg(test)]
mod tests {
    use super::FrameKind;

    #[test]
    fn every_number_is_one_kind_or_none() {
        let known = (0..=u8::MAX).filter_map(FrameKind::from_wire).collect::<Vec<_>>();
        assert_eq!(known, FrameKind::ALL);
        for &kind in FrameKind::ALL {
            assert_eq!(FrameKind::from_wire(kind.to_wire()), Some(kind));
        }
    }
}
