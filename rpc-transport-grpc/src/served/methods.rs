//! The methods of services, from a `FileDescriptorSet` or by their names.

use prost::Message;
use prost_types::method_options::IdempotencyLevel;
use prost_types::{FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto};
use rpc_core::{CallKind, Idempotency, MethodDescriptor, ServiceDescriptor};
use thiserror::Error;

/// The reason why the methods of a service are unknown.
#[derive(Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// The bytes are no encoding of a `FileDescriptorSet`.
    #[error("the file descriptor set of {len} bytes does not decode: {reason}")]
    Undecodable {
        /// Length of the encoding in bytes.
        len: usize,
        /// The decoder's message.
        reason: String,
    },
    /// No file of the set defines the service.
    #[error("the file descriptor set has no service {name}, but {}", list(.found))]
    NoService {
        /// The service's full name.
        name: String,
        /// The services that the set defines.
        found: Vec<String>,
    },
    /// A given method name is malformed or occurs twice.
    #[error("the service {service} has no method {method:?}: {reason}")]
    MethodName {
        /// The service's full name.
        service: String,
        /// The rejected name.
        method: String,
        /// The fault in the name.
        reason: &'static str,
    },
}

rpc_core::readable_debug!(DescriptorError);

fn list(found: &[String]) -> String {
    if found.is_empty() { "none at all".to_owned() } else { found.join(", ") }
}

/// Returns the descriptor of the service with this full name.
pub(super) fn service(
    name: &str,
    descriptor_set: &[u8],
) -> Result<&'static ServiceDescriptor, DescriptorError> {
    let set = decode(descriptor_set)?;
    let found = named(&set).find(|(full, _)| full == name);
    let (_, proto) = found.ok_or_else(|| {
        let found = named(&set).map(|(full, _)| full).collect();
        DescriptorError::NoService { name: name.to_owned(), found }
    })?;
    Ok(keep(name, proto))
}

/// Returns the descriptors of all services in the set.
pub(super) fn services(
    descriptor_set: &[u8],
) -> Result<Vec<&'static ServiceDescriptor>, DescriptorError> {
    let set = decode(descriptor_set)?;
    Ok(named(&set).map(|(name, proto)| keep(&name, proto)).collect())
}

/// Returns the descriptor of a service with these `methods`. Only their kinds are known.
pub(super) fn named_methods<'a>(
    service: &str,
    methods: impl IntoIterator<Item = (&'a str, CallKind)>,
) -> Result<&'static ServiceDescriptor, DescriptorError> {
    let mut described: Vec<MethodDescriptor> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (name, kind) in methods {
        let refused = |reason| DescriptorError::MethodName {
            service: service.to_owned(),
            method: name.to_owned(),
            reason,
        };
        if name.is_empty() || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            return Err(refused("a name has only ASCII letters, digits and underscores"));
        }
        if names.contains(&name) {
            return Err(refused("it is named twice"));
        }
        names.push(name);
        described.push(descriptor((service, name), kind, Idempotency::Unknown));
    }
    let name = Box::leak(service.to_owned().into_boxed_str());
    Ok(Box::leak(Box::new(ServiceDescriptor { name, methods: described.leak() })))
}

fn descriptor(
    (service, name): (&str, &str),
    kind: CallKind,
    idempotency: Idempotency,
) -> MethodDescriptor {
    let path = String::leak(format!("/{service}/{name}"));
    MethodDescriptor::new(path, kind, idempotency)
}

fn decode(descriptor_set: &[u8]) -> Result<FileDescriptorSet, DescriptorError> {
    FileDescriptorSet::decode(descriptor_set).map_err(|error| DescriptorError::Undecodable {
        len: descriptor_set.len(),
        reason: error.to_string(),
    })
}

/// Returns the services of a set with their full names.
fn named(set: &FileDescriptorSet) -> impl Iterator<Item = (String, &ServiceDescriptorProto)> {
    set.file.iter().flat_map(|file| {
        file.service.iter().map(|service| {
            let full = match file.package() {
                "" => service.name().to_owned(),
                package => format!("{package}.{}", service.name()),
            };
            (full, service)
        })
    })
}

/// Builds the descriptor of a service. Leaks it, since descriptors are `'static`.
fn keep(name: &str, service: &ServiceDescriptorProto) -> &'static ServiceDescriptor {
    let methods = service.method.iter().map(|method| describe(name, method)).collect::<Vec<_>>();
    let name = Box::leak(name.to_owned().into_boxed_str());
    Box::leak(Box::new(ServiceDescriptor { name, methods: methods.leak() }))
}

fn describe(service: &str, method: &MethodDescriptorProto) -> MethodDescriptor {
    let kind = match (method.client_streaming(), method.server_streaming()) {
        (false, false) => CallKind::Unary,
        (true, false) => CallKind::ClientStreaming,
        (false, true) => CallKind::ServerStreaming,
        (true, true) => CallKind::Streaming,
    };
    let level = method.options.as_ref().map(prost_types::MethodOptions::idempotency_level);
    let idempotency = match level.unwrap_or(IdempotencyLevel::IdempotencyUnknown) {
        IdempotencyLevel::IdempotencyUnknown => Idempotency::Unknown,
        IdempotencyLevel::NoSideEffects => Idempotency::NoSideEffects,
        IdempotencyLevel::Idempotent => Idempotency::Idempotent,
    };
    descriptor((service, method.name()), kind, idempotency)
}

#[cfg(test)]
mod tests {
    use prost_types::{FileDescriptorProto, MethodOptions};

    use super::*;

    fn method(
        name: &str,
        streams: (bool, bool),
        level: Option<IdempotencyLevel>,
    ) -> MethodDescriptorProto {
        let options = level.map(|level| MethodOptions {
            idempotency_level: Some(level.into()),
            ..MethodOptions::default()
        });
        MethodDescriptorProto {
            name: Some(name.into()),
            client_streaming: Some(streams.0),
            server_streaming: Some(streams.1),
            options,
            ..MethodDescriptorProto::default()
        }
    }

    fn set(package: Option<&str>) -> Vec<u8> {
        let service = ServiceDescriptorProto {
            name: Some("Store".into()),
            method: vec![
                method("Get", (false, false), Some(IdempotencyLevel::NoSideEffects)),
                method("Put", (true, false), Some(IdempotencyLevel::Idempotent)),
                method("Scan", (false, true), None),
                method("Sync", (true, true), None),
            ],
            ..ServiceDescriptorProto::default()
        };
        let file = FileDescriptorProto {
            package: package.map(str::to_owned),
            service: vec![service],
            ..FileDescriptorProto::default()
        };
        FileDescriptorSet { file: vec![file] }.encode_to_vec()
    }

    #[test]
    fn kinds_and_idempotency_come_from_the_set() {
        let service = service("shop.Store", &set(Some("shop"))).unwrap();
        let methods = service.methods.iter().map(|m| (m.path, m.kind, m.idempotency));
        let methods: Vec<_> = methods.collect();
        assert_eq!(
            methods,
            [
                ("/shop.Store/Get", CallKind::Unary, Idempotency::NoSideEffects),
                ("/shop.Store/Put", CallKind::ClientStreaming, Idempotency::Idempotent),
                ("/shop.Store/Scan", CallKind::ServerStreaming, Idempotency::Unknown),
                ("/shop.Store/Sync", CallKind::Streaming, Idempotency::Unknown),
            ]
        );
    }

    #[test]
    fn named_methods_belong_to_the_service() {
        let methods = [("Get", CallKind::Unary), ("Sync", CallKind::Streaming)];
        let service = named_methods("shop.Store", methods).unwrap();
        let methods = service.methods.iter().map(|m| (m.path, m.kind, m.idempotency));
        let unary = ("/shop.Store/Get", CallKind::Unary, Idempotency::Unknown);
        let streams = ("/shop.Store/Sync", CallKind::Streaming, Idempotency::Unknown);
        assert_eq!((service.name, methods.collect()), ("shop.Store", vec![unary, streams]));
    }

    #[test]
    fn malformed_method_names_are_refused() {
        let refusal = |names: &[&'static str]| {
            let methods = names.iter().map(|name| (*name, CallKind::Unary));
            named_methods("shop.Store", methods).unwrap_err().to_string()
        };
        let form = "a name has only ASCII letters, digits and underscores";
        for name in ["", "/shop.Store/Get", "Store.Get", "G\u{e9}t"] {
            let expected = format!("the service shop.Store has no method {name:?}: {form}");
            assert_eq!(refusal(&[name]), expected);
        }
        let twice = "the service shop.Store has no method \"Get\": it is named twice";
        assert_eq!(refusal(&["Get", "Put", "Get"]), twice);
    }

    #[test]
    fn a_file_without_a_package_has_services() {
        let all = services(&set(None)).unwrap();
        assert_eq!((all.len(), all[0].name, all[0].methods[0].path), (1, "Store", "/Store/Get"));
    }

    #[test]
    fn an_error_names_the_missing_service() {
        let error = service("shop.Other", &set(Some("shop"))).unwrap_err();
        let expected = "the file descriptor set has no service shop.Other, but shop.Store";
        assert_eq!(error.to_string(), expected);
        let error = service("shop.Store", &[0xff; 3]).unwrap_err().to_string();
        assert!(
            error.starts_with("the file descriptor set of 3 bytes does not decode: "),
            "{error}"
        );
    }
}
