//! A call that is in flight, as its caller holds it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tonic::Status;

use super::Connection;

/// What a response frame holds.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub code: u16,
    /// The block: metadata, trailers, the status's words and details.
    pub block: Bytes,
    /// The message; it aliases the memory that it was received into.
    pub message: Bytes,
}

/// The way back to the caller.
pub(super) type ReplySender = oneshot::Sender<Result<Reply, Status>>;

/// A future of the reply. Dropping it before it is ready cancels the call on the peer; it owns
/// no memory that a device may touch.
#[derive(Debug)]
#[must_use]
pub struct PendingReply {
    reply: oneshot::Receiver<Result<Reply, Status>>,
    id: u64,
    /// Present while the call is in flight.
    connection: Option<Arc<dyn Connection>>,
    _permit: OwnedSemaphorePermit,
}

impl PendingReply {
    pub(super) fn new(
        reply: oneshot::Receiver<Result<Reply, Status>>,
        id: u64,
        connection: Arc<dyn Connection>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { reply, id, connection: Some(connection), _permit: permit }
    }
}

impl Future for PendingReply {
    type Output = Result<Reply, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = ready!(Pin::new(&mut self.reply).poll(cx));
        self.connection = None;
        // The session answers every call that it takes out of its table, so that only its own
        // unwinding could drop the sender.
        Poll::Ready(reply.unwrap_or_else(|_| Err(Status::internal("the session was lost"))))
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.cancel(self.id);
        }
    }
}
