//! A connection that a channel has made, and the calls that were started over it.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::Status;

use super::connection::refused;
use super::session::Session;
use super::{Connection, EncodedCalls, Reply};
use crate::NotExecuted;
use crate::calls::window::Counts;
use crate::stream::{Next, OnComplete, RecvStream, SendStream, SessionIo};

/// A connection that a channel has made, and the way in which it takes calls.
#[derive(Debug, Clone)]
pub enum Established {
    /// It speaks farcall's protocol.
    Session(Arc<Session>),
    /// It speaks another one.
    Encoded(Arc<dyn EncodedCalls>),
}

impl Established {
    /// Returns the session, for a channel whose connector makes sessions.
    #[inline(always)]
    pub(super) fn into_session(self) -> Result<Arc<Session>, Status> {
        match self {
            Self::Session(session) => Ok(session),
            Self::Encoded(_) => Err(wrong_protocol()),
        }
    }

    /// Returns the connection, for a channel whose connector makes none with a session.
    pub(super) fn into_encoded(self) -> Result<Arc<dyn EncodedCalls>, Status> {
        match self {
            Self::Encoded(connection) => Ok(connection),
            Self::Session(_) => Err(wrong_protocol()),
        }
    }
}

impl Deref for Established {
    type Target = dyn Connection;

    fn deref(&self) -> &(dyn Connection + 'static) {
        match self {
            Self::Session(session) => &**session,
            Self::Encoded(connection) => &**connection,
        }
    }
}

/// A call in flight. Dropping it cancels the call on the peer; it owns no memory that a device
/// may touch.
#[derive(Debug)]
#[must_use]
pub(crate) struct Started {
    pub(super) guard: CallGuard,
    /// The answer, where it is a stream.
    pub(super) responses: Option<Arc<RecvStream>>,
    /// The window of the request stream, where there is one.
    pub(super) send_stream: Option<Arc<SendStream>>,
}

/// Keeps a call: dropped before the call has ended, it cancels it on the peer.
#[derive(Debug)]
pub(super) struct CallGuard {
    id: u64,
    session: Arc<Session>,
    has_ended: bool,
}

impl CallGuard {
    pub(super) fn new(id: u64, session: Arc<Session>) -> Self {
        Self { id, session, has_ended: false }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the session, which can end the call with a status of this side.
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl OnComplete for CallGuard {
    fn complete(&mut self) {
        self.has_ended = true;
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if !self.has_ended {
            // The caller has gone: the server need not go on.
            self.session.cancel(self.id);
        }
    }
}

/// An answer that is one message. Dropped, it leaves the call to its guard.
///
/// An `async fn` would move the reply once more, and `poll_fn` is a function of its own.
#[must_use]
pub(super) struct Replied<'a>(&'a mut CallGuard);

impl Future for Replied<'_> {
    type Output = Result<Reply, Status>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let CallGuard { id, session, has_ended } = &mut *self.0;
        let polled = session.poll_reply(*id, cx);
        // The answer is there, whatever it says: there is nothing left to cancel.
        *has_ended |= polled.is_ready();
        match polled {
            Poll::Ready(Ok(Reply { code, block, is_not_executed: true, .. })) => {
                Poll::Ready(Err(refused(code, block)))
            }
            polled => polled,
        }
    }
}

impl Started {
    /// The I/O of its streams.
    pub(super) fn io(&self) -> Arc<dyn SessionIo> {
        Arc::clone(&self.guard.session) as _
    }

    /// Waits for an answer that is one message.
    pub(super) fn reply(&mut self) -> Replied<'_> {
        Replied(&mut self.guard)
    }

    /// Waits for the beginning of an answer that is a stream.
    pub(super) async fn first(&self) -> Next {
        match &self.responses {
            // No message was read before the first item, so nothing is granted for it.
            Some(responses) => poll_fn(|cx| responses.poll_next(cx, Counts::default())).await,
            None => Next::Failed(Status::internal("the answer is one message")),
        }
    }
}

/// The status of a call whose channel's connector breaks its promise about the protocol.
#[cold]
fn wrong_protocol() -> Status {
    NotExecuted::mark(Status::internal("the connector opened a connection of another protocol"))
}
