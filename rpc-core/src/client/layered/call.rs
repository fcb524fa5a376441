//! A call as a client's layers see it.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, mem};

use futures::Stream;
use prost::Message;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, GrpcMethod, Request};

use crate::call::deadline::take_grpc_timeout;
use crate::client::call_deadline::SetBy;
use crate::client::upload::upload;
use crate::client::{CallDeadline, Outgoing, Started};
use crate::layer::{Described, RequestHead};
use crate::payload::encode::{Encode, Split};
use crate::{Deadline, MethodDescriptor};

/// A call on its way to the server, its messages' types forgotten.
pub struct ClientCall {
    method: &'static MethodDescriptor,
    metadata: MetadataMap,
    extensions: Extensions,
    /// The earliest of what the request says, of what is inherited and of what layers say.
    deadline: Option<CallDeadline>,
    pub(super) body: CallBody,
}

/// What the client sends.
pub(super) enum CallBody {
    /// One message; shared, so that a call can be made again.
    Message(Arc<dyn Encode>),
    /// A stream of messages.
    Stream(Box<dyn Upload>),
}

impl ClientCall {
    /// A call with one request.
    pub(super) fn with_message<M: Message + 'static>(
        method: &'static MethodDescriptor,
        request: Request<M>,
    ) -> Self {
        let (metadata, extensions, message) = request.into_parts();
        let message = Split::new(message, method.detach.request);
        Self::new(method, (metadata, extensions), CallBody::Message(Arc::new(message)))
    }

    /// A call with a stream of requests.
    pub(super) fn with_stream<S>(method: &'static MethodDescriptor, request: Request<S>) -> Self
    where
        S: Stream<Item: Message> + Send + 'static,
    {
        let (metadata, extensions, stream) = request.into_parts();
        Self::new(method, (metadata, extensions), CallBody::Stream(Box::new(stream)))
    }

    fn new(
        method: &'static MethodDescriptor,
        (mut metadata, extensions): (MetadataMap, Extensions),
        body: CallBody,
    ) -> Self {
        // Here rather than in the channel, because a layer may hand the call to another task. The
        // timeout stays in the metadata: it takes the place of the channel's own.
        let timeout = metadata.get("grpc-timeout").cloned();
        let relative = take_grpc_timeout(&mut metadata);
        if let Some(timeout) = timeout {
            metadata.insert("grpc-timeout", timeout);
        }
        let explicit = extensions.get::<Deadline>().copied();
        let deadline = earliest(relative, explicit, Deadline::current());
        Self { method, metadata, extensions, deadline, body }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'static MethodDescriptor {
        self.method
    }

    /// When the call ends at the latest, as far as its caller and the call that is being handled
    /// around it say; the channel's own timeout may come earlier.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline.map(|limit| limit.deadline())
    }

    /// The same, and what set it.
    pub(super) fn time_limit(&self) -> Option<CallDeadline> {
        self.deadline
    }

    /// Brings the call's deadline nearer; one that is further away changes nothing.
    pub fn limit(&mut self, deadline: Deadline) {
        let limit = CallDeadline::at(deadline, Instant::now(), SetBy::Layer);
        self.deadline = CallDeadline::earliest(self.deadline.into_iter().chain([limit]));
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

    /// The same call once more, for layers that repeat calls; `None` when its requests are a
    /// stream, which can be read only once.
    #[must_use]
    pub fn try_clone(&self) -> Option<Self> {
        let CallBody::Message(message) = &self.body else { return None };
        Some(Self {
            method: self.method,
            metadata: self.metadata.clone(),
            extensions: self.extensions.clone(),
            deadline: self.deadline,
            body: CallBody::Message(Arc::clone(message)),
        })
    }

    /// What the channel makes the call with.
    pub(super) fn into_parts(self) -> (Request<()>, CallBody, Option<CallDeadline>) {
        let Self { metadata, extensions, deadline, body, .. } = self;
        (Request::from_parts(metadata, extensions, ()), body, deadline)
    }
}

/// The earliest of the timeout and the deadline that a request has, and of what is inherited. The
/// clock is looked at only where there is one of them.
fn earliest(
    timeout: Option<Duration>,
    explicit: Option<Deadline>,
    inherited: Option<Deadline>,
) -> Option<CallDeadline> {
    if timeout.is_none() && explicit.is_none() && inherited.is_none() {
        return None;
    }
    let now = Instant::now();
    let timeout = timeout.map(|timeout| CallDeadline::after(now, timeout, SetBy::Request));
    let explicit = explicit.map(|deadline| CallDeadline::at(deadline, now, SetBy::Request));
    let inherited = inherited.map(|deadline| CallDeadline::at(deadline, now, SetBy::Inherited));
    CallDeadline::earliest([timeout, explicit, inherited].into_iter().flatten())
}

impl Described for ClientCall {
    fn method(&self) -> &'static MethodDescriptor {
        self.method
    }
}

impl RequestHead for ClientCall {
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

impl fmt::Debug for ClientCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCall")
            .field("method", &self.method.path)
            .field("metadata", &self.metadata)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// A stream of requests, its type forgotten.
pub(super) trait Upload: Send {
    /// Sends it as the requests of a call.
    fn start(
        self: Box<Self>,
        started: &Started,
        call: Outgoing<'_>,
    ) -> Option<AbortOnDropHandle<()>>;
}

impl<S> Upload for S
where
    S: Stream<Item: Message> + Send + 'static,
{
    fn start(
        self: Box<Self>,
        started: &Started,
        call: Outgoing<'_>,
    ) -> Option<AbortOnDropHandle<()>> {
        upload(*self, started, call)
    }
}
