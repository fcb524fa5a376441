//! What precedes the messages of a request.

use std::mem;
use std::ops::{Deref, DerefMut};

use tonic::Extensions;
use tonic::metadata::MetadataMap;

use crate::client::CallDeadline;

/// What precedes the messages of a request.
#[derive(Debug, Clone, Default)]
pub(in crate::client) struct RequestParts {
    pub(in crate::client) metadata: MetadataMap,
    pub(in crate::client) extensions: Extensions,
    /// The earliest of what layers say and, once the call owns its request, of what its caller
    /// says and of what it inherits.
    pub(in crate::client) limit: Option<CallDeadline>,
    /// Set once `limit` counts for all attempts. The timeout of a channel adds nothing then.
    pub(in crate::client) is_settled: bool,
}

impl RequestParts {
    /// What a stub is given.
    pub(super) fn new(metadata: MetadataMap, extensions: Extensions) -> Self {
        Self { metadata, extensions, limit: None, is_settled: false }
    }
}

/// The parts of a call's request, or where its stub keeps them: a call is moved several times on
/// its way to the channel, and does not carry their size along.
pub(super) enum PartsOf<'a> {
    Lent(&'a mut RequestParts),
    Owned(Box<RequestParts>),
}

impl PartsOf<'_> {
    /// The parts. A stub that lent them is left with empty ones.
    pub(super) fn into_owned(self) -> Box<RequestParts> {
        match self {
            Self::Lent(parts) => Box::new(mem::take(parts)),
            Self::Owned(parts) => parts,
        }
    }
}

impl Deref for PartsOf<'_> {
    type Target = RequestParts;

    fn deref(&self) -> &RequestParts {
        match self {
            Self::Lent(parts) => parts,
            Self::Owned(parts) => parts,
        }
    }
}

impl DerefMut for PartsOf<'_> {
    fn deref_mut(&mut self) -> &mut RequestParts {
        match self {
            Self::Lent(parts) => parts,
            Self::Owned(parts) => parts,
        }
    }
}
