//! The answer to a call: status, metadata and message, on their way into a response frame.

use std::sync::Arc;

use futures::future::BoxFuture;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Response, Status};

use super::layers::{Capture, ServerResponse};
use crate::calls::load::LoadPermit;
use crate::detach::Detacher;
use crate::encode::{Encode, Split};
use crate::frames::Parts;
use crate::stream::StreamHost;
use crate::wire::outcome::Outcome;
use crate::wire::{FrameHeader, FrameKind};
use crate::{Trailers, refusal};

/// The parts of a response frame.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(super) code: u16,
    /// How many frames the answer has before this one.
    pub(super) place: u64,
    pub(super) is_not_executed: bool,
    pub(super) block: Vec<u8>,
    pub(super) message: Option<&'a dyn Encode>,
}

impl Answer<'_> {
    /// The frame that carries the answer to the call `id`.
    pub(super) fn parts(&self, id: u64) -> Parts<'_> {
        let mut header = FrameHeader::bare(FrameKind::Response, id);
        header.selector = self.code;
        header.argument = self.place;
        header.is_not_executed = self.is_not_executed;
        Parts { header, block: &self.block, message: self.message }
    }
}

/// Where answers go: the session, its transport type forgotten.
pub(super) trait Replies: StreamHost {
    /// The same session as what streams need of it.
    fn host(self: Arc<Self>) -> Arc<dyn StreamHost>;

    /// Sends the answer if nothing has to be waited for; true when it is settled, sent or not.
    fn try_reply(&self, id: u64, answer: &Answer<'_>) -> bool;

    /// Sends the answer once there is memory for it.
    fn reply<'a>(&'a self, id: u64, answer: &'a Answer<'a>) -> BoxFuture<'a, ()>;
}

/// The obligation to answer one call.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(super) id: u64,
    pub(super) replies: Arc<dyn Replies>,
    pub(super) standing: Standing,
    /// Where the answer goes instead when layers are to see it first.
    pub(super) capture: Option<Arc<Capture>>,
}

/// What has become of the call by the time it is answered.
#[derive(Debug)]
pub(super) enum Standing {
    /// No handler has seen it.
    Refused,
    /// A handler has it, and it has its place among the server's running calls.
    Running { _place: LoadPermit },
    /// A handler may have had it; this only sends what became of it.
    Ended,
}

impl Responder {
    pub(super) fn new(id: u64, replies: Arc<dyn Replies>, standing: Standing) -> Self {
        Self { id, replies, standing, capture: None }
    }

    /// The same obligation once more, for who answers what layers have seen.
    pub(super) fn again(&self) -> Self {
        Self::new(self.id, Arc::clone(&self.replies), Standing::Ended)
    }

    /// Answers with what a handler returned.
    pub(super) async fn reply<M: Message + 'static>(
        self,
        result: Result<Response<M>, Status>,
        detacher: Option<Detacher>,
    ) {
        let result = result.map(|response| response.map(|message| Split::new(message, detacher)));
        if let Some(capture) = &self.capture {
            return capture.set(result.map(ServerResponse::message));
        }
        match result {
            Ok(response) => {
                let (metadata, message, extensions) = response.into_parts();
                self.send(metadata, extensions, &message).await;
            }
            Err(status) => self.fail(status).await,
        }
    }

    /// Answers with one message.
    pub(super) async fn send(
        self,
        metadata: MetadataMap,
        mut extensions: Extensions,
        message: &dyn Encode,
    ) {
        let Trailers(trailers) = extensions.remove::<Trailers>().unwrap_or_default();
        let outcome = Outcome { metadata, result: Ok(trailers) };
        match self.answer(&outcome, Some(message)) {
            Ok(answer) => self.settle(&answer).await,
            Err(status) => self.fail(status).await,
        }
    }

    /// The session as what streams need of it.
    pub(super) fn host(&self) -> Arc<dyn StreamHost> {
        Arc::clone(&self.replies).host()
    }

    /// Answers with a status alone.
    pub(super) async fn fail(self, status: Status) {
        self.end(0, Err(status)).await;
    }

    /// Ends an answer of which `place` frames have been sent, with its status or its trailers.
    pub(super) async fn end(self, place: u64, result: Result<MetadataMap, Status>) {
        if let Some(capture) = &self.capture {
            capture.set_place(place);
            return capture.set(result.map(ServerResponse::streamed));
        }
        // The second is of use only when trailers do not fit.
        let code = result.as_ref().err().map_or(Code::ResourceExhausted, Status::code);
        let outcome = Outcome { metadata: MetadataMap::new(), result };
        let answer = self.answer(&outcome, None).unwrap_or_else(|too_large| {
            // The code is what the caller acts on: it is kept when the rest does not fit.
            let words = format!("(status left out: {})", too_large.message());
            let metadata = MetadataMap::new();
            let brief = Outcome { metadata, result: Err(Status::new(code, words)) };
            self.answer(&brief, None).unwrap_or(Answer {
                code: code as u16,
                place,
                is_not_executed: false,
                block: Vec::new(),
                message: None,
            })
        });
        let is_not_executed = matches!(self.standing, Standing::Refused);
        self.settle(&Answer { place, is_not_executed, ..answer }).await;
    }

    fn answer<'a>(
        &self,
        outcome: &Outcome,
        message: Option<&'a dyn Encode>,
    ) -> Result<Answer<'a>, Status> {
        let mut block = Vec::new();
        let encoded = outcome.encode(&mut block);
        encoded.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        let limits = self.replies.peer_limits();
        refusal::check_metadata("response", block.len(), "client's", limits)?;
        let message_len = message.map_or(0, Encode::len) as u64;
        refusal::check_message("response", message_len, "client's", limits)?;
        Ok(Answer { code: outcome.code(), place: 0, is_not_executed: false, block, message })
    }

    async fn settle(&self, answer: &Answer<'_>) {
        if !self.replies.try_reply(self.id, answer) {
            self.replies.reply(self.id, answer).await;
        }
    }
}
