//! The facts that the emitters need about a service, computed once.

use proc_macro2::{Ident, TokenStream};
use prost_types::method_options::IdempotencyLevel;
use quote::{format_ident, quote};

use crate::bytes_fields::BytesField;
use crate::messages::Messages;
use crate::nesting::{FieldAccess, Nesting, NestingField};
use crate::settings::RpcSettings;
use crate::{message_type, names};

/// A service.
pub(crate) struct ServiceModel {
    pub(crate) full_name: String,
    pub(crate) package: String,
    pub(crate) docs: Vec<String>,
    pub(crate) module: Ident,
    pub(crate) tonic_trait: TokenStream,
    pub(crate) service: Ident,
    pub(crate) stub: Ident,
    pub(crate) methods: Vec<MethodModel>,
    pub(crate) walkers: Vec<LevelWalker>,
}

/// A method.
pub(crate) struct MethodModel {
    pub(crate) path: String,
    pub(crate) docs: Vec<String>,
    pub(crate) deprecated: bool,
    pub(crate) client_streaming: bool,
    pub(crate) server_streaming: bool,
    /// The variant of the runtime's `Idempotency`.
    pub(crate) idempotency: Ident,
    pub(crate) trait_method: Ident,
    pub(crate) stub_method: Ident,
    pub(crate) request: MessageModel,
    pub(crate) response: MessageModel,
}

/// A message of a method.
pub(crate) struct MessageModel {
    /// Path of the message's type from inside the module.
    pub(crate) path: TokenStream,
    /// The message's `bytes` fields, if they are known.
    pub(crate) bytes_fields: Vec<BytesField>,
    /// The number of the walker that counts its levels. Absent if its type is bounded.
    pub(crate) walker: Option<usize>,
}

/// The functions that count the levels of one type's messages.
pub(crate) struct LevelWalker {
    pub(crate) number: usize,
    /// Path of the type from inside the module.
    pub(crate) path: TokenStream,
    pub(crate) fields: Vec<WalkedField>,
}

/// A field of a walked message.
pub(crate) struct WalkedField {
    pub(crate) name: String,
    pub(crate) access: WalkedAccess,
    /// The number of the walker for the field's messages.
    pub(crate) walker: usize,
}

/// [`FieldAccess`] with its path from inside the module.
pub(crate) enum WalkedAccess {
    Required,
    Several,
    MapValue,
    Variant { oneof: String, path: TokenStream },
}

impl ServiceModel {
    /// Builds the model of a service.
    ///
    /// # Errors
    ///
    /// Returns an error if a message's path is not valid Rust.
    pub(crate) fn new(
        service: &prost_build::Service,
        settings: &RpcSettings,
        messages: &Messages,
    ) -> Result<Self, syn::Error> {
        let types = service.methods.iter().flat_map(|method| {
            [method.input_proto_type.as_str(), method.output_proto_type.as_str()]
        });
        let walked = messages.nesting.reached(types);
        let dot = if service.package.is_empty() { "" } else { "." };
        let full_name = format!("{}{dot}{}", service.package, service.proto_name);
        let methods = service.methods.iter();
        let methods = methods
            .map(|method| MethodModel::new(method, &full_name, settings, (messages, &walked)));
        Ok(Self {
            package: service.package.clone(),
            docs: docs(&full_name, &service.comments.leading, settings),
            module: format_ident!("{}_rpc", names::tonic_snake_case(&service.name)),
            tonic_trait: tonic_trait(service, settings),
            service: format_ident!("{}Service", service.name),
            stub: format_ident!("{}Stub", service.name),
            methods: methods.collect::<Result<_, _>>()?,
            walkers: walkers(&walked, service, settings, &messages.nesting)?,
            full_name,
        })
    }
}

/// Returns the walkers of the messages `walked`, in their order. A walker's number is its index.
fn walkers(
    walked: &[&str],
    service: &prost_build::Service,
    settings: &RpcSettings,
    nesting: &Nesting,
) -> Result<Vec<LevelWalker>, syn::Error> {
    let package = &service.package;
    let path = |path: &str| message_type::from_service_module(path, &settings.proto_path);
    let access = |access| {
        Ok::<_, syn::Error>(match access {
            FieldAccess::Required => WalkedAccess::Required,
            FieldAccess::Several => WalkedAccess::Several,
            FieldAccess::MapValue => WalkedAccess::MapValue,
            FieldAccess::Variant { oneof, path: variant } => {
                WalkedAccess::Variant { oneof, path: path(&variant)? }
            }
        })
    };
    let field = |NestingField { name, target, access: field_access }: NestingField<'_>| {
        // Every message inside a walked one is walked, too, so the search always succeeds.
        let walker = walked.binary_search(&target).unwrap_or_default();
        Ok(WalkedField { name: name.to_owned(), access: access(field_access)?, walker })
    };
    let walker = |(number, message): (usize, &&str)| {
        let fields = nesting.fields(message, package).map(field);
        Ok(LevelWalker {
            number,
            path: path(&nesting.type_path(message, package))?,
            fields: fields.collect::<Result<_, syn::Error>>()?,
        })
    };
    walked.iter().enumerate().map(walker).collect()
}

/// Returns the path of tonic's trait from inside the module.
fn tonic_trait(service: &prost_build::Service, settings: &RpcSettings) -> TokenStream {
    let outside = settings.tonic_paths.module(&service.package);
    // A service that collides with tonic's names is renamed only in text that is generated here.
    let name = match outside {
        Some(_) => service.name.clone(),
        None => names::tonic_server(&service.name),
    };
    let parent = outside.unwrap_or_else(|| quote!(super));
    let module = format_ident!("{}_server", names::tonic_snake_case(&name));
    let name = format_ident!("{name}");
    quote!(#parent::#module::#name)
}

impl MethodModel {
    fn new(
        method: &prost_build::Method,
        service: &str,
        settings: &RpcSettings,
        (messages, walked): (&Messages, &[&str]),
    ) -> Result<Self, syn::Error> {
        let full_name = format!("{service}.{}", method.proto_name);
        let message = |path: &str, proto: &str| {
            // Messages from elsewhere have whatever fields that generator gave them.
            let is_ours = message_type::is_generated(path);
            let bytes_fields = if is_ours { messages.bytes_fields.of(proto) } else { &[] };
            let path = message_type::from_service_module(path, &settings.proto_path)?;
            let walker = walked.binary_search(&proto).ok();
            Ok::<_, syn::Error>(MessageModel { path, bytes_fields: bytes_fields.to_vec(), walker })
        };
        Ok(Self {
            path: format!("/{service}/{}", method.proto_name),
            docs: docs(&full_name, &method.comments.leading, settings),
            deprecated: method.options.deprecated(),
            client_streaming: method.client_streaming,
            server_streaming: method.server_streaming,
            idempotency: idempotency(method.options.idempotency_level()),
            trait_method: format_ident!("{}", method.name),
            stub_method: format_ident!("{}", names::stub_method(&method.name)),
            request: message(&method.input_type, &method.input_proto_type)?,
            response: message(&method.output_type, &method.output_proto_type)?,
        })
    }

    /// Returns the runtime's function that makes calls of this kind, which is also `ServerCall`'s
    /// method that answers them.
    pub(crate) fn kind(&self) -> Ident {
        format_ident!(
            "{}",
            self.by_kind("unary", "client_streaming", "server_streaming", "streaming")
        )
    }

    /// Returns the variant of the runtime's `CallKind`.
    pub(crate) fn kind_variant(&self) -> Ident {
        format_ident!(
            "{}",
            self.by_kind("Unary", "ClientStreaming", "ServerStreaming", "Streaming")
        )
    }

    fn by_kind<'a>(
        &self,
        unary: &'a str,
        client: &'a str,
        server: &'a str,
        both: &'a str,
    ) -> &'a str {
        match (self.client_streaming, self.server_streaming) {
            (false, false) => unary,
            (true, false) => client,
            (false, true) => server,
            (true, true) => both,
        }
    }
}

fn idempotency(level: IdempotencyLevel) -> Ident {
    let variant = match level {
        IdempotencyLevel::IdempotencyUnknown => "Unknown",
        IdempotencyLevel::NoSideEffects => "NoSideEffects",
        IdempotencyLevel::Idempotent => "Idempotent",
    };
    format_ident!("{variant}")
}

/// Returns the comment as doc lines that start with a space, as rustfmt writes them. Empty if
/// disabled.
fn docs(full_name: &str, comment: &[String], settings: &RpcSettings) -> Vec<String> {
    if settings.disable_comments.contains(full_name) {
        return Vec::new();
    }
    let spaced = |line: &String| {
        let is_spaced = line.is_empty() || line.starts_with(' ');
        format!("{}{line}", if is_spaced { "" } else { " " })
    };
    comment.iter().map(spaced).collect()
}
