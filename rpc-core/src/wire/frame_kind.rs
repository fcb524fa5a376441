//! The kinds of frames, and their numbers on the wire.

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameKind {
    /// Starts a call: the client's message, unless its messages follow.
    Request,
    /// Ends a call: the server's status and, where the answer is one message, that message.
    Response,
    /// The client gives the call up; nothing answers it.
    Cancel,
    /// The metadata with which the server begins a stream of messages.
    Headers,
    /// Messages of a stream, each behind its length in four bytes.
    Messages,
    /// The client's stream has ended in order.
    HalfClose,
    /// How much of the other side's stream may be sent in all.
    Window,
    /// Asks for a pong, to learn whether the other side is there.
    Ping,
    /// Answers a ping.
    Pong,
    /// The server starts no more calls on this connection; those in flight go on.
    GoAway,
}

impl FrameKind {
    pub(super) const ALL: [Self; 10] = [
        Self::Request,
        Self::Response,
        Self::Cancel,
        Self::Headers,
        Self::Messages,
        Self::HalfClose,
        Self::Window,
        Self::Ping,
        Self::Pong,
        Self::GoAway,
    ];

    pub(super) fn to_wire(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
            Self::Cancel => 3,
            Self::Headers => 4,
            Self::Messages => 5,
            Self::HalfClose => 6,
            Self::Window => 7,
            Self::Ping => 8,
            Self::Pong => 9,
            Self::GoAway => 10,
        }
    }

    /// The kind with that number, if there is one.
    pub(super) fn from_wire(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.to_wire() == value)
    }
}
