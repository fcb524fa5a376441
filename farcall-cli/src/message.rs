//! Messages of a schema: JSON in and out, within bounds.

use std::io::Read;

use bytes::Bytes;
use farcall::prost::Message as _;
use prost_reflect::{
    DeserializeOptions, DynamicMessage, MessageDescriptor, ReflectMessage as _, SerializeOptions,
    Value,
};
use serde_json::de::{Deserializer, IoRead};

use crate::failure::Failure;

/// Maximum depth of nested messages, those inside of `google.protobuf.Any` included.
///
/// prost bounds the depth of one encoding, but an `Any` begins a new one. Without this bound a
/// peer's `Any` in an `Any` in an `Any` would exhaust the stack when it is shown.
const DEPTH_MAX: usize = 128;

/// Messages in a JSON text, one behind the other.
pub(crate) struct JsonMessages<R: Read> {
    /// The name of the text in messages: `-d`, or `standard input`.
    origin: &'static str,
    descriptor: MessageDescriptor,
    options: DeserializeOptions,
    json: Deserializer<IoRead<R>>,
}

impl<R: Read> JsonMessages<R> {
    pub(crate) fn new(
        origin: &'static str,
        descriptor: MessageDescriptor,
        allow_unknown_fields: bool,
        text: R,
    ) -> Self {
        let options = DeserializeOptions::new().deny_unknown_fields(!allow_unknown_fields);
        Self { origin, descriptor, options, json: Deserializer::from_reader(text) }
    }

    /// Reads the next message; `None` at the end of the text.
    pub(crate) fn next_message(&mut self) -> Result<Option<Bytes>, Failure> {
        if self.json.end().is_ok() {
            return Ok(None);
        }
        let descriptor = self.descriptor.clone();
        let json = &mut self.json;
        DynamicMessage::deserialize_with_options(descriptor, json, &self.options)
            .map(|message| Some(message.encode_to_vec().into()))
            .map_err(|error| self.misplaced(&error))
    }

    /// Returns a failure with the place in the text.
    fn misplaced(&self, error: &serde_json::Error) -> Failure {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let place = format!(" at line {line} column {column}");
        let reason = text.strip_suffix(&place).unwrap_or(&text);
        let name = self.descriptor.full_name();
        Failure::usage(format!("{}:{line}:{column}: {reason} ({name})", self.origin))
    }
}

/// Decodes a message of a peer.
pub(crate) fn decode(
    descriptor: MessageDescriptor,
    bytes: Bytes,
) -> Result<DynamicMessage, Failure> {
    let name = descriptor.full_name().to_owned();
    let message = DynamicMessage::decode(descriptor, bytes)
        .map_err(|error| Failure::peer(format!("the peer's {name} is malformed: {error}")))?;
    check_depth(&message, DEPTH_MAX)
        .map_err(|reason| Failure::peer(format!("{name}: {reason}")))?;
    Ok(message)
}

/// Returns a message as a JSON value, its fields in the order of the schema.
pub(crate) fn shown(message: &DynamicMessage, emits_defaults: bool) -> Shown<'_> {
    Shown { message, options: SerializeOptions::new().skip_default_fields(!emits_defaults) }
}

/// A message that serializes as protobuf's JSON.
pub(crate) struct Shown<'a> {
    message: &'a DynamicMessage,
    options: SerializeOptions,
}

impl serde::Serialize for Shown<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.message.serialize_with_options(serializer, &self.options)
    }
}

/// Fails if messages are nested deeper than `left`, looking into each `Any` of a known type.
fn check_depth(message: &DynamicMessage, left: usize) -> Result<(), String> {
    let Some(left) = left.checked_sub(1) else {
        return Err(format!("it nests messages deeper than {DEPTH_MAX}"));
    };
    if let Some(inner) = any_content(message) {
        return check_depth(&inner?, left);
    }
    let fields = message.fields().map(|(_, value)| value);
    let extensions = message.extensions().map(|(_, value)| value);
    fields.chain(extensions).try_for_each(|value| check_value_depth(value, left))
}

fn check_value_depth(value: &Value, left: usize) -> Result<(), String> {
    match value {
        Value::Message(message) => check_depth(message, left),
        Value::List(values) => values.iter().try_for_each(|it| check_value_depth(it, left)),
        Value::Map(entries) => entries.values().try_for_each(|it| check_value_depth(it, left)),
        _ => Ok(()),
    }
}

/// Returns the message in a `google.protobuf.Any` whose type the schema has.
fn any_content(message: &DynamicMessage) -> Option<Result<DynamicMessage, String>> {
    if message.descriptor().full_name() != "google.protobuf.Any" {
        return None;
    }
    let url = message.get_field_by_number(1)?;
    let value = message.get_field_by_number(2)?;
    let (url, value) = (url.as_str()?, value.as_bytes()?.clone());
    let name = url.rsplit('/').next().unwrap_or(url);
    let descriptor = message.descriptor().parent_pool().get_message_by_name(name)?;
    let decoded = DynamicMessage::decode(descriptor, value);
    Some(decoded.map_err(|error| format!("its google.protobuf.Any of {name}: {error}")))
}

#[cfg(test)]
mod tests {
    use farcall::Code;
    use prost_reflect::DescriptorPool;
    use prost_reflect::prost_types::{Any, ListValue, Value, value::Kind};

    use super::*;

    fn google(name: &str) -> MessageDescriptor {
        DescriptorPool::global().get_message_by_name(&format!("google.protobuf.{name}")).unwrap()
    }

    /// An `Any` in an `Any`, so many levels deep.
    fn nested_any(levels: usize) -> Bytes {
        let any = |kind: &str, value| {
            let type_url = format!("type.googleapis.com/google.protobuf.{kind}");
            Any { type_url, value }.encode_to_vec()
        };
        (1..levels).fold(any("Empty", Vec::new()), |value, _| any("Any", value)).into()
    }

    #[test]
    fn depth_of_messages_in_any_is_bounded() {
        let message = decode(google("Any"), nested_any(DEPTH_MAX - 1)).unwrap();
        assert!(serde_json::to_string(&shown(&message, false)).is_ok());
        let failure = decode(google("Any"), nested_any(3_000)).unwrap_err();
        assert_eq!(failure.code(), Some(Code::Internal));
        assert!(failure.message().contains("deeper than 128"), "{failure:?}");
    }

    #[test]
    fn depth_of_one_encoding_is_bounded() {
        let wrap =
            |value, _| Value { kind: Some(Kind::ListValue(ListValue { values: vec![value] })) };
        let list = (0..200).fold(Value::default(), wrap);
        let bytes = list.encode_to_vec().into();
        let failure = decode(google("Value"), bytes).unwrap_err();
        assert!(failure.message().contains("recursion limit"), "{failure:?}");
    }

    #[test]
    fn malformed_content_of_any_is_a_failure() {
        let any = Any { type_url: "a/google.protobuf.Duration".into(), value: vec![0xff] };
        let failure = decode(google("Any"), any.encode_to_vec().into()).unwrap_err();
        assert!(failure.message().contains("Any of google.protobuf.Duration"), "{failure:?}");
    }

    #[test]
    fn messages_are_read_one_behind_the_other() {
        let text = "\"1s\" \"2s\"\n\"0.5s\"";
        let mut messages = JsonMessages::new("-d", google("Duration"), false, text.as_bytes());
        let mut count = 0;
        while messages.next_message().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 3);
    }
}
