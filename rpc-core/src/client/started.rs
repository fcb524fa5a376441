//! A call that is in flight, as its caller holds it.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tonic::Status;

use super::Connection;
use crate::NotExecuted;
use crate::stream::{Inbound, Next, Outbound, ResponseEnd, StreamHost};
use crate::wire::outcome::Outcome;

/// What a response frame holds, where the answer is one message.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub code: u16,
    /// The block: metadata, trailers, the status's words and details.
    pub block: Bytes,
    /// The message; it aliases the memory that it was received into.
    pub message: Bytes,
    /// Whether the server says that no handler has seen the call.
    pub is_not_executed: bool,
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
    pub(super) outbound: Option<Arc<Outbound>>,
    pub(super) host: Arc<dyn StreamHost>,
}

/// Where the answer comes from.
#[derive(Debug)]
pub(super) enum Answer {
    Reply(oneshot::Receiver<Result<Reply, Status>>),
    Stream(Arc<Inbound>),
}

/// Keeps a call: dropped before the call has ended, it cancels it on the peer.
#[derive(Debug)]
pub(super) struct CallGuard {
    id: u64,
    /// Present while the call is in flight.
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

impl ResponseEnd for CallGuard {
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
    pub(super) async fn reply(mut self) -> Result<Reply, Status> {
        let Answer::Reply(reply) = self.answer else {
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
            Answer::Stream(inbound) => poll_fn(|cx| inbound.poll_next(cx)).await,
            Answer::Reply(_) => Next::Failed(Status::internal("the answer is one message")),
        }
    }
}
