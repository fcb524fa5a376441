//! A call of any kind, on its way from a stub to a channel.
//!
//! The types of its messages are known to the stub alone: the functions of `kinds` put the request
//! into a [`Call`] and decode the [`ClientReply`]. Everything between them, layers and interceptors
//! included, has one type for all calls. A request is still encoded once, in the transport's
//! memory, and a response is decoded once, from the memory that it was received into.

pub(in crate::client) mod begun;
mod body;
pub(in crate::client) mod deadline;
pub(in crate::client) mod download;
mod kinds;
mod paths;
mod reply;
mod untyped;
pub(in crate::client) mod upload;

use std::any::{TypeId, type_name};
use std::ops::{Deref, DerefMut};
use std::time::Duration;
use std::{fmt, mem};

use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, GrpcMethod, Status};

pub(super) use body::{Body, RequestStream, Sent};
pub use deadline::CallDeadline;
pub use kinds::{client_streaming, server_streaming, streaming, unary};
pub use reply::ClientReply;
pub(super) use reply::ReplyBody;
pub use untyped::{MethodName, untyped};

use self::deadline::SetBy;
use super::EncodedCall;
use crate::call::deadline::{grpc_timeout, take_grpc_timeout};
use crate::call::metadata_names::MetadataNames;
use crate::layer::{Described, RequestHead};
use crate::{CallKind, Deadline, Idempotency, MethodDescriptor};

/// A call on its way to the server, the types of its messages erased.
///
/// A stub's call borrows its request from the stub. Under layers, which may queue a call or make it
/// again, the call owns its request: [`ClientCall`].
pub struct Call<'a> {
    method: &'static MethodDescriptor,
    metadata: MetadataMap,
    extensions: Extensions,
    /// The earliest of what layers say and, once the call owns its request, of what its caller
    /// says and of what it inherits.
    limit: Option<CallDeadline>,
    pub(super) body: Body<'a>,
    /// What is known of the method.
    known: Known,
    /// The type that the stub decodes responses to. A mock checks its script against it.
    pub(super) response: fn() -> TypeName,
}

/// What the maker of a call knows of its method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Everything, and the request is of the method's kind.
    All,
    /// Its descriptor. The request is a stream, also where the method takes one message.
    Descriptor,
    /// Its path. Its kind is the server's to say, and the request is a stream.
    Path,
}

/// A [`Call`] that owns its request, as the layers of a client see it.
pub struct ClientCall(Call<'static>);

/// A message's type, for comparison and for error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TypeName {
    id: TypeId,
    pub(super) name: &'static str,
}

impl TypeName {
    pub(super) fn of<M: 'static>() -> Self {
        Self { id: TypeId::of::<M>(), name: type_name::<M>() }
    }
}

impl<'a> Call<'a> {
    /// A call of `method` whose responses are decoded to `Resp`.
    fn new<Resp: 'static>(
        method: &'static MethodDescriptor,
        metadata: MetadataMap,
        extensions: Extensions,
        body: Body<'a>,
    ) -> Self {
        let (known, response) = (Known::All, TypeName::of::<Resp>);
        Self { method, metadata, extensions, limit: None, body, known, response }
    }

    /// The same call with its request out of the stub's hands. Its deadline is settled here rather
    /// than in the channel, because a layer may hand the call to another task, which inherits
    /// nothing.
    pub(super) fn into_owned(self) -> ClientCall {
        let limit = self.time_limit();
        let Self { method, metadata, extensions, body, known, response, .. } = self;
        let body = body.into_owned();
        ClientCall(Call { method, metadata, extensions, limit, body, known, response })
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'static MethodDescriptor {
        self.method
    }

    /// When the call ends at the latest, as far as its caller, layers and the call that is being
    /// handled around it say; the channel's own timeout may come earlier.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.time_limit().map(|limit| limit.deadline())
    }

    /// The same, and what set it.
    pub(super) fn time_limit(&self) -> Option<CallDeadline> {
        let timeout = grpc_timeout(&self.metadata).map(|timeout| (timeout, SetBy::Request));
        CallDeadline::of_call(self.limit, timeout, self.extensions.get().copied(), None)
    }

    /// Brings the call's deadline nearer; one that is further away changes nothing.
    pub fn limit(&mut self, deadline: Deadline) {
        self.bring_nearer(CallDeadline::at(deadline, Instant::now(), SetBy::Layer));
    }

    /// The same, with a time from now on.
    pub(super) fn limit_to(&mut self, timeout: Duration, set_by: SetBy) {
        self.bring_nearer(CallDeadline::after(Instant::now(), timeout, set_by));
    }

    /// Turns the call's time limits into one instant, which counts for all attempts at it together.
    /// `default` is the timeout of a call that sets none.
    pub(super) fn settle_limit(&mut self, default: Option<(Duration, SetBy)>) {
        let explicit = self.extensions.get().copied();
        let own = take_grpc_timeout(&mut self.metadata).map(|own| (own, SetBy::Request));
        let timeout = own.or_else(|| default.filter(|_| explicit.is_none()));
        self.limit = CallDeadline::of_call(self.limit, timeout, explicit, None);
    }

    /// The same call for one of several attempts, each to another server.
    pub(super) fn attempt(&mut self) -> Call<'_> {
        let Self { method, metadata, extensions, limit, body, known, response } = self;
        let (metadata, extensions) = (metadata.clone(), extensions.clone());
        let (method, limit, known, response) = (*method, *limit, *known, *response);
        Call { method, metadata, extensions, limit, body: body.reborrow(), known, response }
    }

    /// Whether there can be a second attempt: a stream of requests is partly sent by then.
    pub(super) fn is_repeatable(&self) -> bool {
        self.body.is_repeatable()
    }

    /// What layers say of its deadline.
    pub(super) fn layers_limit(&self) -> Option<CallDeadline> {
        self.limit
    }

    /// The request's metadata.
    #[must_use]
    pub fn metadata(&self) -> &MetadataMap {
        &self.metadata
    }

    /// The request's metadata, to be changed before it is sent.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.metadata
    }

    /// What the caller tells layers.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// What layers tell each other; a [`Deadline`] among it counts.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// Whether its request may have to become one message, and its kind to be asked for.
    pub(super) fn is_untyped(&self) -> bool {
        self.known != Known::All
    }

    /// The path of a method of which no more is known.
    pub(super) fn path_alone(&self) -> Option<&'static str> {
        (self.known == Known::Path).then_some(self.method.path)
    }

    /// Takes what a server says of a method of which the path alone was known.
    pub(super) fn describe(
        &mut self,
        (kind, idempotency): (CallKind, Idempotency),
    ) -> Result<(), Status> {
        self.method = paths::descriptor(self.method.path, kind, idempotency)?;
        self.known = Known::Descriptor;
        Ok(())
    }

    /// Reads the one message of a request that came as a stream, where the method takes one.
    pub(super) async fn make_typed(&mut self) -> Result<(), Status> {
        if !self.method.kind.has_request_stream() {
            self.body.make_one(self.method.path).await?;
        }
        self.known = Known::All;
        Ok(())
    }

    /// Whether its caller sets a time limit of its own, which takes the place of a channel's.
    pub(super) fn has_own_limit(&self) -> bool {
        self.extensions.get::<Deadline>().is_some() || grpc_timeout(&self.metadata).is_some()
    }

    /// As [`Call::limit`], where it is known what set the limit.
    pub(super) fn bring_nearer(&mut self, limit: CallDeadline) {
        self.limit = CallDeadline::earliest(self.limit.into_iter().chain([limit]));
    }

    /// The call encoded, to be made by another protocol, with its limits as the channel knows them.
    pub(super) fn into_encoded(self, limit: Option<CallDeadline>) -> EncodedCall {
        let Self { method, metadata, extensions, body, .. } = self;
        EncodedCall { method, metadata, extensions, limit, body: body.into_encoded() }
    }

    /// What the channel makes the call with.
    pub(super) fn into_parts(self) -> (MetadataMap, Extensions, Body<'a>) {
        (self.metadata, self.extensions, self.body)
    }
}

impl ClientCall {
    /// The same call once more, for layers that repeat calls; `None` when its requests are a
    /// stream, which can be read only once.
    #[must_use]
    pub fn try_clone(&self) -> Option<Self> {
        Some(Self(Call {
            method: self.method,
            metadata: self.metadata.clone(),
            extensions: self.extensions.clone(),
            limit: self.limit,
            body: self.body.try_clone()?,
            known: self.known,
            response: self.response,
        }))
    }

    /// The call, to be made through a [`super::Caller`].
    #[must_use]
    pub fn into_call(self) -> Call<'static> {
        self.0
    }
}

impl Deref for ClientCall {
    type Target = Call<'static>;

    fn deref(&self) -> &Call<'static> {
        &self.0
    }
}

impl DerefMut for ClientCall {
    fn deref_mut(&mut self) -> &mut Call<'static> {
        &mut self.0
    }
}

impl Described for ClientCall {
    fn method(&self) -> &'static MethodDescriptor {
        self.method
    }
}

impl RequestHead for ClientCall {
    fn take_head(&mut self) -> (MetadataMap, Extensions) {
        self.0.take_head()
    }

    fn set_head(&mut self, metadata: MetadataMap, extensions: Extensions) {
        self.0.set_head(metadata, extensions);
    }
}

impl fmt::Debug for ClientCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl RequestHead for Call<'_> {
    fn take_head(&mut self) -> (MetadataMap, Extensions) {
        let mut extensions = mem::take(&mut self.extensions);
        // As tonic's clients tell interceptors which method is called.
        extensions.insert(GrpcMethod::new(self.method.service(), self.method.name()));
        (mem::take(&mut self.metadata), extensions)
    }

    fn set_head(&mut self, metadata: MetadataMap, extensions: Extensions) {
        (self.metadata, self.extensions) = (metadata, extensions);
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("method", &self.method.path)
            .field("metadata", &MetadataNames(&self.metadata))
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}
