//! The refusal of messages that require themselves.
//!
//! Such a message has no finite encoding, so nothing ever sends one. Its default is infinite, too:
//! decoding an empty message builds the default and overflows the stack, which aborts the process.
//! protoc accepts such messages.

use std::path::PathBuf;

use prost_types::FileDescriptorSet;

use super::{FieldShape, MessageField, MessageGraph, MessageNode};
use crate::error::{CodegenError, ProtoLocation};
use crate::parse::find;

/// Refuses the first message of `fds` that requires itself. Locates its file in `includes`.
///
/// # Errors
///
/// Returns an error that names the fields of the cycle, and the location of the first one.
pub(crate) fn refuse_endless(
    fds: &FileDescriptorSet,
    includes: &[PathBuf],
) -> Result<(), CodegenError> {
    let graph = MessageGraph::new(fds);
    let Some((node, cycle)) = cycle(&graph) else { return Ok(()) };
    let Some((name, first)) = cycle.first() else { return Ok(()) };
    let name = name.trim_start_matches('.');
    let fields = cycle.iter().map(|(_, field)| format!("{} {}", field.target, field.name));
    let fields: Vec<_> = fields.map(|field| field.trim_start_matches('.').to_owned()).collect();
    let file = find(&node.file, includes).unwrap_or_else(|| PathBuf::from(&node.file));
    let at = ProtoLocation { file, line_column: place(fds, node, first) };
    let message = format!(
        "message {name} requires itself (required {}): it has no finite value; make one of these \
         fields optional",
        fields.join(", required ")
    );
    Err(CodegenError::Proto { at, message })
}

/// Finds a cycle of required fields, each with the full name of its message, and the first message.
fn cycle(graph: &MessageGraph) -> Option<(&MessageNode, Vec<(&str, &MessageField)>)> {
    let is_required = |field: &MessageField| field.shape == FieldShape::Required;
    let endless = graph.endless(is_required);
    let mut name = *endless.first()?;
    let mut walked: Vec<(&str, &MessageField)> = Vec::new();
    loop {
        if let Some(start) = walked.iter().position(|(passed, _)| *passed == name) {
            return Some((graph.message(name)?, walked.split_off(start)));
        }
        let mut fields = graph.message(name)?.fields.iter();
        let field = fields.find(|field| is_required(field) && endless.contains(&*field.target))?;
        walked.push((name, field));
        name = &field.target;
    }
}

/// Returns a field's line and column, counted from 1, if the set has them.
fn place(
    fds: &FileDescriptorSet,
    node: &MessageNode,
    field: &MessageField,
) -> Option<(usize, usize)> {
    let file = fds.file.iter().find(|file| file.name() == node.file)?;
    let path = [&node.path[..], &[2, field.index]].concat();
    let locations = &file.source_code_info.as_ref()?.location;
    let span = &locations.iter().find(|location| location.path == path)?.span;
    let from_one = |number: &i32| Some(usize::try_from(*number).ok()? + 1);
    Some((from_one(span.first()?)?, from_one(span.get(1)?)?))
}
