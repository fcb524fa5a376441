//! The channel: a cheap handle that makes calls over one connection and renews it when it ends.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use prost::Message;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tonic::{Extensions, Request, Response, Status, Streaming};
use tower::Layer;

use super::download::download;
use super::upload::upload;
use super::{Caller, Connection, Intercepted, LayeredChannel, Outgoing, Reply, Started};
use crate::connect::{ConnectError, ConnectionInfo};
use crate::deadline::take_grpc_timeout;
use crate::wire::outcome::Outcome;
use crate::{Deadline, MethodDescriptor, NotExecuted, Trailers, refusal};

/// Makes connections to one server.
pub trait Connect: fmt::Debug + Send + Sync + 'static {
    /// Makes a new connection.
    ///
    /// # Errors
    ///
    /// When none can be made.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is left behind.
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Connection>, ConnectError>>;
}

/// How many connections a call may find at their end before it is given up: one that the channel
/// has, one that came in its place, and one more.
const STARTS_MAX: u32 = 3;

/// A cheap handle that makes calls; clones share one connection.
///
/// The connection is made at the first call, and made anew when it has ended: calls in flight
/// then end with `UNAVAILABLE`, the next one connects. It is closed with the last clone and the
/// last stream of responses.
///
/// A server that shuts down, or has had the connection for long enough, says so: calls in flight
/// then go on, and the next one connects. A call that crossed the server's word comes back marked
/// as not executed, and is started once more, unless its requests are a stream, which is partly
/// sent by then: that one ends with `UNAVAILABLE`, marked with [`NotExecuted`].
#[derive(Clone, Debug)]
pub struct Channel {
    shared: Arc<Shared>,
    timeout: Option<Duration>,
}

#[derive(Debug)]
struct Shared {
    connector: Box<dyn Connect>,
    current: Mutex<Option<Arc<dyn Connection>>>,
    /// Held while connecting, so that many callers make one connection.
    connecting: tokio::sync::Mutex<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let current = self.current.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = current {
            connection.close();
        }
    }
}

impl Channel {
    /// A channel that connects at its first call.
    #[must_use]
    pub fn new(connector: impl Connect) -> Self {
        let shared = Shared {
            connector: Box::new(connector),
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
        };
        Self { shared: Arc::new(shared), timeout: None }
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
        channel.shared.connection().await?;
        Ok(channel)
    }

    /// The same channel with a timeout for calls that set none themselves. Calls that a handler
    /// makes end with the handler's own call at the latest, see [`Deadline::detached`].
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
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
        LayeredChannel::new(layer.layer(self))
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

    pub(super) async fn start(&self, call: Outgoing<'_>) -> Result<Started, Status> {
        self.shared.start(call).await
    }

    /// As [`Shared::exchange`], for an answer that is a stream.
    async fn follow<Resp>(&self, call: Outgoing<'_>) -> Result<Response<Streaming<Resp>>, Status>
    where
        Resp: Message + Default + 'static,
    {
        let begin =
            async || download(self.start(call).await?, None, call.deadline, self.clone()).await;
        match begin().await {
            Err(status) if NotExecuted::invites_another_start(&status) => begin().await,
            other => other,
        }
    }

    /// What the present connection says of itself; `None` when there is none.
    #[must_use]
    pub fn info(&self) -> Option<ConnectionInfo> {
        self.shared.open().map(|connection| connection.info())
    }

    /// The earliest of what the request says, or the channel where it says nothing, and of what
    /// is inherited.
    pub(super) fn deadline<T>(&self, request: &mut Request<T>) -> Option<Deadline> {
        let explicit = request.extensions().get::<Deadline>().copied();
        let timeout = take_grpc_timeout(request.metadata_mut()).or(self.timeout);
        let relative = timeout.map(|timeout| Deadline::after(Instant::now(), timeout));
        explicit.into_iter().chain(relative).chain(Deadline::current()).min()
    }
}

impl Shared {
    /// The present connection, if calls can be started on it.
    fn open(&self) -> Option<Arc<dyn Connection>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|connection| connection.is_open()).map(Arc::clone)
    }

    async fn connection(&self) -> Result<Arc<dyn Connection>, ConnectError> {
        if let Some(connection) = self.open() {
            return Ok(connection);
        }
        let _alone = self.connecting.lock().await;
        if let Some(connection) = self.open() {
            return Ok(connection);
        }
        let connection = self.connector.connect().await?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Starts a call. A connection that ends just then is renewed.
    async fn start(&self, call: Outgoing<'_>) -> Result<Started, Status> {
        let mut left = STARTS_MAX;
        loop {
            left -= 1;
            let connection = match self.open() {
                Some(connection) => connection,
                None => self.connection().await.map_err(unavailable)?,
            };
            let started = match Arc::clone(&connection).try_start(call) {
                Ok(Some(started)) => return Ok(started),
                Ok(None) => Arc::clone(&connection).start(call).await,
                Err(status) => Err(status),
            };
            match started {
                Err(_) if left > 0 && !connection.is_open() => {}
                other => return other.map_err(NotExecuted::mark),
            }
        }
    }

    /// Makes a call whose answer is one message. One that the server refused because it goes away
    /// is made once more, on another connection.
    async fn exchange(&self, call: Outgoing<'_>) -> Result<Reply, Status> {
        match self.start(call).await?.reply().await {
            Err(status) if NotExecuted::invites_another_start(&status) => {
                self.start(call).await?.reply().await
            }
            other => other,
        }
    }
}

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
        let deadline = self.deadline(&mut request);
        let (metadata, _, message) = request.into_parts();
        let call = Outgoing { method, metadata: &metadata, deadline, message: Some(&message) };
        decode(within(deadline, self.shared.exchange(call)).await?)
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
        let deadline = self.deadline(&mut request);
        let (metadata, _, message) = request.into_parts();
        let call = Outgoing { method, metadata: &metadata, deadline, message: Some(&message) };
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
        let deadline = self.deadline(&mut request);
        let (metadata, _, stream) = request.into_parts();
        let call = Outgoing { method, metadata: &metadata, deadline, message: None };
        let reply = async {
            let started = self.shared.start(call).await?;
            let _upload = upload(stream, &started);
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
        let deadline = self.deadline(&mut request);
        let (metadata, _, stream) = request.into_parts();
        let call = Outgoing { method, metadata: &metadata, deadline, message: None };
        let answer = async {
            let started = self.shared.start(call).await?;
            let upload = upload(stream, &started);
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

fn unavailable(error: ConnectError) -> Status {
    let mut status = Status::unavailable(error.to_string());
    status.set_source(Arc::new(error));
    status
}
