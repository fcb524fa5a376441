//! Calls without generated code: the descriptor of a method that the schema names, and messages
//! that pass as their encoding.

use bytes::{Buf, BufMut, Bytes};
use farcall::prost::encoding::{DecodeContext, WireType};
use farcall::prost::{DecodeError, Message};
use farcall::{CallKind, Idempotency, MethodDescriptor};
use prost_reflect::prost_types::MethodOptions;
use prost_reflect::prost_types::method_options::IdempotencyLevel;

/// The encoding of a message, in its place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Raw(pub(crate) Bytes);

impl Message for Raw {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    /// Unused: `merge` takes the whole message before its fields are looked at.
    fn merge_field(
        &mut self,
        _: u32,
        _: WireType,
        _: &mut impl Buf,
        _: DecodeContext,
    ) -> Result<(), DecodeError> {
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn merge(&mut self, mut buf: impl Buf) -> Result<(), DecodeError> {
        self.0 = buf.copy_to_bytes(buf.remaining());
        Ok(())
    }
}

/// Returns the descriptor of a method at `path`.
///
/// farcall keeps descriptors by reference, as generated code has them. This one is leaked: a
/// process of the command makes a handful.
pub(crate) fn described(
    path: &str,
    kind: CallKind,
    idempotency: Idempotency,
) -> &'static MethodDescriptor {
    let path = Box::leak(path.to_owned().into_boxed_str());
    Box::leak(Box::new(MethodDescriptor::new(path, kind, idempotency)))
}

/// Returns the descriptor of a method of a schema.
pub(crate) fn from_schema(method: &prost_reflect::MethodDescriptor) -> &'static MethodDescriptor {
    let kind = match (method.is_client_streaming(), method.is_server_streaming()) {
        (false, false) => CallKind::Unary,
        (true, false) => CallKind::ClientStreaming,
        (false, true) => CallKind::ServerStreaming,
        (true, true) => CallKind::Streaming,
    };
    let options = method.method_descriptor_proto().options.as_ref();
    let idempotency = match options.map(MethodOptions::idempotency_level) {
        Some(IdempotencyLevel::NoSideEffects) => Idempotency::NoSideEffects,
        Some(IdempotencyLevel::Idempotent) => Idempotency::Idempotent,
        _ => Idempotency::Unknown,
    };
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    described(&path, kind, idempotency)
}
