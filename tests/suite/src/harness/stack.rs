//! The client and the server under test, and the caller's view of the pair.
//!
//! Differences from farcall's own stub and server come from tonic's generated code or from HTTP/2.
//! The book (`differences-from-tonic.md`, `grpc.md`) explains them.

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
    /// tonic's client over HTTP/2, and farcall's server.
    Port,
    /// farcall's stub over HTTP/2, and farcall's server.
    ToPort,
    /// farcall's stub over HTTP/2, and tonic's server.
    ToTonic,
}

/// The fate of a conversation whose caller drops its responses while its requests go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDrop {
    /// It is cancelled, and its handler is dropped.
    Cancels,
    /// It is cancelled, and to its handler that may look like an end of the requests.
    CancelsAsEnd,
    /// It goes on with its requests.
    LivesOn,
}

/// The fate of a success's trailing metadata.
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
            Path::GrpcPort => Self::Port,
            Path::GrpcToPort => Self::ToPort,
            Path::GrpcToTonic => Self::ToTonic,
            Path::OnCores(under) => Self::of(under),
            _ => Self::Farcall,
        }
    }

    /// Returns the place where the caller finds trailers.
    pub(crate) fn trailers(self) -> TrailersSeen {
        match self {
            // tonic's code hands on the extension in which the handler leaves them.
            Self::Farcall | Self::Served | Self::ToPort => TrailersSeen::Apart,
            // tonic's client knows the metadata of one message alone.
            Self::Over | Self::Port => TrailersSeen::Joined,
            // tonic's trait has no place for them.
            Self::Tonic | Self::ToTonic => TrailersSeen::Nowhere,
        }
    }

    /// Returns true if a call whose deadline passes before its answer may end with that code.
    pub(crate) fn may_end_late_with(self, code: Code) -> bool {
        match self {
            // The timer of tonic's client is said to be a cancel.
            Self::Tonic => code == Code::Cancelled,
            // It and the server's deadline pass at the same time.
            Self::Port => matches!(code, Code::Cancelled | Code::DeadlineExceeded),
            Self::Farcall | Self::Over | Self::Served | Self::ToPort | Self::ToTonic => {
                code == Code::DeadlineExceeded
            }
        }
    }

    /// Returns true if a deadline ends a stream that has begun.
    pub(crate) fn bounds_streams(self) -> bool {
        self != Self::Tonic
    }

    /// Returns true if a handler that reads requests can tell a cancelled client from one that has
    /// sent everything.
    pub(crate) fn tells_cancel_from_end(self) -> bool {
        !matches!(self, Self::Tonic | Self::ToTonic)
    }

    /// Returns the fate of a conversation whose responses are dropped.
    pub(crate) fn on_drop(self) -> OnDrop {
        match self {
            Self::Farcall | Self::Over | Self::Served | Self::ToPort => OnDrop::Cancels,
            Self::ToTonic => OnDrop::CancelsAsEnd,
            // tonic's client goes on to send.
            Self::Tonic | Self::Port => OnDrop::LivesOn,
        }
    }
}
