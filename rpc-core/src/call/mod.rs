//! What describes one call, on either side: its method, its deadline, and the marks on its status.

pub(crate) mod deadline;
pub(crate) mod descriptor;
pub(crate) mod execution;
pub(crate) mod log;
pub(crate) mod message_limits;
pub(crate) mod refusal;

use tonic::metadata::MetadataMap;

/// Trailing metadata of a successful unary call, which tonic's `Response` has no field for.
///
/// A handler inserts it into `response.extensions_mut()` to send trailing metadata with a success;
/// a client finds it in `response.extensions()`, and, as with tonic, merged into
/// `response.metadata()`.
#[derive(Debug, Clone, Default)]
pub struct Trailers(pub MetadataMap);
