//! Trailing metadata of a successful unary call, which tonic's `Response` has no place for.

use tonic::metadata::MetadataMap;

/// Metadata that follows the response message.
///
/// A handler inserts it into `response.extensions_mut()` to send trailing metadata with a success;
/// a client finds it in `response.extensions()`, and, as with tonic, merged into
/// `response.metadata()`.
#[derive(Debug, Clone, Default)]
pub struct Trailers(pub MetadataMap);
