//! A call of any kind, on its way from a stub to a channel.
//!
//! The types of its messages are known to the stub alone: the functions of `kinds` put the request
//! into a [`Call`] and decode the [`ClientReply`]. Everything between them, layers and interceptors
//! included, has one type for all calls. A request is still encoded once, in the transport's
//! memory, and a response is decoded once, from the memory that it was received into.

pub(in crate::client) mod begun;
mod body;
mod kinds;
#[cfg(feature = "metrics")]
mod meter;
pub(in crate::client) mod reply;
pub(in crate::client) mod rules;

use std::any::{TypeId, type_name};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;
use std::{fmt, mem};

use tokio::time::Instant;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Extensions, GrpcMethod, Status};

use self::rules::{CallRules, SetBy};
use super::EncodedCall;
use crate::call::metadata::MetadataNames;
use crate::call::options::CallOptions;
use crate::call::server_times;
use crate::deadline::{grpc_timeout, take_grpc_timeout};
use crate::layer::{Described, RequestHead, Side};
use crate::{Deadline, Explain, Method, Readiness};

pub(super) use body::{Body, RequestStream, Sent};
pub use kinds::{client_streaming, server_streaming, streaming, unary, untyped, untyped_unary};
#[cfg(feature = "metrics")]
pub(in crate::client) use meter::{CallMeter, MeteredCall};
pub use reply::ClientReply;
pub(super) use reply::ReplyBody;
pub use rules::CallDeadline;

#[cfg(not(feature = "metrics"))]
pub(in crate::client) use crate::metrics::{CallMeter, MeteredCall};

/// A call on its way to the server, the types of its messages erased.
///
/// A stub's call borrows its request from the stub. Under layers, which may queue a call or make it
/// again, the call owns its request: [`ClientCall`].
pub struct Call<'a> {
    method: Method,
    parts: PartsOf<'a>,
    pub(super) body: Body<'a>,
    /// The type that the stub decodes responses to. A mock checks its script against it.
    pub(super) response: fn() -> TypeName,
    /// The metrics of its channel, which sets them.
    pub(super) metered: MeteredCall,
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
    fn new<Resp: 'static>(method: Method, parts: &'a mut RequestParts, body: Body<'a>) -> Self {
        let (parts, metered) = (PartsOf::Lent(parts), MeteredCall::default());
        Self { method, parts, body, response: TypeName::of::<Resp>, metered }
    }

    /// The same call with its request out of the stub's hands. Its deadline is settled here rather
    /// than in the channel, because a layer may hand the call to another task, which inherits
    /// nothing.
    pub(super) fn into_owned(self) -> ClientCall {
        let limit = self.time_limit();
        let Self { method, parts, body, response, metered } = self;
        let (mut parts, body) = (parts.into_owned(), body.into_owned());
        parts.limit = limit;
        ClientCall(Call { method, parts: PartsOf::Owned(parts), body, response, metered })
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the deadline of the call by its caller, its layers and the call that is being
    /// handled around it. The channel's own timeout may come earlier.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.time_limit().map(|limit| limit.deadline())
    }

    /// The same, and what set it.
    pub(super) fn time_limit(&self) -> Option<CallDeadline> {
        let own = grpc_timeout(&self.parts.metadata).map(|timeout| (timeout, SetBy::Request));
        let timeout = own.or_else(|| self.stub_timeout());
        CallDeadline::resolve(self.parts.limit, timeout, self.parts.extensions.get().copied(), None)
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
    pub(super) fn settle_limit(&mut self, rules: &CallRules) {
        let explicit = self.parts.extensions.get().copied();
        let own = take_grpc_timeout(&mut self.parts.metadata).map(|own| (own, SetBy::Request));
        let timeout = own.or_else(|| self.default_timeout(rules));
        self.parts.limit = CallDeadline::resolve(self.parts.limit, timeout, explicit, None);
        self.parts.is_settled = true;
    }

    /// Returns the options of its stub, if that sets any.
    pub(super) fn options(&self) -> Option<&CallOptions> {
        CallOptions::of(&self.parts.extensions)
    }

    /// Returns the timeout of a call whose request sets none: the stub's, or the channel's.
    #[inline(always)]
    fn default_timeout(&self, rules: &CallRules) -> Option<(Duration, SetBy)> {
        if !self.takes_defaults() {
            return None;
        }
        self.options_timeout().or_else(|| rules.timeout_of(self.method.kind()))
    }

    /// Returns true if the timeouts of stub and channel count. They are defaults: a deadline that
    /// the caller sets replaces them, even one that is later.
    fn takes_defaults(&self) -> bool {
        !self.parts.is_settled && self.parts.extensions.get::<Deadline>().is_none()
    }

    fn options_timeout(&self) -> Option<(Duration, SetBy)> {
        Some((self.options()?.timeout()?, SetBy::Stub))
    }

    /// Returns the timeout that the stub sets, where nothing precedes it.
    fn stub_timeout(&self) -> Option<(Duration, SetBy)> {
        self.options_timeout().filter(|_| self.takes_defaults())
    }

    /// Returns what it does while there is no connection.
    pub(super) fn readiness(&self, rules: &CallRules) -> Readiness {
        self.parts.extensions.get().copied().unwrap_or_else(|| {
            let waits = self.options().and_then(CallOptions::wait_for_ready);
            match waits.unwrap_or(rules.wait_for_ready) {
                true => Readiness::WaitForReady,
                false => Readiness::FailFast,
            }
        })
    }

    /// The same call for one of several attempts, each to another server.
    pub(super) fn attempt(&mut self) -> Call<'_> {
        let parts = PartsOf::Owned(Box::new(RequestParts::clone(&self.parts)));
        let (method, response, metered) = (self.method.clone(), self.response, self.metered);
        Call { method, parts, body: self.body.reborrow(), response, metered }
    }

    /// Returns true if there can be a second attempt. A stream of requests is partly sent by then.
    pub(super) fn is_repeatable(&self) -> bool {
        self.body.is_repeatable()
    }

    /// Returns the deadline that layers set.
    pub(super) fn layers_limit(&self) -> Option<CallDeadline> {
        self.parts.limit
    }

    /// The request's metadata.
    #[must_use]
    pub fn metadata(&self) -> &MetadataMap {
        &self.parts.metadata
    }

    /// The method, and the request's metadata, to be changed before it is sent.
    #[doc(hidden)]
    pub fn head_mut(&mut self) -> (&Method, &mut MetadataMap) {
        (&self.method, &mut self.parts.metadata)
    }

    /// The request's metadata, to be changed before it is sent.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.parts.metadata
    }

    /// Returns the caller's extensions for layers.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.parts.extensions
    }

    /// Returns the extensions that layers share. A [`Deadline`] among them counts.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.parts.extensions
    }

    /// Returns true if the request may have to become one message, and its kind to be looked up.
    pub(super) fn is_untyped(&self) -> bool {
        self.body.is_untyped()
    }

    /// Takes a server's description of the method.
    pub(super) fn set_method(&mut self, method: Method) {
        self.method = method;
    }

    /// Reads the one message of a request that came as a stream, where the method takes one.
    pub(super) async fn make_typed(&mut self) -> Result<(), Status> {
        match self.method.kind().has_request_stream() {
            true => Ok(()),
            false => self.body.make_one(&self.method).await,
        }
    }

    /// Returns true if its caller sets a time limit of its own, which replaces the channel's.
    pub(super) fn has_own_limit(&self) -> bool {
        self.parts.is_settled
            || self.parts.extensions.get::<Deadline>().is_some()
            || self.stub_timeout().is_some()
            || grpc_timeout(&self.parts.metadata).is_some()
    }

    /// Brings the deadline nearer like [`Call::limit`], and keeps the origin of the limit.
    pub(super) fn bring_nearer(&mut self, limit: CallDeadline) {
        self.parts.limit = CallDeadline::earliest(self.parts.limit.into_iter().chain([limit]));
    }

    /// The call encoded, to be made by another protocol, with its limits as the channel knows them.
    pub(super) fn into_encoded(self, limit: Option<CallDeadline>) -> EncodedCall {
        let RequestParts { metadata, extensions, .. } = *self.parts.into_owned();
        let body = self.body.into_encoded(self.method.detach().request);
        EncodedCall { method: self.method, metadata, extensions, limit, body }
    }

    /// The same with the entry that asks the server for its times.
    pub(super) fn into_explained(mut self, limit: Option<CallDeadline>) -> EncodedCall {
        if !self.method.kind().has_response_stream() {
            self.parts.metadata.insert(server_times::KEY, AsciiMetadataValue::from_static("1"));
        }
        self.into_encoded(limit)
    }

    /// Returns the parts with which the channel makes the call.
    pub(super) fn as_sent(&mut self) -> (&Method, &MetadataMap, Option<&Explain>, Sent<'_>) {
        let RequestParts { metadata, extensions, .. } = &*self.parts;
        (&self.method, metadata, extensions.get(), self.body.as_sent())
    }

    /// Splits the call for a caller that makes no request from it.
    pub(super) fn into_parts(self) -> (MetadataMap, Extensions, Body<'a>) {
        let RequestParts { metadata, extensions, .. } = *self.parts.into_owned();
        (metadata, extensions, self.body)
    }
}

impl ClientCall {
    /// The same call once more, for layers that repeat calls; `None` when its requests are a
    /// stream, which can be read only once.
    #[must_use]
    pub fn try_clone(&self) -> Option<Self> {
        Some(Self(Call {
            body: self.body.try_clone()?,
            method: self.method.clone(),
            parts: PartsOf::Owned(Box::new(RequestParts::clone(&self.parts))),
            response: self.response,
            metered: self.metered,
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
    fn method(&self) -> Method {
        self.0.method.clone()
    }

    fn side(&self) -> Side {
        Side::Client
    }

    fn peer(&self) -> Option<(&'static str, Option<SocketAddr>)> {
        None
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
        let mut extensions = mem::take(&mut self.parts.extensions);
        // An interceptor of tonic's looks for `GrpcMethod`, which needs names that live as long as
        // the process. Those of a path do not: its interceptors find the `Method`.
        match &self.method {
            Method::Static(method) => {
                extensions.insert(GrpcMethod::new(method.service(), method.name()));
            }
            Method::Shared(_) => drop(extensions.insert(self.method.clone())),
        }
        (mem::take(&mut self.parts.metadata), extensions)
    }

    fn set_head(&mut self, metadata: MetadataMap, extensions: Extensions) {
        (self.parts.metadata, self.parts.extensions) = (metadata, extensions);
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("method", &self.method.path())
            .field("metadata", &MetadataNames(&self.parts.metadata))
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// The parts of a request that precede its messages.
#[derive(Debug, Clone, Default)]
struct RequestParts {
    pub(in crate::client) metadata: MetadataMap,
    pub(in crate::client) extensions: Extensions,
    /// The earliest of what layers say and, once the call owns its request, of what its caller
    /// says and of what it inherits.
    pub(in crate::client) limit: Option<CallDeadline>,
    /// Set once `limit` counts for all attempts. The timeout of a channel adds nothing then.
    pub(in crate::client) is_settled: bool,
}

impl RequestParts {
    /// Makes the parts of a stub's request.
    fn new(metadata: MetadataMap, extensions: Extensions) -> Self {
        Self { metadata, extensions, limit: None, is_settled: false }
    }
}

/// The parts of a call's request, or where its stub keeps them: a call is moved several times on
/// its way to the channel, and does not carry their size along.
enum PartsOf<'a> {
    Lent(&'a mut RequestParts),
    Owned(Box<RequestParts>),
}

impl PartsOf<'_> {
    /// The parts. A stub that lent them is left with empty ones.
    fn into_owned(self) -> Box<RequestParts> {
        match self {
            Self::Lent(parts) => Box::new(mem::take(parts)),
            Self::Owned(parts) => parts,
        }
    }
}

impl Deref for PartsOf<'_> {
    type Target = RequestParts;

    fn deref(&self) -> &RequestParts {
        match self {
            Self::Lent(parts) => parts,
            Self::Owned(parts) => parts,
        }
    }
}

impl DerefMut for PartsOf<'_> {
    fn deref_mut(&mut self) -> &mut RequestParts {
        match self {
            Self::Lent(parts) => parts,
            Self::Owned(parts) => parts,
        }
    }
}
