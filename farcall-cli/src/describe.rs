//! `farcall describe`: services, methods, messages and enums, as protobuf spells them.

use std::fmt::Write as _;

use prost_reflect::{
    Cardinality, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor,
    MethodDescriptor, ServiceDescriptor,
};

use crate::args::{Global, SymbolArgs};
use crate::failure::Failure;
use crate::message;
use crate::output::Output;
use crate::schema::Symbol;
use crate::source::SchemaSource;

pub(crate) async fn run(
    global: &Global,
    args: &SymbolArgs,
    output: &Output,
) -> Result<(), Failure> {
    let (source, symbol) = SchemaSource::open(global, args, output).await?;
    let names = match symbol {
        Some(name) => vec![name.to_owned()],
        None => source.services().await?,
    };
    for name in &names {
        show(&source.symbol(name).await?, args, output)?;
    }
    Ok(())
}

fn show(symbol: &Symbol, args: &SymbolArgs, output: &Output) -> Result<(), Failure> {
    let (name, kind, text) = match symbol {
        Symbol::Service(service) => (service.full_name(), "service", service_text(service)),
        Symbol::Method(method) => (method.full_name(), "method", method_text(method)),
        Symbol::Message(message) => (message.full_name(), "message", message_text(message)),
        Symbol::Enum(kind) => (kind.full_name(), "enum", enum_text(kind)),
    };
    let template = match symbol {
        Symbol::Message(message) if args.msg_template => Some(DynamicMessage::new(message.clone())),
        _ => None,
    };
    let template = template.as_ref().map(|message| message::shown(message, true));
    if output.is_json() {
        let mut value = serde_json::json!({ "name": name, "kind": kind, "definition": text });
        if let Some(template) = template {
            value["template"] = serde_json::to_value(template).unwrap_or_default();
        }
        return output.value(&value);
    }
    let article = if kind == "enum" { "an" } else { "a" };
    output.line(&format!("{name} is {article} {kind}:"))?;
    text.lines().try_for_each(|line| output.line(line))?;
    match template {
        Some(template) => {
            output.line("")?;
            output.line("Message template:")?;
            output.value(&template)
        }
        None => Ok(()),
    }
}

fn service_text(service: &ServiceDescriptor) -> String {
    let methods: String = service.methods().fold(String::new(), |mut text, method| {
        let _ = writeln!(text, "  {}", method_text(&method));
        text
    });
    format!("service {} {{\n{methods}}}", service.name())
}

fn method_text(method: &MethodDescriptor) -> String {
    let side = |is_stream, message: MessageDescriptor| {
        format!("({}.{})", if is_stream { "stream " } else { "" }, message.full_name())
    };
    let takes = side(method.is_client_streaming(), method.input());
    let returns = side(method.is_server_streaming(), method.output());
    format!("rpc {}{takes} returns {returns};", method.name())
}

/// The message's own fields. Those of other messages are described by their names, so that types
/// that contain each other need no bound.
fn message_text(message: &MessageDescriptor) -> String {
    let mut text = format!("message {} {{\n", message.name());
    for field in message.fields() {
        let real_oneof = field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
        if real_oneof.is_none() {
            let _ = writeln!(text, "  {}", field_text(&field));
        }
    }
    for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
        let _ = writeln!(text, "  oneof {} {{", oneof.name());
        for field in oneof.fields() {
            let _ = writeln!(text, "    {}", field_text(&field));
        }
        text.push_str("  }\n");
    }
    text.push('}');
    text
}

fn field_text(field: &FieldDescriptor) -> String {
    let (name, number) = (field.name(), field.number());
    let kind = match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            format!("map<{}, {}>", kind_text(&key.kind()), kind_text(&value.kind()))
        }
        kind => kind_text(&kind),
    };
    let is_optional = field.containing_oneof().is_some_and(|oneof| oneof.is_synthetic());
    let label = match field.cardinality() {
        Cardinality::Repeated if !field.is_map() => "repeated ",
        Cardinality::Required => "required ",
        _ if is_optional => "optional ",
        _ => "",
    };
    format!("{label}{kind} {name} = {number};")
}

fn kind_text(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => format!(".{}", message.full_name()),
        Kind::Enum(kind) => format!(".{}", kind.full_name()),
        Kind::Double => "double".into(),
        Kind::Float => "float".into(),
        Kind::Int32 => "int32".into(),
        Kind::Int64 => "int64".into(),
        Kind::Uint32 => "uint32".into(),
        Kind::Uint64 => "uint64".into(),
        Kind::Sint32 => "sint32".into(),
        Kind::Sint64 => "sint64".into(),
        Kind::Fixed32 => "fixed32".into(),
        Kind::Fixed64 => "fixed64".into(),
        Kind::Sfixed32 => "sfixed32".into(),
        Kind::Sfixed64 => "sfixed64".into(),
        Kind::Bool => "bool".into(),
        Kind::String => "string".into(),
        Kind::Bytes => "bytes".into(),
    }
}

fn enum_text(kind: &EnumDescriptor) -> String {
    let values: String = kind.values().fold(String::new(), |mut text, value| {
        let _ = writeln!(text, "  {} = {};", value.name(), value.number());
        text
    });
    format!("enum {} {{\n{values}}}", kind.name())
}

#[cfg(test)]
mod tests {
    use farcall::prost::Message as _;
    use proptest::prelude::*;
    use prost_reflect::DescriptorPool;
    use prost_reflect::prost_types::FileDescriptorSet;

    use super::*;
    use crate::guard;

    /// Shows all that a schema has.
    fn show_all(pool: &DescriptorPool) {
        pool.services().for_each(|service| drop(service_text(&service)));
        pool.all_enums().for_each(|kind| drop(enum_text(&kind)));
        for message in pool.all_messages() {
            drop(message_text(&message));
            let empty = DynamicMessage::new(message);
            drop(serde_json::to_string(&message::shown(&empty, true)));
        }
    }

    proptest! {
        /// A server's schema may be anything that decodes.
        #[test]
        fn damaged_schema_is_shown_or_refused(
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut bytes = farcall_probe::DESCRIPTOR_SET.to_vec();
            for (place, byte) in damage {
                *place.get_mut(&mut bytes) = byte;
            }
            let set = FileDescriptorSet::decode(bytes.as_slice());
            let pool = set.ok().and_then(|set| guard::schema_from_files(set.file).ok());
            pool.iter().for_each(show_all);
        }
    }
}
