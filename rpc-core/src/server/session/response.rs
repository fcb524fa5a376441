//! A call's answer as a frame that takes the call out of the session's table as it is written.

use std::sync::Arc;

use futures::future::BoxFuture;
use tonic::Code;

use crate::call::refusal;
use crate::calls::server::Kept;
use crate::server::call::record::Answer;
use crate::server::call::record::{CallRecord, Messages};
use crate::server::call::reply::ReplySink;
use crate::server::session::{Phase, ServerSession};
use crate::stream::SessionIo;
use crate::transport::frames::Parts;
use crate::transport::{OutFrame, TransportError, Withdrawn, WriteHead};

/// Memory of a waiting answer besides its message: a task with the futures of the answer and of its
/// memory. On x86-64 it is 1,550 bytes, 240 of them the future of the answer, and 320 that of its
/// memory over TCP (1,008 over RDMA). A client that reads nothing can make all its calls wait, and
/// with short answers this is most of the memory that it makes the server keep.
const WAITING_LEN: u64 = 2 << 10;

impl ReplySink for ServerSession {
    fn io(self: Arc<Self>) -> Arc<dyn SessionIo> {
        self
    }

    fn try_reply(&self, id: u64, answer: &Answer<'_>, record: &mut Option<CallRecord>) -> bool {
        if let Err(status) = self.core.check_memory(answer.parts(id).len()) {
            self.spawn_refusal(id, status, record.take());
            return true;
        }
        let mut response = Response::new(self, id, answer, record);
        match self.core.transport.try_send(response.frame()) {
            // Nothing was written, so that the call is still in the table and `record` still here.
            Ok(false) => return false,
            Ok(true) => response.settle(None),
            Err(error) => response.settle(Some(error)),
        }
        true
    }

    fn reply<'a>(
        &'a self,
        id: u64,
        answer: &'a Answer<'a>,
        record: &'a mut Option<CallRecord>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // The message is there, and stays for as long as the client likes to let it wait. A
            // status is short, and what is told when there is no room for more.
            let len = answer.parts(id).len() as u64 + WAITING_LEN;
            let charged = match answer.message {
                Some(_) => self.core.memory.try_take(len),
                None => Ok(self.core.memory.take(len)),
            };
            let _waiting = match charged {
                Ok(charge) => charge,
                Err(status) => return self.spawn_refusal(id, status, record.take()),
            };
            let mut response = Response::new(self, id, answer, record);
            let error = self.core.transport.send(response.frame()).await.err();
            response.settle(error);
        })
    }

    fn log_given_up(&self, record: CallRecord) {
        let words = match self.state().phase {
            Phase::Closed => "the connection ended before the call",
            Phase::Open | Phase::Draining => "the client cancelled the call",
        };
        record.log_unanswered(self.lines(), Code::Cancelled, words);
    }
}

/// An answer on its way to the transport.
pub(super) struct Response<'a> {
    session: &'a ServerSession,
    id: u64,
    answer: &'a Answer<'a>,
    parts: Parts<'a>,
    record: &'a mut Option<CallRecord>,
    stage: Stage<'a>,
}

/// The progress of the answer.
enum Stage<'a> {
    /// There was no memory for its frame yet.
    Unwritten,
    /// Its call is out of the table.
    Written { messages: Option<Messages>, unsettled: Unsettled<'a> },
}

/// A call that is out of the table, and whose answer the transport may not have yet. Draining does
/// not close the connection before this is dropped.
struct Unsettled<'a>(&'a ServerSession);

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        let Self(session) = self;
        let mut state = session.state();
        state.calls.answered();
        if state.is_drained() {
            session.idle.notify_waiters();
        }
    }
}

impl<'a> Response<'a> {
    pub(super) fn new(
        session: &'a ServerSession,
        id: u64,
        answer: &'a Answer<'a>,
        record: &'a mut Option<CallRecord>,
    ) -> Self {
        Self { session, id, answer, parts: answer.parts(id), record, stage: Stage::Unwritten }
    }

    /// The frame, as a transport takes it.
    pub(super) fn frame(&mut self) -> OutFrame<'_> {
        OutFrame::new(self.parts.head_len(), self.parts.tail(), self)
    }

    /// Settles the answer once the transport has it, or has refused it.
    pub(super) fn settle(self, error: Option<TransportError>) {
        let Self { session, id, answer, record, stage, .. } = self;
        let messages = match (stage, error) {
            // A connection that has ended meanwhile has no peer to tell.
            (Stage::Written { messages, unsettled }, _) => {
                drop(unsettled);
                messages
            }
            // The call was given up meanwhile.
            (Stage::Unwritten, Some(TransportError::Withdrawn)) => return,
            // A transport that sends nothing and does not say so: the call has no answer.
            (Stage::Unwritten, None) => return session.finish(id),
            (Stage::Unwritten, Some(error)) => {
                return session.settle_without_memory(id, answer, error, record);
            }
        };
        // Behind the answer, which does not wait for a subscriber.
        if let Some((record, messages)) = record.take().zip(messages) {
            record.log_answer(session.lines(), answer, messages);
        }
    }
}

impl WriteHead for Response<'_> {
    fn write_head(&mut self, head: &mut [u8]) -> Result<(), Withdrawn> {
        self.parts.write_head(head)?;
        // The call is out of the table before its client can know the answer and make another.
        let ended = self.session.state().calls.answer(self.id);
        let Some(Kept { streams, .. }) = ended else { return Err(Withdrawn) };
        let messages = self.record.as_ref().map(|_| Messages::of(self.answer, &streams));
        // `answer` has counted the call as answering. Dropping `Unsettled` is what counts it down;
        // without that, draining would never end.
        self.stage = Stage::Written { messages, unsettled: Unsettled(self.session) };
        streams.end_requests(refusal::answered);
        Ok(())
    }
}
