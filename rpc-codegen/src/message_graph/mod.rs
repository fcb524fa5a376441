//! The messages of a descriptor set, and the fields by which they contain each other.
//!
//! The graph answers two questions: which messages require themselves, and which can nest without
//! end. prost gives every field of a message type a Rust type, and asks neither.

mod required;

use std::collections::{BTreeMap, BTreeSet};

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, MessageOptions,
};

pub(crate) use self::required::refuse_endless;

/// The messages of a set, by full name with a leading dot.
#[derive(Debug, Default)]
pub(crate) struct MessageGraph {
    messages: BTreeMap<String, MessageNode>,
}

/// A message and its fields of message types.
#[derive(Debug)]
pub(crate) struct MessageNode {
    /// Import name of the message's file.
    file: String,
    /// Path of the message in its file's descriptor.
    path: Vec<i32>,
    pub(crate) fields: Vec<MessageField>,
}

/// A field of a message type.
#[derive(Debug)]
pub(crate) struct MessageField {
    pub(crate) name: String,
    /// Full name of the field's message type. For a map, of its value.
    pub(crate) target: String,
    pub(crate) shape: FieldShape,
    /// Index of the field in its message's descriptor.
    index: i32,
}

/// The shape that prost gives a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldShape {
    /// The message itself.
    Required,
    /// An `Option` or a `Vec`.
    Several,
    /// The value of a map.
    MapValue,
    /// A variant of an enum. `type_taken` is true if a nested type already has the enum's name.
    Variant { oneof: String, type_taken: bool },
}

impl MessageGraph {
    pub(crate) fn new(fds: &FileDescriptorSet) -> Self {
        let mut graph = Self::default();
        for file in &fds.file {
            let scope = match file.package() {
                "" => String::new(),
                package => format!(".{package}"),
            };
            for (index, message) in (0..).zip(&file.message_type) {
                graph.add(file, &scope, message, vec![4, index]);
            }
        }
        graph
    }

    /// Returns the message with this full name; `None` if the set does not define it.
    pub(crate) fn message(&self, name: &str) -> Option<&MessageNode> {
        self.messages.get(name)
    }

    /// Returns the messages from which `follows` leads on without end: those on a cycle, and those
    /// that reach one.
    pub(crate) fn endless(&self, follows: impl Fn(&MessageField) -> bool) -> BTreeSet<&str> {
        let mut endless: BTreeSet<&str> = self.messages.keys().map(String::as_str).collect();
        loop {
            let leads_on = |name: &&str| {
                let fields = self.messages[*name].fields.iter();
                fields.clone().any(|field| follows(field) && endless.contains(&*field.target))
            };
            let left: BTreeSet<&str> = endless.iter().copied().filter(leads_on).collect();
            if left.len() == endless.len() {
                return left;
            }
            endless = left;
        }
    }

    fn add(
        &mut self,
        file: &FileDescriptorProto,
        scope: &str,
        message: &DescriptorProto,
        path: Vec<i32>,
    ) {
        let name = format!("{scope}.{}", message.name());
        for (index, nested) in (0..).zip(&message.nested_type) {
            self.add(file, &name, nested, [&path[..], &[3, index]].concat());
        }
        let fields = (0..).zip(&message.field);
        let fields =
            fields.filter_map(|(index, field)| message_field(message, &name, index, field));
        let node = MessageNode { file: file.name().to_owned(), path, fields: fields.collect() };
        self.messages.insert(name, node);
    }
}

fn message_field(
    message: &DescriptorProto,
    message_name: &str,
    index: i32,
    field: &FieldDescriptorProto,
) -> Option<MessageField> {
    let is_message =
        |field: &FieldDescriptorProto| matches!(field.r#type(), Type::Message | Type::Group);
    if !is_message(field) {
        return None;
    }
    let mut target = field.type_name();
    let shape = if let Some(entry) = map_entry(message, message_name, target) {
        let value = entry.field.get(1).filter(|value| is_message(value))?;
        target = value.type_name();
        FieldShape::MapValue
    } else if let Some(oneof) = field.oneof_index.filter(|_| !field.proto3_optional()) {
        let oneof = message.oneof_decl.get(usize::try_from(oneof).ok()?)?.name();
        FieldShape::Variant { oneof: oneof.to_owned(), type_taken: has_type(message, oneof) }
    } else if field.label() == Label::Required {
        FieldShape::Required
    } else {
        FieldShape::Several
    };
    let name = field.name().to_owned();
    Some(MessageField { name, target: target.to_owned(), shape, index })
}

/// Returns the message that represents a map's entries, if `type_name` is one.
fn map_entry<'a>(
    message: &'a DescriptorProto,
    message_name: &str,
    type_name: &str,
) -> Option<&'a DescriptorProto> {
    let name = type_name.strip_prefix(message_name)?.strip_prefix('.')?;
    let entry = message.nested_type.iter().find(|nested| nested.name() == name)?;
    entry.options.as_ref().is_some_and(MessageOptions::map_entry).then_some(entry)
}

/// Returns true if prost would give a nested type of `message` the name of the oneof's enum.
fn has_type(message: &DescriptorProto, oneof: &str) -> bool {
    let messages = message.nested_type.iter().map(DescriptorProto::name);
    let mut types = messages.chain(message.enum_type.iter().map(EnumDescriptorProto::name));
    let camel = crate::names::prost_upper_camel;
    types.any(|name| camel(name) == camel(oneof))
}
