//! A connection as the channel sees it, its transport type forgotten.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::{CallDeadline, Readiness, Started};
use crate::call::message_limits::MessageLimits;
use crate::connect::ConnectionInfo;
use crate::payload::encode::Encode;
use crate::transport::{Addresses, CloseReason};
use crate::wire::hello::Hello;
use crate::{BufferSource, Keepalive, Limits, MethodDescriptor};

/// What a session is started with.
#[derive(Debug)]
pub struct ClientSetup {
    /// What this side accepts.
    pub limits: Limits,
    /// How a silent server is found.
    pub keepalive: Option<Keepalive>,
    /// How long the server may take nothing of what waits for it.
    pub progress_timeout: Option<Duration>,
    /// What the server said.
    pub peer: Hello,
    /// The server's address as the user wrote it.
    pub server: Arc<str>,
    /// The connection's two ends.
    pub addresses: Addresses,
    /// Why the connection did not move to a better path.
    pub fallback: Option<String>,
    /// Whether it moved to one.
    pub is_upgraded: bool,
}

/// A call to be started.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The method.
    pub method: &'static MethodDescriptor,
    /// The request's metadata.
    pub metadata: &'a MetadataMap,
    /// When the call ends at the latest.
    pub deadline: Option<&'a CallDeadline>,
    /// What it does while the channel has no connection.
    pub readiness: Readiness,
    /// What its stub allows its messages.
    pub limits: MessageLimits,
    /// The request's message; absent where the client's messages are a stream.
    pub message: Option<&'a dyn Encode>,
}

impl Outgoing<'_> {
    /// Checks the request's message against the limit of the stub.
    pub(super) fn check_message(&self) -> Result<(), Status> {
        let Some(message) = self.message else { return Ok(()) };
        self.limits.of_requests().check_len_of(|| message.len())
    }
}

/// The client's end of one connection.
pub trait Connection: fmt::Debug + Send + Sync {
    /// Starts a call if nothing has to be waited for; `None` when the caller has to wait with
    /// [`Connection::start`].
    ///
    /// # Errors
    ///
    /// With the call's status when it cannot be started. It was not executed.
    fn try_start(self: Arc<Self>, call: Outgoing<'_>) -> Result<Option<Started>, Status>;

    /// Starts a call, once the peer's limit and the transport's memory allow.
    ///
    /// # Errors
    ///
    /// With the call's status when it cannot be started. It was not executed.
    ///
    /// # Cancel safety
    ///
    /// Cancelled before it is ready, the call is not started.
    fn start<'a>(self: Arc<Self>, call: Outgoing<'a>) -> BoxFuture<'a, Result<Started, Status>>;

    /// Gives a call up. A call that has ended is left alone.
    fn cancel(&self, id: u64);

    /// Gives a call up because of a failure on this side, which becomes its status.
    fn fail(&self, id: u64, status: Status);

    /// Whether calls can be started: the connection has not ended, and the server has not said
    /// that it starts no more.
    fn is_open(&self) -> bool;

    /// Why the connection takes no calls any more, once it has ended or is about to. Absent where
    /// it only was sent away or retired.
    fn closed(&self) -> Option<CloseReason>;

    /// The calls that the server has answered so far; one that it refused before a handler saw it
    /// is not among them, and a stream counts with its first frame.
    fn answered_count(&self) -> u64;

    /// Set when the connection has ended.
    fn ended(&self) -> CancellationToken;

    /// Starts no more calls, and ends the connection with the last one in flight.
    fn retire(&self);

    /// Ends the connection; calls in flight end with `UNAVAILABLE`.
    fn close(&self);

    /// Where applications get memory that the connection sends from, if it has any.
    fn buffers(&self) -> Option<Arc<dyn BufferSource>> {
        None
    }

    /// What the connection says of itself.
    fn info(&self) -> ConnectionInfo;
}
