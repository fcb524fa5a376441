//! The answer to a call: status, metadata and message, on their way into a response frame.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Response, Status};

use crate::encode::Encode;
use crate::wire::outcome::Outcome;
use crate::{Limits, Trailers, refusal};

/// The parts of a response frame.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(super) code: u16,
    pub(super) block: Vec<u8>,
    pub(super) message: Option<&'a dyn Encode>,
}

/// Where answers go: the session, its transport type forgotten.
pub(super) trait Replies: fmt::Debug + Send + Sync {
    /// What the client accepts.
    fn peer_limits(&self) -> &Limits;

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
}

impl Responder {
    /// Answers with what a handler returned.
    pub(super) async fn reply<M: Message>(self, result: Result<Response<M>, Status>) {
        let (metadata, message, mut extensions) = match result {
            Ok(response) => response.into_parts(),
            Err(status) => return self.fail(status).await,
        };
        let Trailers(trailers) = extensions.remove::<Trailers>().unwrap_or_default();
        let outcome = Outcome { metadata, result: Ok(trailers) };
        match self.answer(&outcome, Some(&message)) {
            Ok(answer) => self.settle(&answer).await,
            Err(status) => self.fail(status).await,
        }
    }

    /// Answers with a status alone.
    pub(super) async fn fail(self, status: Status) {
        let code = status.code();
        let outcome = Outcome { metadata: MetadataMap::new(), result: Err(status) };
        let answer = self.answer(&outcome, None).unwrap_or_else(|too_large| {
            // The code is what the caller acts on: it is kept when the rest does not fit.
            let words = format!("(status left out: {})", too_large.message());
            let metadata = MetadataMap::new();
            let brief = Outcome { metadata, result: Err(Status::new(code, words)) };
            self.answer(&brief, None).unwrap_or(Answer {
                code: code as u16,
                block: Vec::new(),
                message: None,
            })
        });
        self.settle(&answer).await;
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
        Ok(Answer { code: outcome.code(), block, message })
    }

    async fn settle(&self, answer: &Answer<'_>) {
        if !self.replies.try_reply(self.id, answer) {
            self.replies.reply(self.id, answer).await;
        }
    }
}
