//! The stream to a control plane.

use std::fmt;
use std::time::Duration;

use farcall::balance::Endpoint;
use farcall::resolve::{Refresh, Resolve, ResolveError, Scheme};
use farcall::{Channel, Status, Streaming};
use futures::channel::mpsc;
use futures::future::BoxFuture;
use futures::{FutureExt, SinkExt, StreamExt};
use rpc_core::limited_log;
use rpc_core::limits::log::LogLimit;
use tokio::time::{Instant, sleep_until, timeout};

use crate::api::{self, DiscoveryRequest, DiscoveryResponse};
use crate::follow::{Outcome, Patience, follow};
use crate::node::XdsNode;
use crate::session::Session;

/// Minimum interval between two streams. A control plane that ends every stream at once must not be
/// asked in a loop.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which a requested resource that has not arrived does not exist, since a control plane
/// cannot express that. It is also the maximum silence before the first response. gRPC's clients
/// wait as long.
pub(crate) const MISSING_AFTER: Duration = Duration::from_secs(15);

/// Maximum number of requests that wait for the connection. Each response is answered with a
/// request, so the client stops reading if the control plane does.
const MAX_REQUESTS: usize = 8;

/// Maximum time for a control plane to read a request.
const SEND_TIMEOUT: Duration = Duration::from_secs(15);

/// A resolver that asks an xDS control plane for the servers of a service.
///
/// It requests the service's listener and everything that the listener names: its routes, their
/// clusters, and the clusters' endpoints. It watches all of them, so changes arrive at once. Of the
/// routes, it uses the first one that matches all calls. It leaves out endpoints that are unhealthy
/// or draining. If the stream ends, it opens another one and meanwhile keeps the servers.
///
/// `xds:///name` finds the control plane through gRPC's bootstrap file
/// ([`XdsBootstrap`](crate::XdsBootstrap)). The book's `many-servers.md` lists the supported parts
/// of the resources.
///
/// # Examples
///
/// ```
/// use farcall::Channel;
/// use farcall::resolve::Scheme;
/// use farcall_xds::{Xds, XdsNode};
///
/// # fn example() -> Result<(), farcall::AddressError> {
/// let control_plane = Channel::builder("grpc://10.0.0.9:18000")?.connect_lazy();
/// let resolver = Xds::new(control_plane, "inventory.shop:7000", Scheme::Auto);
/// let resolver = resolver.with_node(XdsNode::new("shop-7d4b9"));
/// let channel = Channel::builder("auto://inventory:1")?.connect_with_resolver(resolver);
/// # drop(channel);
/// # Ok(())
/// # }
/// ```
pub struct Xds {
    /// The resolver's name in messages.
    name: String,
    channel: Channel,
    listener: String,
    scheme: Scheme,
    session: Session,
    stream: Option<Open>,
    opened_at: Option<Instant>,
    patience: Patience,
    /// Time until which requested resources may arrive.
    deadline: Option<Instant>,
    /// The last list returned, unless an error followed it.
    given: Option<Vec<Endpoint>>,
    /// The last error that resources led to, unless a list followed it.
    reported: Option<String>,
    log: LogLimit,
}

impl fmt::Debug for Xds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xds").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The stream to the control plane.
struct Open {
    requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
    /// True if a response has arrived on it.
    is_answered: bool,
}

/// An event while the resolver waits for a list.
enum Event {
    Response(Option<Result<DiscoveryResponse, Status>>),
    /// A requested resource has not arrived in time.
    Late,
    /// The channel asks for a list.
    Refresh,
}

impl Xds {
    /// Creates a resolver for the service `name`. `channel` leads to the control plane. Calls use
    /// `scheme`.
    #[must_use]
    pub fn new(channel: Channel, name: impl Into<String>, scheme: Scheme) -> Self {
        let listener = name.into();
        Self {
            name: format!("the xDS service {listener}"),
            channel,
            session: Session::new(XdsNode::new("farcall"), listener.clone()),
            listener,
            scheme,
            stream: None,
            opened_at: None,
            patience: Patience::Waiting,
            deadline: None,
            given: None,
            reported: None,
            log: LogLimit::default(),
        }
    }

    /// Sets the node. By default its id is `farcall`.
    #[must_use]
    pub fn with_node(mut self, node: XdsNode) -> Self {
        self.session.set_node(node);
        self
    }

    /// Sets the name of the listener if it differs from the service's.
    #[must_use]
    pub fn with_listener(self, listener: impl Into<String>) -> Self {
        Self { listener: listener.into(), ..self }
    }

    /// Sets the name in messages.
    pub(crate) fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// Returns the current result, and the requests for resources that it names.
    fn follow(&mut self) -> (Outcome, Vec<DiscoveryRequest>) {
        let followed = follow(&self.session, &self.listener, self.scheme, self.patience);
        let wanted = followed.wanted.into_iter();
        let requests: Vec<_> =
            wanted.filter_map(|(kind, names)| self.session.ask(kind, names)).collect();
        if !requests.is_empty() {
            self.wait_anew();
        }
        (followed.outcome, requests)
    }

    /// Restarts the wait for requested resources.
    fn wait_anew(&mut self) {
        self.patience = Patience::Waiting;
        self.deadline = Some(Instant::now() + MISSING_AFTER);
    }

    /// Opens the stream, and requests everything that is known to be needed.
    async fn open(&mut self) -> Result<(), ResolveError> {
        if let Some(at) = self.opened_at {
            sleep_until(at + MIN_INTERVAL).await;
        }
        self.opened_at = Some(Instant::now());
        // On the first stream, this adds the listener.
        let _ = self.follow();
        let (mut requests, sent) = mpsc::channel(MAX_REQUESTS);
        for request in self.session.open() {
            // There is one request per kind, so there is room.
            let _ = requests.try_send(request);
        }
        // A control plane may delay its answer until it has the first resource.
        let opened = timeout(MISSING_AFTER, api::open(&self.channel, sent)).await;
        let opened = opened.unwrap_or_else(|_| {
            let (seconds, listener) = (MISSING_AFTER.as_secs(), &self.listener);
            let message = format!("no response for the Listener `{listener}` within {seconds} s");
            Err(Status::unavailable(message))
        });
        let responses = opened.map_err(|status| self.failed(&status))?;
        self.stream = Some(Open { requests, responses, is_answered: false });
        self.wait_anew();
        Ok(())
    }

    fn failed(&mut self, status: &Status) -> ResolveError {
        // A new stream may repeat the old news. After an error it counts as news again.
        (self.given, self.reported) = (None, None);
        let message = status.message();
        let message = if message.is_empty() { "it gave no reason" } else { message };
        ResolveError::new(format!(
            "{}: the control plane: {:?}: {message}",
            self.name,
            status.code()
        ))
    }

    /// Sends requests.
    ///
    /// # Errors
    ///
    /// Returns an error if the control plane does not read them.
    async fn send(
        &mut self,
        requests: impl IntoIterator<Item = DiscoveryRequest>,
    ) -> Result<(), ResolveError> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        for request in requests {
            match timeout(SEND_TIMEOUT, stream.requests.send(request)).await {
                Ok(Ok(())) => {}
                // The stream has ended. Reading responses reports the reason.
                Ok(Err(_)) => return Ok(()),
                Err(_) => {
                    self.stream = None;
                    let seconds = SEND_TIMEOUT.as_secs();
                    let message = format!("it read no request for {seconds} s");
                    return Err(self.failed(&Status::unavailable(message)));
                }
            }
        }
        Ok(())
    }

    /// Handles a response, or the end of the stream.
    async fn take(
        &mut self,
        response: Option<Result<DiscoveryResponse, Status>>,
    ) -> Result<(), ResolveError> {
        let status = match response {
            Some(Ok(response)) => {
                if let Some(stream) = &mut self.stream {
                    stream.is_answered = true;
                }
                let Some(answer) = self.session.handle(response) else { return Ok(()) };
                if let Some(reason) = &answer.rejected {
                    limited_log!(
                        target: "farcall::path",
                        self.log, WARN, "rejected a response from the control plane",
                        target = %self.name, %reason
                    );
                }
                return self.send([answer.request]).await;
            }
            Some(Err(status)) => status,
            None => Status::unavailable("it closed the stream"),
        };
        let was_answered = self.stream.take().is_some_and(|stream| stream.is_answered);
        if !was_answered {
            return Err(self.failed(&status));
        }
        // Routine: control planes restart, and end streams to spread their clients.
        limited_log!(
            target: "farcall::path",
            self.log, INFO, "the control plane closed the stream: opening another",
            target = %self.name, code = ?status.code(), reason = status.message()
        );
        Ok(())
    }

    /// Waits for the next event. Returns `None` without a stream.
    async fn event(&mut self, refresh: &Refresh, is_awaited: bool) -> Option<Event> {
        let stream = self.stream.as_mut()?;
        let has_list = self.given.is_some();
        let is_limited = is_awaited && self.patience == Patience::Waiting;
        let deadline = self.deadline.filter(|_| is_limited);
        let late = async {
            match deadline {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        Some(tokio::select! {
            response = stream.responses.next() => Event::Response(response),
            () = refresh.requested(), if has_list => Event::Refresh,
            () = late => Event::Late,
        })
    }

    /// Returns the list or the error if it is news.
    fn news(&mut self, outcome: Outcome) -> Option<Result<Vec<Endpoint>, ResolveError>> {
        match outcome {
            Outcome::Endpoints(list) if self.given.as_ref() == Some(&list) => None,
            Outcome::Endpoints(list) => {
                self.reported = None;
                self.given = Some(list.clone());
                limited_log!(
                    target: "farcall::path",
                    self.log, INFO, "the control plane sent a list of servers",
                    target = %self.name, servers = list.len()
                );
                Some(Ok(list))
            }
            Outcome::None(reason) => self.error(reason),
            Outcome::Awaited(what) if self.patience == Patience::Over => {
                let seconds = MISSING_AFTER.as_secs();
                let what = what.join(", ");
                self.error(format!(
                    "{what} did not arrive within {seconds} s and is taken as \
                                    missing"
                ))
            }
            Outcome::Awaited(_) => None,
        }
    }

    /// Returns an error unless it was reported last.
    fn error(&mut self, reason: String) -> Option<Result<Vec<Endpoint>, ResolveError>> {
        if self.reported.as_ref() == Some(&reason) {
            return None;
        }
        self.given = None;
        let error = ResolveError::new(format!("{}: {reason}", self.name));
        self.reported = Some(reason);
        Some(Err(error))
    }

    async fn next_list(&mut self, refresh: &Refresh) -> Result<Vec<Endpoint>, ResolveError> {
        loop {
            if self.stream.is_none() {
                self.open().await?;
            }
            let (outcome, requests) = self.follow();
            let is_awaited = matches!(outcome, Outcome::Awaited(_));
            self.send(requests).await?;
            if let Some(news) = self.news(outcome) {
                return news;
            }
            match self.event(refresh, is_awaited).await {
                Some(Event::Response(response)) => self.take(response).await?,
                Some(Event::Late) => self.patience = Patience::Over,
                // The control plane has nothing newer than its last response.
                Some(Event::Refresh) => {
                    if let Some(list) = &self.given {
                        return Ok(list.clone());
                    }
                }
                None => {}
            }
        }
    }
}

impl Resolve for Xds {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn next<'a>(
        &'a mut self,
        refresh: &'a Refresh,
    ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>> {
        self.next_list(refresh).boxed()
    }
}
