//! The streams of the service.

use std::hash::Hasher;

use farcall::{Status, Streaming};
use futures::Stream;
use futures::stream::unfold;

use super::answers::{failure, produce};
use crate::proto::{DownloadRequest, EchoReply, EchoRequest, UploadReply};
use crate::watch::Reporter;

/// The messages that a request describes, and the end that it asks for.
pub fn download(
    request: DownloadRequest,
    reporter: Reporter,
) -> impl Stream<Item = Result<EchoReply, Status>> + Send {
    let DownloadRequest { messages, rounds, failure: end, park } = request;
    let count = messages.len() * rounds.max(1) as usize;
    let state = (0, end, park);
    unfold(state, move |(index, end, park)| {
        let (reporter, messages) = (reporter.clone(), messages.clone());
        async move {
            if index < count {
                let item = produce(messages[index % messages.len()]);
                return Some((item, (index + 1, end, park)));
            }
            if let Some(tag) = park {
                reporter.park(tag).await;
            }
            let status = failure(end?);
            Some((Err(status.unwrap_or_else(|status| status)), (index, None, None)))
        }
    })
}

/// Reads everything that the client sends.
pub async fn upload(mut messages: Streaming<EchoRequest>) -> Result<UploadReply, Status> {
    let mut digest = Digest::default();
    while let Some(message) = messages.message().await? {
        digest.add(&message.payload);
    }
    Ok(digest.into_reply())
}

/// A stream's messages, digested in order.
#[derive(Debug, Default)]
pub struct Digest {
    count: u64,
    bytes: u64,
    hasher: std::hash::DefaultHasher,
}

impl Digest {
    /// Adds the payload of the next message.
    pub fn add(&mut self, payload: &[u8]) {
        self.count += 1;
        self.bytes += payload.len() as u64;
        self.hasher.write_usize(payload.len());
        self.hasher.write(payload);
    }

    /// Returns the digest as the reply to an upload.
    pub fn into_reply(self) -> UploadReply {
        let Self { count, bytes, hasher } = self;
        UploadReply { count, bytes, digest: hasher.finish() }
    }
}
