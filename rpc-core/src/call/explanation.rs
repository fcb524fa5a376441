//! The account of a call as its caller reads it.

use std::fmt;
use std::time::Duration;

use tonic::Code;

use crate::connect::ConnectionInfo;
use crate::transport::FrameProtocol;

/// A part of a call's time, in the order in which a call passes through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CallStage {
    /// Attempts before the last one, with the pauses between them.
    EarlierAttempts,
    /// The wait for an endpoint, a connection, the server's limit of calls, and memory.
    Queue,
    /// Encoding of the request, in the transport's memory where that is possible.
    Encode,
    /// The wait until the peer lets this side send. Only over RDMA.
    Credit,
    /// Posting the request to the device, or writing it to the socket. What the transport leaves to
    /// its own task counts as [`Wire`](Self::Wire).
    Post,
    /// The way there and back: the network, both kernels, and wake-ups of the server.
    Wire,
    /// The transfer of large frames: READs over RDMA, and the pieces of a response elsewhere. A
    /// request's READ ends with its release.
    Transfer,
    /// The server's time before it runs the handler.
    ServerQueue,
    /// The server's handler, with its layers and the decoding of its request.
    Handler,
    /// Wire and server together, where the server does not tell its times.
    Remote,
    /// From the arrival of the response to the caller's task.
    Delivery,
    /// Decoding of the response, and the way through the client's layers.
    Decode,
}

impl CallStage {
    pub(super) const ALL: [Self; 12] = [
        Self::EarlierAttempts,
        Self::Queue,
        Self::Encode,
        Self::Credit,
        Self::Post,
        Self::Wire,
        Self::Transfer,
        Self::ServerQueue,
        Self::Handler,
        Self::Remote,
        Self::Delivery,
        Self::Decode,
    ];

    /// Returns the name in tables and in span attributes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EarlierAttempts => "earlier attempts",
            Self::Queue => "queue",
            Self::Encode => "encode",
            Self::Credit => "credit",
            Self::Post => "post",
            Self::Wire => "wire",
            Self::Transfer => "transfer",
            Self::ServerQueue => "server queue",
            Self::Handler => "handler",
            Self::Remote => "remote",
            Self::Delivery => "delivery",
            Self::Decode => "decode",
        }
    }
}

/// A frame that carried a request or a response of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainedFrame {
    /// Length in bytes, header and metadata included.
    pub len: u64,
    /// The transport's protocols for small and large frames.
    pub protocol: FrameProtocol,
    /// True if the frame was large.
    pub is_large: bool,
}

impl ExplainedFrame {
    /// Returns the name of the protocol that carried it, such as `SEND` or `READ`.
    #[must_use]
    pub fn protocol_name(&self) -> &'static str {
        if self.is_large { self.protocol.large } else { self.protocol.small }
    }
}

impl fmt::Display for ExplainedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.protocol_name(), self.len)
    }
}

/// The choice of an endpoint among several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointPick {
    /// Name of the policy, as in settings.
    pub policy: &'static str,
    /// Number of endpoints that could be picked.
    pub candidates: usize,
    /// Number of calls that were in flight at the picked one.
    pub in_flight: u32,
}

impl EndpointPick {
    pub(crate) fn new(policy: &'static str, candidates: usize, in_flight: u32) -> Self {
        Self { policy, candidates, in_flight }
    }
}

/// An account of one call.
///
/// `Display` writes one line: the total time, then the time of each stage.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CallExplanation {
    /// Time from the stub's call to its decoded response or its failure. A call with a stream of
    /// responses ends here with the stream's headers. Up to the last mark for a call that was
    /// dropped.
    pub total: Duration,
    /// The parts of `total` that were measured, in the order of [`CallStage`]. Their sum is
    /// `total`.
    pub stages: Vec<(CallStage, Duration)>,
    /// Number of attempts.
    pub attempts: u32,
    /// Failed attempts, the last one of a failed call included: code and escaped message.
    pub failed: Vec<(Code, String)>,
    /// Address of the server that the last attempt went to.
    pub endpoint: Option<String>,
    /// The choice of that server; absent if the channel has one server.
    pub pick: Option<EndpointPick>,
    /// The connection of the last attempt, as it was when the request was sent; absent if there
    /// was none.
    pub connection: Option<ConnectionInfo>,
    /// Frame of the request; absent over gRPC, and before it was sent.
    pub request: Option<ExplainedFrame>,
    /// Frame of the response; absent over gRPC, for streams, and if none came.
    pub reply: Option<ExplainedFrame>,
    /// Bytes that this side copied from one buffer to another on the connection, during the call.
    /// Concurrent calls on the connection count as well. Absent where nothing is counted.
    pub copied_bytes: Option<u64>,
}

impl CallExplanation {
    /// Returns the time of a stage; `None` if it was not measured.
    #[must_use]
    pub fn stage(&self, stage: CallStage) -> Option<Duration> {
        self.stages.iter().find(|(it, _)| *it == stage).map(|(_, time)| *time)
    }
}

impl fmt::Display for CallExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} us", micros(self.total))?;
        for (index, (stage, time)) in self.stages.iter().enumerate() {
            let before = if index == 0 { ':' } else { ',' };
            write!(f, "{before} {} {}", stage.name(), micros(*time))?;
        }
        Ok(())
    }
}

/// Returns a time in microseconds, in tenths where it is short.
fn micros(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 10.0 { format!("{micros:.1}") } else { format!("{micros:.0}") }
}
