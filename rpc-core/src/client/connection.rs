//! `Connection`: a client session, its transport type erased, and the calls in flight on it.

use std::fmt;
use std::future::{poll_fn, ready};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::{CallDeadline, ForeignConnection, MethodTable};
use crate::call::message_limits::MessageLimits;
use crate::call::metadata_names::MetadataNames;
use crate::connect::{ConnectionInfo, Fallback};
use crate::payload::encode::Encode;
use crate::stream::{
    Inflated, Next, OnComplete, Receiving, RecvStream, SendStream, SessionIo, inflated,
};
use crate::transport::{Addresses, CloseReason};
use crate::wire::hello::Hello;
use crate::wire::outcome::Outcome;
use crate::{
    BufferSource, CallKind, Idempotency, Keepalive, Limits, MethodDescriptor, Negotiated,
    NotExecuted, Readiness,
};

/// What a session is started with.
#[derive(Debug)]
pub struct ClientSetup {
    /// What this side accepts.
    pub limits: Limits,
    /// How a silent server is found.
    pub keepalive: Option<Keepalive>,
    /// How long the server may take nothing of what waits for it.
    pub progress_timeout: Option<Duration>,
    /// What was agreed on about compressed messages.
    pub compression: Negotiated,
    /// What the server said.
    pub peer: Hello,
    /// The server's address as the user wrote it.
    pub server: Arc<str>,
    /// The connection's two ends.
    pub addresses: Addresses,
    /// Why the connection did not move to an upgraded path.
    pub fallback: Option<Fallback>,
    /// Whether it moved to one.
    pub is_upgraded: bool,
}

/// A call to be started.
#[derive(Clone, Copy)]
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

impl fmt::Debug for Outgoing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("method", &self.method.path)
            .field("metadata", &MetadataNames(self.metadata))
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Outgoing<'_> {
    /// Checks the request's message against the limit of the stub.
    pub(super) fn check_message(&self) -> Result<(), Status> {
        let Some(message) = self.message else { return Ok(()) };
        self.limits.of_requests().check_len_of(|| message.len())
    }
}

/// The status of a call that is started on a connection without a session.
fn no_session() -> Status {
    Status::internal("the connection speaks another protocol, and has no session")
}

/// The client's end of one connection: a session's, or that of another protocol. Sessions have what
/// has a default here; a connection of another protocol has [`Connection::foreign`] alone.
pub trait Connection: fmt::Debug + Send + Sync {
    /// Where calls go, if the connection speaks another protocol.
    fn foreign(self: Arc<Self>) -> Option<Arc<dyn ForeignConnection>> {
        None
    }

    /// Starts a call if nothing has to be waited for; `None` when the caller has to wait with
    /// [`Connection::start`].
    ///
    /// # Errors
    ///
    /// With the call's status when it cannot be started. It was not executed.
    fn try_start(self: Arc<Self>, _call: Outgoing<'_>) -> Result<Option<Started>, Status> {
        Err(no_session())
    }

    /// Starts a call, once the peer's limit and the transport's memory allow.
    ///
    /// # Errors
    ///
    /// With the call's status when it cannot be started. It was not executed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: dropped before it is ready, it does not start the call.
    fn start<'a>(self: Arc<Self>, _call: Outgoing<'a>) -> BoxFuture<'a, Result<Started, Status>> {
        Box::pin(ready(Err(no_session())))
    }

    /// What the server says of the method at `path`.
    ///
    /// # Errors
    ///
    /// When the server has no such method, or is of a version that does not say.
    fn method(&self, _path: &str) -> Result<(CallKind, Idempotency), Status> {
        Err(no_session())
    }

    /// The server's methods. Empty where its protocol does not list them.
    fn method_table(&self) -> Weak<MethodTable> {
        Weak::new()
    }

    /// Gives a call up. A call that has ended is left alone.
    fn cancel(&self, _id: u64) {}

    /// Gives a call up because of a failure on this side, which becomes its status.
    fn fail(&self, _id: u64, _status: Status) {}

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

/// What a response frame holds, where the answer is one message.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub code: u16,
    /// The block: metadata, trailers, the status's words and details.
    pub block: Bytes,
    /// The message; it aliases the memory that it was received into.
    pub message: Bytes,
    /// Whether the message is compressed.
    pub is_deflated: bool,
    /// Whether the server says that no handler has seen the call.
    pub is_not_executed: bool,
}

impl Reply {
    /// The same answer with its message inflated, in the caller's task.
    pub(super) async fn inflated(
        mut self,
        io: &dyn SessionIo,
        receiving: Receiving,
    ) -> Result<Self, Status> {
        let message = std::mem::take(&mut self.message);
        // A client has no memory budget.
        let Inflated { message, .. } = inflated(io, message, receiving).await?;
        Ok(Self { message, is_deflated: false, ..self })
    }
}

/// The way back to the caller.
pub(super) type ReplySender = oneshot::Sender<Result<Reply, Status>>;

/// A call in flight. Dropping it cancels the call on the peer; it owns no memory that a device
/// may touch.
#[derive(Debug)]
#[must_use]
pub struct Started {
    pub(super) guard: CallGuard,
    pub(super) answer: Answer,
    /// The window of the request stream, where there is one.
    pub(super) send_stream: Option<Arc<SendStream>>,
    pub(super) io: Arc<dyn SessionIo>,
}

/// Where the answer comes from.
#[derive(Debug)]
pub(super) enum Answer {
    Reply(oneshot::Receiver<Result<Reply, Status>>),
    Stream(Arc<RecvStream>),
}

/// Keeps a call: dropped before the call has ended, it cancels it on the peer.
#[derive(Debug)]
pub(super) struct CallGuard {
    id: u64,
    /// The session, until the call has ended.
    connection: Option<Arc<dyn Connection>>,
    _permit: OwnedSemaphorePermit,
}

impl CallGuard {
    pub(super) fn new(
        id: u64,
        connection: Arc<dyn Connection>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { id, connection: Some(connection), _permit: permit }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// A way to end the call with a status of this side.
    pub(super) fn connection(&self) -> Option<Arc<dyn Connection>> {
        self.connection.clone()
    }
}

impl OnComplete for CallGuard {
    fn complete(&mut self) {
        self.connection = None;
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.cancel(self.id);
        }
    }
}

/// The status of a call that the server refused before any handler had seen it.
pub(super) fn refused(code: u16, block: Bytes) -> Status {
    let status = match Outcome::decode(code, block) {
        Ok(Outcome { result: Err(status), .. }) => status,
        Ok(_) => Status::internal("the server refused a call with the code of a success"),
        Err(error) => Status::internal(format!("the response's block does not decode: {error}")),
    };
    NotExecuted::mark(status)
}

impl Started {
    /// Waits for an answer that is one message.
    pub(super) async fn reply(&mut self) -> Result<Reply, Status> {
        let Answer::Reply(reply) = &mut self.answer else {
            return Err(Status::internal("the answer is a stream"));
        };
        let reply = reply.await;
        self.guard.complete();
        // The session answers every call that it takes out of its table, so that only its own
        // unwinding could drop the sender.
        let reply = reply.unwrap_or_else(|_| Err(Status::internal("the session was lost")))?;
        if reply.is_not_executed {
            return Err(refused(reply.code, reply.block));
        }
        Ok(reply)
    }

    /// Waits for the beginning of an answer that is a stream.
    pub(super) async fn first(&self) -> Next {
        match &self.answer {
            Answer::Stream(recv_stream) => poll_fn(|cx| recv_stream.poll_next(cx)).await,
            Answer::Reply(_) => Next::Failed(Status::internal("the answer is one message")),
        }
    }
}
