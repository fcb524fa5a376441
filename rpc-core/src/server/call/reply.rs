//! The answer to a call: status, metadata and message, on their way into a response frame.
//!
//! Answers are sent where they arise, and not at a later poll: hardly ever is there something
//! to wait for, and a future that could wait would have to carry all parts of the answer along.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Response, Status};

use crate::Trailers;
use crate::call::options::MessageLimits;
use crate::call::refusal;
use crate::call::server_times::ArrivedCall;
use crate::compression::{Deflated, is_due};
use crate::limits::memory::MemoryCharge;
use crate::limits::quota::Charge;
use crate::limits::quota::PeerKey;
use crate::payload::encode::{Encode, Lent, Split};
use crate::payload::tail_field::{DETACH_LEN_MIN, Detacher};
use crate::server::call::record::{Answer, CallRecord};
use crate::server::layers::{Capture, ServerResponse};
use crate::server::session::in_flight::CallsInFlight;
use crate::stream::SessionIo;
use crate::wire::outcome::Outcome;

/// Bytes of the three lengths in the block of a status: see [`Outcome`].
const OUTCOME_LENGTHS: usize = 12;

/// Shortest beginning of a longer text that is worth being sent, in bytes.
const TEXT_LEN_MIN: usize = 64;

/// An answer on its way to the transport: it has it, unless there was no memory for it.
#[must_use]
pub(in crate::server) struct PendingReply(Option<BoxFuture<'static, ()>>);

impl PendingReply {
    pub(in crate::server) const DONE: Self = Self(None);
}

impl Future for PendingReply {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().map_or(Poll::Ready(()), |waiting| waiting.as_mut().poll(context))
    }
}

/// The obligation to answer one call.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(in crate::server) id: u64,
    pub(in crate::server) calls: Arc<CallsInFlight>,
    pub(in crate::server) disposition: Disposition,
    /// Capture that takes the answer instead, if layers must see it first.
    pub(in crate::server) capture: Option<Arc<Capture>>,
    /// Log record of the call's end, held by the outermost of several obligations.
    pub(in crate::server) record: Option<CallRecord>,
    /// From which length on its messages are compressed; absent where the client accepts none.
    pub(in crate::server) compress_from: Option<u32>,
    /// Times that the client has asked for; held by the outermost of several obligations.
    pub(in crate::server) arrived: Option<Box<ArrivedCall>>,
}

impl Drop for Responder {
    fn drop(&mut self) {
        // An answer that was sent has taken the record: what is left here was never answered.
        if let Some(record) = self.record.take() {
            self.calls.log_given_up(&record);
        }
    }
}

/// The state of the call by the time it is answered.
#[derive(Debug)]
pub(in crate::server) enum Disposition {
    /// No handler has seen it.
    Refused,
    /// A handler has it, and it counts among the server's running calls.
    Running {
        _permit: Charge<PeerKey>,
        /// The memory of its request.
        _received: MemoryCharge,
    },
    /// A handler has had it, or may have had it; this only sends what became of it.
    Ended,
}

impl Disposition {
    /// Counts other memory as that of the call's request.
    pub(in crate::server) fn set_received(&mut self, charge: MemoryCharge) {
        if let Self::Running { _received, .. } = self {
            *_received = charge;
        }
    }
}

impl Responder {
    pub(in crate::server) fn new(
        id: u64,
        calls: Arc<CallsInFlight>,
        disposition: Disposition,
        record: Option<CallRecord>,
    ) -> Self {
        let (capture, compress_from, arrived) = (None, None, None);
        Self { id, calls, disposition, capture, record, compress_from, arrived }
    }

    /// A second responder for the same call, used to send the response once the layers have run.
    /// It takes the call's record along.
    pub(in crate::server) fn split_off(&mut self) -> Self {
        // `self` keeps the permit, which is given back when the handler has ended, and not after
        // the layers.
        let (calls, record) = (Arc::clone(&self.calls), self.record.take());
        let mut other = Self::new(self.id, calls, Disposition::Ended, record);
        other.capture = self.capture.clone();
        other.compress_from = self.compress_from;
        other.arrived = self.arrived.take();
        other
    }

    /// Answers with the message that a handler returned, from where it lies, if nothing has to be
    /// done with it or waited for. Returns false if [`reply`](Self::reply) has to.
    #[inline(always)]
    pub(in crate::server) fn try_reply<M: Message + 'static>(
        &mut self,
        response: &Response<M>,
        detacher: Option<Detacher>,
        limits: MessageLimits,
    ) -> bool {
        let is_bare = self.capture.is_none()
            && self.arrived.is_none()
            && response.metadata().is_empty()
            && response.extensions().get::<Trailers>().is_none();
        // Before the first function of prost's that walks through the message.
        let nests_too_deep = |it: Detacher| it.nests_too_deep(response.get_ref());
        if !is_bare || detacher.is_some_and(nests_too_deep) {
            return false;
        }
        let message = Lent::new(response.get_ref());
        let len = message.len();
        let len_max = self.calls.core.settled.peer_limits.max_message_len;
        if len >= DETACH_LEN_MIN
            || len as u64 > len_max
            || !limits.service_responses().allows(len)
            || is_due(self.compress_from, || len)
        {
            return false;
        }
        self.release_permit();
        let answer = Answer { message: Some(&message), ..Answer::bare(0, 0) };
        self.try_send(&answer)
    }

    /// Answers with what a handler returned.
    pub(in crate::server) fn reply<M: Message + 'static>(
        self,
        result: Result<Response<M>, Status>,
        detacher: Option<Detacher>,
        limits: MessageLimits,
    ) -> PendingReply {
        if let Ok(response) = &result {
            let message = response.get_ref();
            // Before the first function of prost's that walks through the message.
            let checked = refusal::check_nesting("response", message, detacher);
            let limit = limits.service_responses();
            let checked = checked.and_then(|()| limit.check_len_of(|| message.encoded_len()));
            if let Err(status) = checked {
                return self.fail(status);
            }
        }
        match (result, &self.capture) {
            (Err(status), _) => self.fail(status),
            (Ok(response), Some(capture)) => {
                let response = response.map(|message| Split::new(message, detacher));
                capture.set(Ok(ServerResponse::message(response, self.compress_from)));
                PendingReply::DONE
            }
            (Ok(response), None) => {
                let (metadata, message, extensions) = response.into_parts();
                self.send(metadata, extensions, Split::new(message, detacher))
            }
        }
    }

    /// Answers with one message.
    pub(in crate::server) fn send(
        mut self,
        metadata: MetadataMap,
        mut extensions: Extensions,
        message: impl Encode + 'static,
    ) -> PendingReply {
        self.release_permit();
        let mut trailers = extensions.remove::<Trailers>().map(|Trailers(trailers)| trailers);
        if let Some(arrived) = self.arrived.take() {
            let result = Ok(trailers.unwrap_or_default());
            let result = self.with_times(&arrived, &metadata, result, Some(&message));
            trailers = result.ok();
        }
        // Most replies have no metadata: their block is empty, and no map is made for it.
        let outcome = (trailers.is_some() || !metadata.is_empty())
            .then(|| Outcome { metadata, result: Ok(trailers.unwrap_or_default()) });
        if is_due(self.compress_from, || message.len()) {
            return PendingReply(Some(Box::pin(self.send_compressed(outcome, message))));
        }
        let Answer { code, block, .. } = match self.answer(outcome.as_ref(), Some(&message)) {
            Ok(answer) if self.try_send(&answer) => return PendingReply::DONE,
            Ok(answer) => answer,
            Err(status) => return self.fail(status),
        };
        // `answer` borrowed the message, which moves into the future: it is made again there.
        PendingReply(Some(Box::pin(async move {
            let message = Some(&message as &dyn Encode);
            let answer = Answer { block, message, ..Answer::bare(code, 0) };
            self.send_waiting(&answer).await;
        })))
    }

    /// Answers with one message, compressed if it becomes smaller by that.
    async fn send_compressed(mut self, outcome: Option<Outcome>, message: impl Encode + 'static) {
        // What is too long is told before it is compressed.
        let checked = self.answer(outcome.as_ref(), Some(&message)).map(drop);
        if let Err(status) = checked {
            return self.fail(status).await;
        }
        // Yields between pieces: a long message does not hold up the connection.
        let deflated = Deflated::of(&message).await;
        let sent = deflated.as_ref().map_or(&message as &dyn Encode, |deflated| deflated);
        let answer = self.answer(outcome.as_ref(), Some(sent));
        let answer = answer.map(|answer| Answer { is_deflated: deflated.is_some(), ..answer });
        match answer {
            Ok(answer) => {
                if !self.try_send(&answer) {
                    self.send_waiting(&answer).await;
                }
            }
            Err(status) => self.fail(status).await,
        }
    }

    /// Returns the end of the answer with the server's times, if the answer fits with them: an
    /// account of a call must not change its result.
    #[cold]
    fn with_times(
        &self,
        arrived: &ArrivedCall,
        metadata: &MetadataMap,
        result: Result<MetadataMap, Status>,
        message: Option<&dyn Encode>,
    ) -> Result<MetadataMap, Status> {
        let mut timed = result.clone();
        arrived.insert(match &mut timed {
            Ok(trailers) => trailers,
            Err(status) => status.metadata_mut(),
        });
        let outcome = Outcome { metadata: metadata.clone(), result: timed };
        if self.answer(Some(&outcome), message).is_ok() { outcome.result } else { result }
    }

    /// The session as what streams need of it.
    pub(in crate::server) fn io(&self) -> Arc<dyn SessionIo> {
        Arc::<CallsInFlight>::clone(&self.calls)
    }

    /// Answers with a status alone.
    pub(in crate::server) fn fail(self, status: Status) -> PendingReply {
        self.end(0, Err(status))
    }

    /// Ends an answer of which `seq` frames have been sent, with its status or its trailers.
    pub(in crate::server) fn end(
        mut self,
        seq: u64,
        mut result: Result<MetadataMap, Status>,
    ) -> PendingReply {
        if let Some(capture) = &self.capture {
            capture.set_seq(seq);
            capture.set(result.map(ServerResponse::streamed));
            return PendingReply::DONE;
        }
        if let Some(arrived) = self.arrived.take() {
            result = self.with_times(&arrived, &MetadataMap::new(), result, None);
        }
        let outcome = Outcome { metadata: MetadataMap::new(), result };
        let answer = self.answer(Some(&outcome), None).unwrap_or_else(|refused| {
            // The code is what the caller acts on: it is kept when the rest does not fit. The text
            // is what people read, and details go before it does.
            self.shortened(&outcome, &refused).unwrap_or_else(|| {
                let code = outcome.result.as_ref().err().map_or(refused.code(), Status::code);
                let message = format!("(status left out: {})", refused.message());
                let metadata = MetadataMap::new();
                let brief = Outcome { metadata, result: Err(Status::new(code, message)) };
                self.answer(Some(&brief), None).unwrap_or(Answer::bare(code as u16, seq))
            })
        });
        // Read before the permit is released, which makes the call one that a handler has seen.
        let is_not_executed = matches!(self.disposition, Disposition::Refused);
        self.release_permit();
        let (code, block) = (answer.code, answer.block);
        let answer = Answer { is_not_executed, block, ..Answer::bare(code, seq) };
        if self.try_send(&answer) {
            return PendingReply::DONE;
        }
        PendingReply(Some(Box::pin(async move { self.send_waiting(&answer).await })))
    }

    /// The answer with a status as the client accepts it: without details or, if that is not
    /// enough, with the beginning of its text and what `refused` says. `None` where its metadata
    /// leaves no room for that.
    fn shortened(&self, outcome: &Outcome, refused: &Status) -> Option<Answer<'static>> {
        let status = outcome.result.as_ref().err()?;
        let metadata = status.metadata().clone();
        let bare = Status::with_metadata(status.code(), "", metadata.clone());
        let bare = Outcome { metadata: MetadataMap::new(), result: Err(bare) };
        // A status that is bare altogether has no block, whose lengths take this.
        let bare_len = self.answer(Some(&bare), None).ok()?.block.len().max(OUTCOME_LENGTHS);
        let max = self.calls.core.settled.peer_limits.max_metadata_len;
        let room = usize::try_from(max).unwrap_or(usize::MAX).checked_sub(bare_len)?;
        let mut text = status.message().to_owned();
        if text.len() > room {
            let note = format!(" (cut: {})", refused.message());
            let room = room.checked_sub(note.len()).filter(|room| *room >= TEXT_LEN_MIN)?;
            let end = (0..=room).rev().find(|at| text.is_char_boundary(*at))?;
            text.truncate(end);
            text.push_str(&note);
        }
        let status = Status::with_metadata(status.code(), text, metadata);
        let outcome = Outcome { metadata: MetadataMap::new(), result: Err(status) };
        let Answer { code, block, .. } = self.answer(Some(&outcome), None).ok()?;
        Some(Answer { block, ..Answer::bare(code, 0) })
    }

    /// The handler has ended: its call no longer counts among the running ones. Before the answer
    /// is sent, because the client may read it and make its next call at once. Not when the answer
    /// has memory, because the peer decides when that is: one that reads nothing could otherwise
    /// hold every permit of the server.
    fn release_permit(&mut self) {
        if let Disposition::Running { .. } = self.disposition {
            self.disposition = Disposition::Ended;
        }
    }

    /// Sends an answer if nothing has to be waited for. Returns true if it is settled, sent or not.
    #[inline(always)]
    fn try_send(&mut self, answer: &Answer<'_>) -> bool {
        match self.calls.try_reply(self.id, answer, &mut self.record) {
            Ok(is_settled) => is_settled,
            Err(status) => {
                self.fail_in_task(status);
                true
            }
        }
    }

    /// Answers with a status in a task of its own, in place of an answer that has no memory. Its
    /// call takes the record along.
    fn fail_in_task(&mut self, status: Status) {
        // `Ended`, since a handler may have run: the client must not take the call for one that was
        // not executed.
        let (calls, record) = (Arc::clone(&self.calls), self.record.take());
        // Without the permit: the status of a peer that reads nothing must not hold one.
        let other = Self::new(self.id, calls, Disposition::Ended, record);
        tokio::spawn(other.fail(status));
    }

    /// Sends an answer for which there was no memory at once.
    async fn send_waiting(mut self, answer: &Answer<'_>) {
        if let Err(status) = self.calls.reply(self.id, answer, &mut self.record).await {
            self.fail_in_task(status);
        }
    }

    /// An answer with `outcome`; without one, a success that has no metadata.
    fn answer<'a>(
        &self,
        outcome: Option<&Outcome>,
        message: Option<&'a dyn Encode>,
    ) -> Result<Answer<'a>, Status> {
        let limits = &self.calls.core.settled.peer_limits;
        let mut block = Vec::new();
        if let Some(outcome) = outcome {
            let encoded = outcome.encode(&mut block);
            encoded.map_err(|error| refusal::unencodable("response", &error))?;
            refusal::check_metadata("response", block.len(), "client's", limits)?;
        }
        let message_len = message.map_or(0, Encode::len) as u64;
        refusal::check_message("response", message_len, "client's", limits)?;
        Ok(Answer { block, message, ..Answer::bare(outcome.map_or(0, Outcome::code), 0) })
    }
}
