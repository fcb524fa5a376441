//! The calls of one connection in flight: their table, and the way of their answers to the
//! transport.
//!
//! An answer is a frame that takes its call out of the table as it is written.

use std::sync::Arc;
use std::{fmt, mem};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tonic::{Code, Status};

use crate::call::refusal;
use crate::calls::receiving::ReceiveBudget;
use crate::calls::server::{Calls, Kept};
use crate::limited_log;
use crate::limits::log::LogLimit;
use crate::limits::memory::MemoryCharge;
use crate::server::call::record::{Answer, CallLines, CallRecord, CallStreams, Messages};
use crate::server::settings::CallRules;
use crate::session::SessionCore;
use crate::stream::SessionIo;
use crate::transport::frames::Parts;
use crate::transport::{OutFrame, TransportError, Withdrawn, WriteHead};

/// Memory of a waiting answer besides its message: a task with the futures of the answer and of its
/// memory. On x86-64 it is 1,550 bytes, 240 of them the future of the answer, and 320 that of its
/// memory over TCP (1,008 over RDMA). A client that reads nothing can make all its calls wait, and
/// with short answers this is most of the memory that it makes the server keep.
const WAITING_LEN: u64 = 2 << 10;

/// The calls of a connection, and the part of its session that answers them.
pub(in crate::server) struct CallsInFlight {
    pub(in crate::server) core: SessionCore,
    rules: Arc<CallRules>,
    pub(super) state: Mutex<State>,
    /// Notified when the last call has ended while no more are started.
    pub(super) idle: Notify,
    /// Limit on the lines that the server's clients can cause in the log.
    pub(super) log: LogLimit,
}

/// The tables of a session, which one lock guards.
pub(super) struct State {
    pub(super) calls: Calls<CallStreams, AbortHandle>,
    /// The large frames on their way, each with what it holds of the memory budget.
    pub(super) receive_budget: ReceiveBudget<MemoryCharge>,
    pub(super) phase: Phase,
    pub(super) started_count: u64,
}

/// The phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// New calls are started.
    Open,
    /// New calls are refused; those in flight go on.
    Draining,
    /// The connection has ended.
    Closed,
}

impl State {
    /// Refuses new calls from now on.
    pub(super) fn drain(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
        }
    }

    /// Returns true if a task that waits for the last call to end must be woken.
    fn is_drained(&self) -> bool {
        self.phase != Phase::Open && self.calls.is_idle()
    }
}

impl CallsInFlight {
    pub(super) fn new(core: SessionCore, rules: Arc<CallRules>, log: LogLimit) -> Self {
        let limits = core.settled.limits;
        let state = Mutex::new(State {
            calls: Calls::new(limits.max_calls),
            receive_budget: ReceiveBudget::new(limits.max_receiving_bytes),
            phase: Phase::Open,
            started_count: 0,
        });
        Self { core, rules, state, idle: Notify::new(), log }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Ends a call that is not answered: the client is gone, or cannot be told.
    fn finish(&self, id: u64) {
        let ended = {
            let mut state = self.state();
            let ended = state.calls.finish(id);
            if state.is_drained() {
                self.idle.notify_waiters();
            }
            ended
        };
        if let Some(Kept { streams, .. }) = ended {
            // Outside of the lock: ending a stream wakes the task that reads it.
            streams.end_requests(refusal::answered);
        }
    }

    pub(super) fn lines(&self) -> CallLines<'_> {
        CallLines {
            log: self.rules.log(),
            limit: &self.log,
            addresses: &self.core.settled.addresses,
            transport: &*self.core.transport,
            stats: self.rules.stats.as_deref(),
        }
    }

    /// Sends the answer if nothing has to be waited for. Returns true if it is settled, and false
    /// if it has to wait for memory. Once it is sent, its call is logged, and the record is gone.
    ///
    /// # Errors
    ///
    /// Returns the status to answer with instead: there is no memory for the answer.
    #[inline(always)]
    pub(in crate::server) fn try_reply(
        &self,
        id: u64,
        answer: &Answer<'_>,
        record: &mut Option<CallRecord>,
    ) -> Result<bool, Status> {
        // Dropped unsettled, it leaves the call in the table or counts it as answered: `Stage`
        // knows which.
        let mut response = Response::new(self, id, answer, record);
        self.core.check_memory(response.parts.len())?;
        match self.core.transport.try_send(response.frame()) {
            // Nothing was written, so that the call is still in the table and `record` still here.
            Ok(false) => Ok(false),
            Ok(true) => response.settle(None).map(|()| true),
            Err(error) => response.settle(Some(error)).map(|()| true),
        }
    }

    /// Sends the answer once there is memory for it.
    ///
    /// # Errors
    ///
    /// Returns the status to answer with instead: the server keeps no more answers for this client.
    pub(in crate::server) async fn reply(
        &self,
        id: u64,
        answer: &Answer<'_>,
        record: &mut Option<CallRecord>,
    ) -> Result<(), Status> {
        // The message is there, and stays for as long as the client likes to let it wait. A status
        // is short, and what is told when there is no room for more.
        let len = answer.parts(id).len() as u64 + WAITING_LEN;
        let _waiting = match answer.message {
            Some(_) => self.core.memory.try_take(len)?,
            None => self.core.memory.take(len),
        };
        let mut response = Response::new(self, id, answer, record);
        let error = self.core.transport.send(response.frame()).await.err();
        response.settle(error)
    }

    /// Logs a call that was given up before it was answered.
    pub(in crate::server) fn log_given_up(&self, record: &CallRecord) {
        // The lock is released before the line is written, which may block.
        let message = match self.state().phase {
            Phase::Closed => "the connection ended before the call",
            Phase::Open | Phase::Draining => "the client cancelled the call",
        };
        record.log_unanswered(self.lines(), Code::Cancelled, message);
    }

    /// Settles an answer for which there is no memory.
    fn settle_without_memory(
        &self,
        id: u64,
        answer: &Answer<'_>,
        error: TransportError,
        record: &mut Option<CallRecord>,
    ) -> Result<(), Status> {
        match error {
            // The record stays: the call is logged as given up when its responder is dropped.
            TransportError::Closed { .. } => self.finish(id),
            error if answer.message.is_some() => {
                return Err(Status::resource_exhausted(error.to_string()));
            }
            error => {
                self.finish(id);
                let addresses = &self.core.settled.addresses;
                limited_log!(
                    target: "farcall::server",
                    self.log, ERROR, "cannot answer a call", %addresses, %error
                );
                if let Some(record) = record.take() {
                    record.log_unanswered(self.lines(), Code::Unavailable, &error.to_string());
                }
            }
        }
        Ok(())
    }
}

impl SessionIo for CallsInFlight {
    fn core(&self) -> &SessionCore {
        &self.core
    }

    fn unsendable(&self, error: &TransportError) -> Status {
        refusal::unsendable(error)
    }
}

impl fmt::Debug for CallsInFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallsInFlight")
            .field("transport", &self.core.transport)
            .field("in_flight_count", &self.state().calls.in_flight_count())
            .finish_non_exhaustive()
    }
}

/// An answer on its way to the transport.
pub(super) struct Response<'a> {
    calls: &'a CallsInFlight,
    id: u64,
    answer: &'a Answer<'a>,
    parts: Parts<'a>,
    record: &'a mut Option<CallRecord>,
    stage: Stage<'a>,
    /// For the record of a call with streams, from the moment at which it is out of the table.
    streamed: Option<Messages>,
}

/// The progress of the answer.
enum Stage<'a> {
    /// There was no memory for its frame yet.
    Unwritten,
    /// Its call is out of the table.
    Written(Unsettled<'a>),
}

/// A call that is out of the table, and whose answer the transport may not have yet. Draining does
/// not close the connection before this is dropped.
struct Unsettled<'a>(&'a CallsInFlight);

impl Drop for Unsettled<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let Self(calls) = self;
        let mut state = calls.state();
        state.calls.answered();
        if state.is_drained() {
            calls.idle.notify_waiters();
        }
    }
}

impl<'a> Response<'a> {
    pub(super) fn new(
        calls: &'a CallsInFlight,
        id: u64,
        answer: &'a Answer<'a>,
        record: &'a mut Option<CallRecord>,
    ) -> Self {
        let (parts, stage) = (answer.parts(id), Stage::Unwritten);
        Self { calls, id, answer, parts, record, stage, streamed: None }
    }

    /// The frame, as a transport takes it.
    pub(super) fn frame(&mut self) -> OutFrame<'_> {
        OutFrame::new(self.parts.head_len(), self.parts.tail(), self)
    }

    /// Settles the answer once the transport has it, or has refused it.
    ///
    /// # Errors
    ///
    /// Returns the status to answer with instead: the transport has no memory for the message.
    #[inline(always)]
    fn settle(&mut self, error: Option<TransportError>) -> Result<(), Status> {
        let Self { calls, id, answer, parts, record, stage, streamed } = self;
        let (calls, id, answer) = (*calls, *id, *answer);
        match (mem::replace(stage, Stage::Unwritten), error) {
            // A connection that has ended meanwhile has no peer to tell.
            (Stage::Written(unsettled), _) => drop(unsettled),
            // The call was given up meanwhile.
            (Stage::Unwritten, Some(TransportError::Withdrawn)) => return Ok(()),
            // A transport that sends nothing and does not say so: the call has no answer.
            (Stage::Unwritten, None) => {
                calls.finish(id);
                return Ok(());
            }
            (Stage::Unwritten, Some(error)) => {
                return calls.settle_without_memory(id, answer, error, record);
            }
        }
        // Behind the answer, which does not wait for a subscriber.
        if let Some(ended) = &**record {
            let len = parts.message_len();
            // Most calls end like this: nothing but numbers.
            if answer.code == 0 && streamed.is_none() && calls.rules.only_counts_successes() {
                ended.count_success(len.unwrap_or(0));
            } else {
                let whole = || Messages::of(len, &CallStreams::default());
                let messages = streamed.take().unwrap_or_else(whole);
                ended.log_answer(calls.lines(), answer, messages);
            }
            **record = None;
        }
        Ok(())
    }
}

impl WriteHead for Response<'_> {
    fn write_head(&mut self, head: &mut [u8]) -> Result<(), Withdrawn> {
        self.parts.write_head(head)?;
        // The call is out of the table before its client can know the answer and make another.
        let ended = self.calls.state().calls.answer(self.id);
        let Some(Kept { streams, .. }) = ended else { return Err(Withdrawn) };
        if !streams.is_empty() && self.record.is_some() {
            self.streamed = Some(Messages::of(self.parts.message_len(), &streams));
        }
        // `answer` has counted the call as answering. Dropping `Unsettled` is what counts it down;
        // without that, draining would never end.
        self.stage = Stage::Written(Unsettled(self.calls));
        streams.end_requests(refusal::answered);
        Ok(())
    }
}
