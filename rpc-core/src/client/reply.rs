//! Decoding an answer that is one message.

use std::fmt;

use bytes::Bytes;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Response, Status};

use super::Reply;
use crate::Trailers;
use crate::call::message_limits::MessageLimits;
use crate::wire::outcome::Outcome;

/// The status of an answer of which a part does not decode.
pub(super) fn undecodable(what: &str, error: &dyn fmt::Display) -> Status {
    Status::internal(format!("the response's {what} does not decode: {error}"))
}

/// Decodes an answer whose message is a `Resp` within the stub's limits.
pub(super) fn decode<Resp>(reply: Reply, limits: MessageLimits) -> Result<Response<Resp>, Status>
where
    Resp: Message + Default,
{
    let (metadata, trailers, message) = open_reply(reply)?;
    limits.of_responses().check(message.len())?;
    let message = Resp::decode(message).map_err(|error| undecodable("message", &error))?;
    let mut extensions = Extensions::new();
    if !trailers.0.is_empty() {
        extensions.insert(trailers);
    }
    Ok(Response::from_parts(metadata, message, extensions))
}

/// The parts of an answer that is one message: all metadata, the trailing part of it once more,
/// and the message, not decoded; or the status that came instead.
pub(super) fn open_reply(reply: Reply) -> Result<(MetadataMap, Trailers, Bytes), Status> {
    if reply.code == 0 && reply.block.is_empty() {
        return Ok((MetadataMap::new(), Trailers::default(), reply.message));
    }
    let outcome = Outcome::decode(reply.code, reply.block);
    let outcome = outcome.map_err(|error| undecodable("block", &error))?;
    let trailers = outcome.result?;
    let metadata = if trailers.is_empty() {
        outcome.metadata
    } else {
        merge(outcome.metadata, trailers.clone())
    };
    Ok((metadata, Trailers(trailers), reply.message))
}

/// Joins initial and trailing metadata as tonic's client does for a unary call.
fn merge(initial: MetadataMap, trailing: MetadataMap) -> MetadataMap {
    let mut headers = initial.into_headers();
    headers.extend(trailing.into_headers());
    MetadataMap::from_headers(headers)
}
