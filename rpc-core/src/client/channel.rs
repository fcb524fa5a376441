//! The channel: a cheap handle that makes calls over one connection, which is renewed when it ends.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use prost::Message;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tonic::{Extensions, Request, Response, Status, Streaming};
use tower::Layer;

use super::download::download;
use super::present::Present;
use super::starts::Starts;
use super::upload::upload;
use super::{
    Caller, Connect, Connection, Intercepted, LayeredChannel, Outgoing, Path, PathCounts,
    Readiness, ReadyWhen, Reply, Started,
};
use crate::buffer::buffer_of;
use crate::connect::{ConnectError, ConnectionInfo};
use crate::deadline::take_grpc_timeout;
use crate::encode::{Encode, Split};
use crate::wire::outcome::Outcome;
use crate::{Buffer, CallKind, Deadline, MethodDescriptor, NotExecuted, Trailers, refusal};

/// How many connections a call may find at their end before it is given up: one that the channel
/// has, one that came in its place, and one more.
const STARTS_MAX: u32 = 3;

/// A cheap handle that makes calls; clones share one connection.
///
/// The connection is made at the first call, and made anew when it has ended: calls in flight
/// then end with `UNAVAILABLE`, the next one connects. Calls that come meanwhile wait for the same
/// attempt and fail with it, and one whose deadline passes leaves it to the others. It is closed
/// with the last clone and the last stream of responses.
///
/// After an attempt that failed the channel backs off ([`crate::ConnectBackoff`]): calls fail at
/// once with `UNAVAILABLE`, the reason of that attempt and the time of the next one, or wait
/// ([`Readiness`]). A connection over which no call was answered counts as a failed attempt too,
/// from the second in a row on: a server that accepts and closes, or sends its clients away at
/// once, is not asked more often than one that is not there.
///
/// A server that shuts down, or has had the connection for long enough, says so: calls in flight
/// then go on, and the next one connects. A call that crossed the server's word comes back marked
/// as not executed, and is started once more, unless its requests are a stream, which is partly
/// sent by then: that one ends with `UNAVAILABLE`, marked with [`NotExecuted`].
///
/// When a better path under a connection dies (RDMA, where TCP still works) the channel goes on
/// without it, at once, and tries in the background to win it back; [`Channel::path`] tells. Where
/// the path is required, calls fail with `UNAVAILABLE` and the reason until it is back. A call
/// that was in flight on a connection that ended is made once more if its method is idempotent by
/// its `.proto` and nothing of its answer was seen; any other ends with `UNAVAILABLE`, marked with
/// [`crate::MayHaveExecuted`].
#[derive(Clone, Debug)]
pub struct Channel {
    present: Arc<Present>,
    timeout: Option<Duration>,
    /// In its place for unary calls.
    unary_timeout: Option<Duration>,
    readiness: Readiness,
    /// What tower is told.
    ready_when: ReadyWhen,
}

impl Channel {
    /// A channel that connects at its first call.
    #[must_use]
    pub fn new(connector: impl Connect) -> Self {
        let present = Arc::new(Present::new(connector));
        Self {
            present,
            timeout: None,
            unary_timeout: None,
            readiness: Readiness::FailFast,
            ready_when: ReadyWhen::Connected,
        }
    }

    /// Connects now.
    ///
    /// # Errors
    ///
    /// When no connection can be made.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is left behind.
    pub async fn connect(connector: impl Connect) -> Result<Self, ConnectError> {
        let channel = Self::new(connector);
        channel.present.connect().await?;
        Ok(channel)
    }

    /// The same channel with a timeout for calls of every kind that set none themselves. A stream
    /// that is still open then ends with `DEADLINE_EXCEEDED`;
    /// [`with_unary_timeout`](Self::with_unary_timeout) leaves streams alone. Zero ends every such
    /// call at once. Calls that a handler makes end with the handler's own call at the latest, see
    /// [`Deadline::detached`].
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The same channel with a timeout for unary calls that set none themselves, and none for calls
    /// with a stream in either direction. For unary calls it takes the place of the timeout of
    /// [`with_timeout`](Self::with_timeout), so that the two together give each kind its own. Zero
    /// ends every such call at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use farcall::Channel;
    ///
    /// /// A lookup is a matter of seconds, and a subscription may go on for ever.
    /// fn patient(channel: Channel) -> Channel {
    ///     channel.with_unary_timeout(Duration::from_secs(5))
    /// }
    /// ```
    #[must_use]
    pub fn with_unary_timeout(mut self, timeout: Duration) -> Self {
        self.unary_timeout = Some(timeout);
        self
    }

    /// The same channel with another rule for calls that are made while there is no connection and
    /// the channel backs off; [`Readiness::FailFast`] by default.
    #[must_use]
    pub fn with_readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// Puts a tower layer around calls of every kind; [`LayeredChannel`] tells how it is used. The
    /// outermost layer of a `tower::ServiceBuilder` is the one that is added first.
    ///
    /// tower's own layers work as they are: a timeout ends a call with `DEADLINE_EXCEEDED`, load
    /// shedding with `RESOURCE_EXHAUSTED`; an error of another layer becomes the call's status as
    /// [`crate::layer::into_status`] says. For a layer, a call is over with its first answer, the
    /// headers of a stream included.
    ///
    /// Under these layers the channel is always ready, connected or not: there is no other one to
    /// choose, and its calls wait or fail as their [`Readiness`] says.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rpc_core::client::ClientCall;
    /// use rpc_core::{Caller, Channel};
    /// use tower::ServiceBuilder;
    ///
    /// fn careful(channel: Channel) -> impl Caller + Clone {
    ///     let layers = ServiceBuilder::new()
    ///         .load_shed()
    ///         .concurrency_limit(100)
    ///         .timeout(Duration::from_secs(5))
    ///         .map_request(|mut call: ClientCall| {
    ///             let value = tonic::metadata::MetadataValue::from_static("berlin");
    ///             call.metadata_mut().insert("x-site", value);
    ///             call
    ///         });
    ///     channel.layer(layers)
    /// }
    /// ```
    #[must_use]
    pub fn layer<L: Layer<Self>>(self, layer: L) -> LayeredChannel<L::Service> {
        LayeredChannel::new(layer.layer(self.always_ready()))
    }

    /// The same channel as the innermost service of layers, where each call finds out for itself
    /// whether there is a connection, as its [`Readiness`] says.
    #[must_use]
    pub fn always_ready(mut self) -> Self {
        self.ready_when = ReadyWhen::Always;
        self
    }

    /// Shows every request to one of tonic's interceptors before the call is made.
    ///
    /// # Examples
    ///
    /// ```
    /// use rpc_core::{Caller, Channel, Request, Status};
    ///
    /// fn authorized(channel: Channel) -> impl Caller + Clone {
    ///     channel.intercept(|mut request: Request<()>| -> Result<Request<()>, Status> {
    ///         let token = tonic::metadata::MetadataValue::from_static("Bearer letmein");
    ///         request.metadata_mut().insert("authorization", token);
    ///         Ok(request)
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn intercept<F: Interceptor>(self, interceptor: F) -> Intercepted<Self, F> {
        Intercepted::new(self, interceptor)
    }

    /// Starts a call. A connection that ends just then is renewed.
    pub(super) async fn start(&self, call: Outgoing<'_>) -> Result<Started, Status> {
        let (mut left, waits) = (STARTS_MAX, call.readiness == Readiness::WaitForReady);
        loop {
            left = left.saturating_sub(1);
            let connection = match self.present.open() {
                Some(connection) => connection,
                // In memory of its own: most calls find a connection.
                None => Box::pin(self.connection(&call)).await?,
            };
            let started = match Arc::clone(&connection).try_start(call) {
                Ok(Some(started)) => return Ok(started),
                Ok(None) => Arc::clone(&connection).start(call).await,
                Err(status) => Err(status),
            };
            match started {
                // Each connection that is of no use delays the next attempt, so that a call which
                // waits does not spin.
                Err(_) if (left > 0 || waits) && !connection.is_open() => {}
                other => return other.map_err(NotExecuted::mark),
            }
        }
    }

    /// A connection for a call that found none.
    async fn connection(&self, call: &Outgoing<'_>) -> Result<Arc<dyn Connection>, Status> {
        loop {
            let error = match self.present.connection().await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            if call.readiness == Readiness::FailFast || !error.may_pass() {
                return Err(unavailable(error));
            }
            let due = Instant::from_std(self.present.next_connect());
            if let Some(Deadline(deadline)) = call.deadline
                && deadline <= due
            {
                // No attempt begins before it is due, whichever call asks for it.
                tokio::time::sleep_until(deadline).await;
                return Err(NotExecuted::mark(refusal::not_connected_in_time(&error)));
            }
            tokio::time::sleep_until(due).await;
        }
    }

    /// Whether tower may make a call now.
    pub(super) fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let polled = self.ready_when.poll(&self.present, cx);
        polled.map_err(|error| NotExecuted::mark(unavailable(error)))
    }

    /// The starts of a call with one request.
    pub(super) fn starts(&self, method: &'static MethodDescriptor) -> Starts<'_> {
        Starts::new(&self.present, method)
    }

    /// Makes a call whose answer is one message.
    async fn exchange(&self, call: Outgoing<'_>) -> Result<Reply, Status> {
        let mut starts = self.starts(call.method);
        loop {
            let started = self.start(call).await.map_err(|status| starts.last(status))?;
            match started.reply().await {
                Err(status) => starts.again(status)?,
                reply => return reply,
            }
        }
    }

    /// Makes a call whose answer is a stream.
    async fn follow<Resp>(&self, call: Outgoing<'_>) -> Result<Response<Streaming<Resp>>, Status>
    where
        Resp: Message + Default + 'static,
    {
        let mut starts = self.starts(call.method);
        loop {
            let started = self.start(call).await.map_err(|status| starts.last(status))?;
            match download(started, None, call.deadline, self.clone()).await {
                Err(status) => starts.again(status)?,
                response => return response,
            }
        }
    }

    /// Memory for a long `bytes` field of a request: as [`crate::buffer()`], and right for this
    /// channel. It belongs to the device of the present connection; before the first one, and over
    /// a transport without a device, it is plain memory.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    /// use rpc_core::Channel;
    ///
    /// /// A page to be uploaded, which a peer over RDMA reads from where it was written.
    /// async fn page(channel: &Channel, number: u8) -> Bytes {
    ///     let mut buffer = channel.buffer(1 << 20).await;
    ///     buffer.fill(number);
    ///     buffer.freeze()
    /// }
    /// ```
    pub async fn buffer(&self, len: usize) -> Buffer {
        let source = self.present.open().and_then(|connection| connection.buffers());
        buffer_of(source, len).await
    }

    /// What the present connection says of itself; `None` when there is none.
    #[must_use]
    pub fn info(&self) -> Option<ConnectionInfo> {
        self.present.info()
    }

    /// Which path calls take at this moment, and why not a better one.
    #[must_use]
    pub fn path(&self) -> Path {
        self.present.path()
    }

    /// How often the upgraded path has failed and come back.
    #[must_use]
    pub fn path_counts(&self) -> PathCounts {
        self.present.path_counts()
    }

    /// What the request says, or the channel where it says nothing.
    pub(super) fn readiness<T>(&self, request: &Request<T>) -> Readiness {
        request.extensions().get().copied().unwrap_or(self.readiness)
    }

    /// The earliest of what the request says, or the channel where it says nothing, and of what
    /// is inherited.
    pub(super) fn deadline<T>(&self, kind: CallKind, request: &mut Request<T>) -> Option<Deadline> {
        let explicit = request.extensions().get::<Deadline>().copied();
        let own = take_grpc_timeout(request.metadata_mut());
        let of_channel = match kind {
            CallKind::Unary => self.unary_timeout.or(self.timeout),
            CallKind::ClientStreaming | CallKind::ServerStreaming | CallKind::Streaming => {
                self.timeout
            }
        };
        let timeout = own.or(of_channel.filter(|_| explicit.is_none()));
        let relative = timeout.map(|timeout| Deadline::after(Instant::now(), timeout));
        explicit.into_iter().chain(relative).chain(Deadline::current()).min()
    }
}

// Not listed at the trait, which farcall's users read: their channel is farcall's.
#[doc(hidden)]
impl Caller for Channel {
    async fn unary<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        mut request: Request<Req>,
    ) -> Result<Response<Resp>, Status>
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        let (deadline, readiness) =
            (self.deadline(method.kind, &mut request), self.readiness(&request));
        let (metadata, _, message) = request.into_parts();
        let message = Split::new(message, method.detach.request);
        let (metadata, message): (_, Option<&dyn Encode>) = (&metadata, Some(&message));
        let call = Outgoing { method, metadata, deadline, readiness, message };
        decode(within(deadline, self.exchange(call)).await?)
    }

    async fn server_streaming<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        mut request: Request<Req>,
    ) -> Result<Response<Streaming<Resp>>, Status>
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        let (deadline, readiness) =
            (self.deadline(method.kind, &mut request), self.readiness(&request));
        let (metadata, _, message) = request.into_parts();
        let message = Split::new(message, method.detach.request);
        let (metadata, message): (_, Option<&dyn Encode>) = (&metadata, Some(&message));
        let call = Outgoing { method, metadata, deadline, readiness, message };
        within(deadline, self.follow(call)).await
    }

    async fn client_streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        mut request: Request<S>,
    ) -> Result<Response<Resp>, Status>
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        let (deadline, readiness) =
            (self.deadline(method.kind, &mut request), self.readiness(&request));
        let (metadata, _, stream) = request.into_parts();
        let metadata = &metadata;
        let call = Outgoing { method, metadata, deadline, readiness, message: None };
        let reply = async {
            let started = self.start(call).await?;
            let _upload = upload(stream, &started, method);
            started.reply().await
        };
        decode(within(deadline, reply).await?)
    }

    async fn streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        mut request: Request<S>,
    ) -> Result<Response<Streaming<Resp>>, Status>
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        let (deadline, readiness) =
            (self.deadline(method.kind, &mut request), self.readiness(&request));
        let (metadata, _, stream) = request.into_parts();
        let metadata = &metadata;
        let call = Outgoing { method, metadata, deadline, readiness, message: None };
        let answer = async {
            let started = self.start(call).await?;
            let upload = upload(stream, &started, method);
            download(started, upload, deadline, self.clone()).await
        };
        within(deadline, answer).await
    }
}

/// Runs a call until its deadline; dropping it there cancels it on the peer.
pub(super) async fn within<T>(
    deadline: Option<Deadline>,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match deadline {
        None => call.await,
        Some(Deadline(instant)) => tokio::time::timeout_at(instant, call)
            .await
            .unwrap_or_else(|_| Err(refusal::deadline_exceeded())),
    }
}

pub(super) fn undecodable(what: &str, error: &dyn fmt::Display) -> Status {
    Status::internal(format!("the response's {what} does not decode: {error}"))
}

fn decode<Resp: Message + Default>(reply: Reply) -> Result<Response<Resp>, Status> {
    let (metadata, trailers, message) = open_reply(reply)?;
    let message = Resp::decode(message).map_err(|error| undecodable("message", &error))?;
    let mut extensions = Extensions::new();
    if !trailers.0.is_empty() {
        extensions.insert(trailers);
    }
    Ok(Response::from_parts(metadata, message, extensions))
}

/// The parts of an answer that is one message: all metadata, the trailing part of it once more,
/// and the message, not decoded; or the status that came instead.
pub(super) fn open_reply(reply: Reply) -> Result<(MetadataMap, Trailers, Bytes), Status> {
    if reply.code == 0 && reply.block.is_empty() {
        return Ok((MetadataMap::new(), Trailers::default(), reply.message));
    }
    let outcome = Outcome::decode(reply.code, reply.block);
    let outcome = outcome.map_err(|error| undecodable("block", &error))?;
    let trailers = outcome.result?;
    let metadata = if trailers.is_empty() {
        outcome.metadata
    } else {
        merge(outcome.metadata, trailers.clone())
    };
    Ok((metadata, Trailers(trailers), reply.message))
}

/// Joins initial and trailing metadata as tonic's client does for a unary call.
fn merge(initial: MetadataMap, trailing: MetadataMap) -> MetadataMap {
    let mut headers = initial.into_headers();
    headers.extend(trailing.into_headers());
    MetadataMap::from_headers(headers)
}

fn unavailable(error: Arc<ConnectError>) -> Status {
    let mut status = Status::unavailable(error.to_string());
    status.set_source(error);
    status
}
