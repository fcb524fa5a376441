//! The `bytes` fields of each message, under prost's names.
//!
//! prost's hook for services only knows a message's name, so the fields are read from the same
//! descriptors beforehand. Only singular fields of the message itself count: a deeper field cannot
//! move to the message's end. Fields in a `oneof` are ignored.

use std::collections::HashMap;

use proc_macro2::Ident;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use crate::names;

/// The singular `bytes` fields of messages, by the messages' full names with a leading dot.
#[derive(Debug, Default)]
pub(crate) struct BytesFields(HashMap<String, Vec<BytesField>>);

/// A `bytes` field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BytesField {
    pub(crate) number: u32,
    /// The field's name in prost's struct.
    pub(crate) name: Ident,
}

impl BytesFields {
    pub(crate) fn new(fds: &FileDescriptorSet) -> Self {
        let mut fields = Self::default();
        for file in &fds.file {
            let scope = match file.package() {
                "" => String::new(),
                package => format!(".{package}"),
            };
            for message in &file.message_type {
                fields.add(&scope, message);
            }
        }
        fields
    }

    /// Returns the fields of a message; empty if the message is unknown.
    pub(crate) fn of(&self, message: &str) -> &[BytesField] {
        self.0.get(message).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, scope: &str, message: &DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        for nested in &message.nested_type {
            self.add(&name, nested);
        }
        let fields: Vec<_> = message.field.iter().filter_map(bytes_field).collect();
        if !fields.is_empty() {
            self.0.insert(name, fields);
        }
    }
}

fn bytes_field(field: &FieldDescriptorProto) -> Option<BytesField> {
    let is_alone = field.oneof_index.is_none() || field.proto3_optional();
    let is_singular = field.label() != Label::Repeated;
    let number = u32::try_from(field.number()).ok()?;
    (field.r#type() == Type::Bytes && is_alone && is_singular)
        .then(|| BytesField { number, name: names::prost_snake(field.name()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_singular_fields_outside_oneofs_count() {
        let field = |number, label: Label, r#type: Type, oneof_index| FieldDescriptorProto {
            name: Some(format!("f{number}")),
            number: Some(number),
            label: Some(label.into()),
            r#type: Some(r#type.into()),
            oneof_index,
            ..Default::default()
        };
        let optional = FieldDescriptorProto {
            proto3_optional: Some(true),
            ..field(5, Label::Optional, Type::Bytes, Some(0))
        };
        let inner = DescriptorProto {
            name: Some("Inner".into()),
            field: vec![
                field(1, Label::Optional, Type::Bytes, None),
                field(2, Label::Repeated, Type::Bytes, None),
                field(3, Label::Optional, Type::String, None),
                field(4, Label::Optional, Type::Bytes, Some(1)),
                optional,
            ],
            ..Default::default()
        };
        let outer = DescriptorProto {
            name: Some("Outer".into()),
            nested_type: vec![inner],
            ..Default::default()
        };
        let file = prost_types::FileDescriptorProto {
            package: Some("a.b".into()),
            message_type: vec![outer],
            ..Default::default()
        };
        let fields = BytesFields::new(&FileDescriptorSet { file: vec![file] });
        let numbers = fields.of(".a.b.Outer.Inner").iter().map(|field| field.number);
        assert_eq!(numbers.collect::<Vec<_>>(), [1, 5]);
        assert_eq!(fields.of(".a.b.Outer"), &[]);
        assert_eq!(fields.of(".a.b.Unknown"), &[]);
    }
}
