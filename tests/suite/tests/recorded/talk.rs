//! The server of the recordings: what a line says decides what becomes of its call.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use farcall::metadata::{MetadataMap, MetadataValue};
use farcall::{Code, Deadline, Request, Response, Status, Streaming};
use futures::Stream;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{StreamExt as _, iter};

use crate::proto::Line;
use crate::proto::talk_server::Talk;

/// Length of the text that `long` is answered with. Frames over 64 KiB travel in chunks.
pub(crate) const LONG_LEN: usize = 100_000;

/// Message of the status that `fail` is answered with.
pub(crate) const FAILURE: &str = "no such line";

/// Details of that status. They are opaque to farcall.
pub(crate) const DETAILS: &[u8] = b"\x08\x09details";

/// A server's handler, and the signal that it gives when a client asks for a drain.
#[derive(Debug, Default)]
pub(crate) struct Talker {
    /// Notified when a client has sent `drain`.
    pub(crate) drain: Arc<Notify>,
}

type Lines = Pin<Box<dyn Stream<Item = Result<Line, Status>> + Send>>;

/// Returns a message with that text.
pub(crate) fn line(text: impl Into<String>) -> Line {
    Line { text: text.into() }
}

/// Returns metadata with a text entry and a binary one.
pub(crate) fn marks() -> MetadataMap {
    let mut metadata = MetadataMap::new();
    metadata.insert("x-mark", MetadataValue::from_static("a mark"));
    metadata.insert_bin("x-mark-bin", MetadataValue::from_bytes(&[0, 1, 254, 255]));
    metadata
}

/// Returns a response that carries the request's marks back.
fn marked<T>(message: T, metadata: &MetadataMap) -> Response<T> {
    let mut response = Response::new(message);
    if let Some(mark) = metadata.get("x-mark") {
        response.metadata_mut().insert("x-mark", mark.clone());
    }
    if let Some(mark) = metadata.get_bin("x-mark-bin") {
        response.metadata_mut().insert_bin("x-mark-bin", mark.clone());
    }
    response
}

#[farcall::async_trait]
impl Talk for Talker {
    async fn ask(&self, request: Request<Line>) -> Result<Response<Line>, Status> {
        let (metadata, _, Line { text }) = request.into_parts();
        let answer = match text.as_str() {
            "fail" => {
                let (code, details) = (Code::FailedPrecondition, Bytes::from_static(DETAILS));
                return Err(Status::with_details_and_metadata(code, FAILURE, details, marks()));
            }
            "park" => std::future::pending().await,
            "deadline" => format!("{}", Deadline::current().is_some()),
            "long" => "a".repeat(LONG_LEN),
            _ => text,
        };
        Ok(marked(line(answer), &metadata))
    }

    type ListenStream = Lines;

    async fn listen(&self, request: Request<Line>) -> Result<Response<Lines>, Status> {
        let (metadata, _, Line { text }) = request.into_parts();
        let pieces: Vec<_> = text.split(' ').map(|word| Ok(line(word))).collect();
        Ok(marked(Box::pin(iter(pieces)), &metadata))
    }

    async fn tell(&self, request: Request<Streaming<Line>>) -> Result<Response<Line>, Status> {
        let mut lines = request.into_inner();
        let mut wanted = Vec::new();
        while let Some(Line { text }) = lines.message().await? {
            wanted.push(text);
        }
        Ok(Response::new(line(wanted.join(" "))))
    }

    type ChatStream = Lines;

    async fn chat(&self, request: Request<Streaming<Line>>) -> Result<Response<Lines>, Status> {
        let mut lines = request.into_inner();
        let drain = self.drain.clone();
        let (answers, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(Ok(line)) = lines.next().await {
                let wants_drain = line.text == "drain";
                if answers.send(Ok(line)).await.is_err() {
                    return;
                }
                if wants_drain {
                    drain.notify_one();
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}
