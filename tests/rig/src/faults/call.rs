//! One call of each kind, with every byte of it checked.

use std::fmt;

use bytes::Bytes;
use farcall::{Code, NotExecuted};
use farcall_suite::proto::ProduceRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_testkit::calls::PayloadSource;

use crate::calls::{CallFailure, CheckedCalls};

/// The longest message of a stream; the usual ones are small.
const STREAMED_MAX: usize = 32 << 10;

/// A large message: dozens of packets, and a READ of its own over RDMA.
const LARGE: usize = 256 << 10;

/// A small message: in one packet, and in one receive slot over RDMA.
const SMALL_MAX: usize = 100;

/// Messages of one stream.
const MESSAGES: usize = 6;

/// The kinds of calls, and where their payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    UnarySmall,
    UnaryUp,
    UnaryDown,
    ClientStream,
    ServerStream,
    Bidi,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::UnarySmall,
        Self::UnaryUp,
        Self::UnaryDown,
        Self::ClientStream,
        Self::ServerStream,
        Self::Bidi,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::UnarySmall => "unary small",
            Self::UnaryUp => "unary large up",
            Self::UnaryDown => "unary large down",
            Self::ClientStream => "client stream",
            Self::ServerStream => "server stream",
            Self::Bidi => "bidi",
        })
    }
}

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallEnd {
    /// With the right answer.
    Answered,
    /// With an answer whose bytes are not the right ones.
    WrongBytes,
    /// With a status that says that it was not executed.
    NotExecuted(i32),
    /// With a status that leaves that open.
    Failed(i32),
    /// Not at all, within the bound on everything.
    Endless,
}

impl CallEnd {
    fn of(failure: &CallFailure) -> Self {
        match failure {
            CallFailure::WrongAnswer(_) => Self::WrongBytes,
            CallFailure::Status(status) if NotExecuted::matches(status) => {
                Self::NotExecuted(status.code() as i32)
            }
            CallFailure::Status(status) => Self::Failed(status.code() as i32),
        }
    }

    /// The status's code, if it is one.
    pub(super) fn code(self) -> Option<Code> {
        match self {
            Self::NotExecuted(code) | Self::Failed(code) => Some(Code::from_i32(code)),
            Self::Answered | Self::WrongBytes | Self::Endless => None,
        }
    }
}

/// A caller of one kind of call.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    calls: CheckedCalls,
    kind: Kind,
    payloads: PayloadSource,
}

impl Caller {
    pub(super) fn new(stub: ProbeStub, kind: Kind, seed: u64) -> Self {
        let calls = CheckedCalls::new(stub);
        Self { calls, kind, payloads: PayloadSource::new(seed, 2 * LARGE) }
    }

    /// Makes one call; a failure comes with its message.
    pub(super) async fn call(&mut self) -> (CallEnd, Option<String>) {
        let result = match self.kind {
            Kind::UnarySmall => self.calls.clone().echo(self.payload(SMALL_MAX)).await,
            Kind::UnaryUp => self.calls.clone().digest(self.payloads.cut(LARGE)).await,
            Kind::UnaryDown => self.calls.clone().produce(self.wanted(LARGE)).await,
            Kind::ClientStream => self.calls.clone().upload(self.stream()).await,
            Kind::ServerStream => {
                let lens: Vec<_> = self.stream().iter().map(Bytes::len).collect();
                let wanted = lens.into_iter().map(|len| self.wanted(len)).collect();
                self.calls.clone().download(wanted).await
            }
            Kind::Bidi => self.calls.clone().chat(self.stream()).await,
        };
        match result {
            Ok(()) => (CallEnd::Answered, None),
            Err(failure) => (CallEnd::of(&failure), Some(failure.to_string())),
        }
    }

    /// The payloads of a stream: small ones, and one of any length.
    fn stream(&mut self) -> Vec<Bytes> {
        let long = self.payloads.random.usize(0..MESSAGES);
        let len_max = |index| if index == long { STREAMED_MAX } else { SMALL_MAX };
        (0..MESSAGES).map(|index| self.payload(len_max(index))).collect()
    }

    fn payload(&mut self, len_max: usize) -> Bytes {
        let len = self.payloads.random.usize(1..=len_max);
        self.payloads.cut(len)
    }

    fn wanted(&mut self, len: usize) -> ProduceRequest {
        ProduceRequest { seed: self.payloads.random.u64(..), len: len as u64 }
    }
}
