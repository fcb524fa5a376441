//! A request's head: metadata and extensions, decoded on demand.

use bytes::Bytes;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Status};

use crate::server::PeerExtensions;
use crate::server::call::context::CallScope;
use crate::wire::metadata;

/// A request's head: as it came, or as a layer left it.
#[derive(Debug)]
pub(in crate::server) enum Head {
    /// The block of the frame.
    Encoded {
        block: Bytes,
        /// What is to be added when it is decoded.
        peer: PeerExtensions,
    },
    /// What was made of it; boxed, so that calls without layers do not carry its size along.
    Decoded(Box<(MetadataMap, Extensions)>),
}

impl Head {
    /// Decodes the head, if that has not been done, and adds what the runtime tells a handler.
    pub(in crate::server) fn decode(
        self,
        running: &CallScope,
    ) -> Result<(MetadataMap, Extensions), Status> {
        let (block, peer) = match self {
            Self::Decoded(decoded) => return Ok(*decoded),
            Self::Encoded { block, peer } => (block, peer),
        };
        let metadata = if block.is_empty() {
            MetadataMap::new()
        } else {
            metadata::decode(block).map_err(|error| undecodable("metadata", &error))?
        };
        let mut extensions = Extensions::new();
        if let Some(deadline) = running.deadline() {
            extensions.insert(deadline);
        }
        peer.insert(running.peer(), &mut extensions);
        Ok((metadata, extensions))
    }
}

pub(in crate::server) fn undecodable(what: &str, error: &dyn std::fmt::Display) -> Status {
    Status::internal(format!("the request's {what} does not decode: {error}"))
}
