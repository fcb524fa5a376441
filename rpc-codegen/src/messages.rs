//! The fields of messages, which prost's hook for services knows by name only.

use prost_types::FileDescriptorSet;

use crate::bytes_fields::BytesFields;
use crate::message_graph::MessageGraph;
use crate::nesting::{Elsewhere, Nesting};

/// The messages of a run, as services need to know them. Empty where nothing but services is
/// generated.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    pub(crate) bytes_fields: BytesFields,
    pub(crate) nesting: Nesting,
}

impl Messages {
    pub(crate) fn new(set: &FileDescriptorSet, elsewhere: &Elsewhere) -> Self {
        let nesting = Nesting::new(MessageGraph::new(set), elsewhere);
        Self { bytes_fields: BytesFields::new(set), nesting }
    }
}
