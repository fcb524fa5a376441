//! The messages that can nest without end, and the Rust names by which generated code walks them.
//!
//! prost encodes recursively, so a message of ten thousand levels overflows its sender's stack.
//! Receivers stop at a hundred. Generated code therefore counts the levels of a message before it
//! is encoded, if its type can reach itself. Any other type has no more levels than its `.proto`
//! file.

use std::collections::BTreeSet;

use crate::message_graph::{FieldShape, MessageField, MessageGraph};
use crate::names::{prost_snake, prost_upper_camel};

/// The package that prost takes from the crate prost-types.
const WELL_KNOWN: &str = ".google.protobuf";

/// The messages of a run that can nest without end.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    graph: MessageGraph,
    /// Full names with a leading dot. Generated code knows the fields of each.
    endless: BTreeSet<String>,
    has_own_well_known: bool,
}

/// Messages whose Rust types prost does not generate, so that their fields are unknown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Elsewhere {
    /// Packages and messages with their own path, with a leading dot.
    pub(crate) extern_paths: Vec<String>,
    /// True if the run generates `google.protobuf`.
    pub(crate) has_own_well_known: bool,
}

impl Elsewhere {
    fn has(&self, name: &str) -> bool {
        self.extern_paths.iter().any(|path| {
            let rest = name.strip_prefix(path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// A field on the path from a message to one that can nest without end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NestingField<'a> {
    pub(crate) name: &'a str,
    pub(crate) target: &'a str,
    pub(crate) access: FieldAccess,
}

/// The access from a Rust message to a field's message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FieldAccess {
    Required,
    Several,
    MapValue,
    /// The path of the variant, seen from the package's messages.
    Variant {
        oneof: String,
        path: String,
    },
}

impl Nesting {
    pub(crate) fn new(graph: MessageGraph, elsewhere: &Elsewhere) -> Self {
        let endless = graph.endless(|field| !elsewhere.has(&field.target));
        let endless = endless.into_iter().filter(|name| !elsewhere.has(name));
        let endless = endless.map(str::to_owned).collect();
        Self { graph, endless, has_own_well_known: elsewhere.has_own_well_known }
    }

    /// Returns the messages among `roots` and below that can nest without end, in order.
    pub(crate) fn reached<'a>(&'a self, roots: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let mut reached = BTreeSet::new();
        let roots = roots.filter_map(|name| self.endless.get(name));
        let mut waiting: Vec<&str> = roots.map(String::as_str).collect();
        while let Some(name) = waiting.pop() {
            if reached.insert(name) {
                waiting.extend(self.endless_fields(name).map(|field| &*field.target));
            }
        }
        reached.into_iter().collect()
    }

    /// Returns the fields of a message that can nest without end, as code of `package` names them.
    pub(crate) fn fields<'a>(
        &'a self,
        message: &'a str,
        package: &str,
    ) -> impl Iterator<Item = NestingField<'a>> {
        self.endless_fields(message).map(move |field| {
            let access = match &field.shape {
                FieldShape::Required => FieldAccess::Required,
                FieldShape::Several => FieldAccess::Several,
                FieldShape::MapValue => FieldAccess::MapValue,
                FieldShape::Variant { oneof, type_taken } => {
                    let suffix = if *type_taken { "OneOf" } else { "" };
                    let enum_name = format!("{}{suffix}", prost_upper_camel(oneof));
                    let module = self.path(message, package, |name| prost_snake(name).to_string());
                    let path = format!("{module}::{enum_name}::{}", prost_upper_camel(&field.name));
                    FieldAccess::Variant { oneof: oneof.clone(), path }
                }
            };
            NestingField { name: &field.name, target: &field.target, access }
        })
    }

    /// Returns the path of a message, seen from the messages of `package`.
    pub(crate) fn type_path(&self, message: &str, package: &str) -> String {
        self.path(message, package, prost_upper_camel)
    }

    fn endless_fields<'a>(&'a self, message: &str) -> impl Iterator<Item = &'a MessageField> {
        let fields = self.graph.message(message).map_or(&[][..], |node| &node.fields);
        fields.iter().filter(|field| self.endless.contains(&field.target))
    }

    /// Builds the path like prost, with the last name formatted by `last`.
    fn path(&self, message: &str, package: &str, last: impl Fn(&str) -> String) -> String {
        let well_known = message.strip_prefix(WELL_KNOWN).and_then(|rest| rest.strip_prefix('.'));
        let (start, below) = match well_known.filter(|_| !self.has_own_well_known) {
            Some(below) => (vec!["::prost_types".to_owned()], below.split('.').collect()),
            None => {
                let mut from: Vec<&str> = package.split('.').filter(|it| !it.is_empty()).collect();
                let mut to: Vec<&str> = message.trim_start_matches('.').split('.').collect();
                while !from.is_empty() && to.len() > 1 && from[0] == to[0] {
                    from.remove(0);
                    to.remove(0);
                }
                (vec!["super".to_owned(); from.len()], to)
            }
        };
        let (name, modules) = below.split_last().unwrap_or((&message, &[]));
        let modules = modules.iter().map(|module| prost_snake(module).to_string());
        start.into_iter().chain(modules).chain([last(name)]).collect::<Vec<_>>().join("::")
    }
}
