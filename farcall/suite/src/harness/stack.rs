//! Whose client and whose server are looked at, and what a caller sees of the two together.
//!
//! What differs from farcall's own stub and server comes from tonic's generated code or from
//! HTTP/2, and is told in `docs/differences-from-tonic.md` and `docs/grpc.md`.

use farcall::Code;

use crate::Path;

/// A client, a server, and what is between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stack {
    /// farcall's stub and farcall's server.
    Farcall,
    /// tonic's client and tonic's server.
    Tonic,
    /// tonic's client over a farcall channel, and farcall's server.
    Over,
    /// farcall's stub, and a service that tonic has generated, served by farcall.
    Served,
}

/// What becomes of trailing metadata of a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrailersSeen {
    /// The caller finds it in an extension, and among the metadata.
    Apart,
    /// The caller finds it among the metadata alone.
    Joined,
    /// The server does not send it.
    Nowhere,
}

impl Stack {
    pub(crate) fn of(path: &Path) -> Self {
        match path {
            Path::Tonic => Self::Tonic,
            Path::GrpcOver(_) => Self::Over,
            Path::GrpcServed(_) => Self::Served,
            _ => Self::Farcall,
        }
    }

    /// Where the caller finds trailers.
    pub(crate) fn trailers(self) -> TrailersSeen {
        match self {
            // tonic's code hands on the extension in which the handler leaves them.
            Self::Farcall | Self::Served => TrailersSeen::Apart,
            // tonic's client knows the metadata of one message alone.
            Self::Over => TrailersSeen::Joined,
            // tonic's trait has no place for them.
            Self::Tonic => TrailersSeen::Nowhere,
        }
    }

    /// How a call ends whose deadline passes before its answer.
    pub(crate) fn deadline_code(self) -> Code {
        match self {
            Self::Farcall | Self::Over | Self::Served => Code::DeadlineExceeded,
            // Its client's own timer is said to be a cancel.
            Self::Tonic => Code::Cancelled,
        }
    }

    /// Whether a deadline ends a stream that has begun.
    pub(crate) fn bounds_streams(self) -> bool {
        self != Self::Tonic
    }

    /// Whether a handler that reads requests can tell a client that gave up from one that has sent
    /// everything.
    pub(crate) fn tells_cancel_from_end(self) -> bool {
        self != Self::Tonic
    }

    /// Whether dropping the responses of a conversation cancels it while the requests go on.
    pub(crate) fn drop_cancels_conversation(self) -> bool {
        self != Self::Tonic
    }
}
