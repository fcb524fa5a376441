//! The fields of messages. prost's hook for services only knows a message's name.

use prost_types::FileDescriptorSet;

use crate::bytes_fields::BytesFields;
use crate::message_graph::MessageGraph;
use crate::nesting::{Elsewhere, Nesting};

/// The messages of a run, as far as services need them. Empty if only services are generated.
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
