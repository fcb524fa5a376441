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

/// The shortest time between two streams, so that a control plane that ends each at once is not
/// asked without a pause.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// After how long a resource that was asked for and has not come does not exist: a control plane
/// has no word for that. So long it may be silent, too. gRPC's clients wait as long.
pub(crate) const MISSING_AFTER: Duration = Duration::from_secs(15);

/// Requests that wait for the connection. Each response is answered with one, so that what a
/// control plane sends is not read while it reads nothing itself.
const MAX_REQUESTS: usize = 8;

/// How long a control plane may leave requests unread.
const SEND_TIMEOUT: Duration = Duration::from_secs(15);

/// The servers that a control plane tells for a service, by xDS.
///
/// The listener of the service's name is asked for, and what it names: its routes, their clusters,
/// and the clusters' endpoints. All of them are watched: a change is known at once. Of the routes
/// the first one for all calls is read, and endpoints that are unhealthy or draining are left out.
/// Where the stream ends, it is opened again, and meanwhile the servers stay as they are.
///
/// `xds:///name` finds the control plane by gRPC's bootstrap file
/// ([`XdsBootstrap`](crate::XdsBootstrap)); the book's `many-servers.md` says what is read of its
/// resources and what is not.
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
    /// What messages call it.
    name: String,
    channel: Channel,
    listener: String,
    scheme: Scheme,
    session: Session,
    stream: Option<Open>,
    opened_at: Option<Instant>,
    patience: Patience,
    /// Until when what has been asked for may come.
    deadline: Option<Instant>,
    /// The last list that was returned, unless there was an error after it.
    given: Option<Vec<Endpoint>>,
    /// The last error that resources have come to, unless there was a list after it.
    told: Option<String>,
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
    /// Whether there was a response on it.
    is_answered: bool,
}

/// What has happened while a list was waited for.
enum Event {
    Response(Option<Result<DiscoveryResponse, Status>>),
    /// What was asked for has not come.
    Late,
    /// The channel has asked.
    Refresh,
}

impl Xds {
    /// The servers of the service `name`, by a channel to the control plane. They are called by
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
            told: None,
            log: LogLimit::default(),
        }
    }

    /// Sets who asks; a node with the id `farcall` by default.
    #[must_use]
    pub fn with_node(mut self, node: XdsNode) -> Self {
        self.session.set_node(node);
        self
    }

    /// Sets the name of the listener, where it is not that of the service.
    #[must_use]
    pub fn with_listener(self, listener: impl Into<String>) -> Self {
        Self { listener: listener.into(), ..self }
    }

    /// The same under another name in messages.
    pub(crate) fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// What resources come to, and the requests for those that they name.
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

    /// Has what is asked for wait from now on.
    fn wait_anew(&mut self) {
        self.patience = Patience::Waiting;
        self.deadline = Some(Instant::now() + MISSING_AFTER);
    }

    /// Opens the stream, and asks for what is known to be needed.
    async fn open(&mut self) -> Result<(), ResolveError> {
        if let Some(at) = self.opened_at {
            sleep_until(at + MIN_INTERVAL).await;
        }
        self.opened_at = Some(Instant::now());
        // The first time, the listener.
        let _ = self.follow();
        let (mut requests, sent) = mpsc::channel(MAX_REQUESTS);
        for request in self.session.open() {
            // One for each kind: there is room.
            let _ = requests.try_send(request);
        }
        // A control plane may begin its answer with the first resource that it has.
        let opened = timeout(MISSING_AFTER, api::open(&self.channel, sent)).await;
        let opened = opened.unwrap_or_else(|_| {
            let (seconds, listener) = (MISSING_AFTER.as_secs(), &self.listener);
            let words = format!("it has no answer for {seconds} s to the Listener `{listener}`");
            Err(Status::unavailable(words))
        });
        let responses = opened.map_err(|status| self.failed(&status))?;
        self.stream = Some(Open { requests, responses, is_answered: false });
        self.wait_anew();
        Ok(())
    }

    fn failed(&mut self, status: &Status) -> ResolveError {
        // What the next stream tells is news, even where it is the same.
        (self.given, self.told) = (None, None);
        let message = status.message();
        let message = if message.is_empty() { "no reason is given" } else { message };
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
    /// When the control plane reads none.
    async fn send(
        &mut self,
        requests: impl IntoIterator<Item = DiscoveryRequest>,
    ) -> Result<(), ResolveError> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        for request in requests {
            match timeout(SEND_TIMEOUT, stream.requests.send(request)).await {
                Ok(Ok(())) => {}
                // A stream that has ended says so where responses are read.
                Ok(Err(_)) => return Ok(()),
                Err(_) => {
                    self.stream = None;
                    let seconds = SEND_TIMEOUT.as_secs();
                    let words = format!("it has read no request for {seconds} s");
                    return Err(self.failed(&Status::unavailable(words)));
                }
            }
        }
        Ok(())
    }

    /// Takes a response, or the end of the stream.
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
                        self.log, WARN, "rejected what the control plane has sent",
                        target = %self.name, %reason
                    );
                }
                return self.send([answer.request]).await;
            }
            Some(Err(status)) => status,
            None => Status::unavailable("it has ended the stream"),
        };
        let was_answered = self.stream.take().is_some_and(|stream| stream.is_answered);
        if !was_answered {
            return Err(self.failed(&status));
        }
        // Control planes restart, and end streams to spread their clients.
        limited_log!(
            target: "farcall::path",
            self.log, INFO, "the stream of the control plane has ended, and is opened again",
            target = %self.name, code = ?status.code(), reason = status.message()
        );
        Ok(())
    }

    /// Waits until there is reason to look again. `None` without a stream.
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
            () = refresh.asked(), if has_list => Event::Refresh,
            () = late => Event::Late,
        })
    }

    /// The list that is news, or the error. `None` where there is neither.
    fn news(&mut self, outcome: Outcome) -> Option<Result<Vec<Endpoint>, ResolveError>> {
        match outcome {
            Outcome::Endpoints(list) if self.given.as_ref() == Some(&list) => None,
            Outcome::Endpoints(list) => {
                self.told = None;
                self.given = Some(list.clone());
                limited_log!(
                    target: "farcall::path",
                    self.log, INFO, "the control plane has told servers",
                    target = %self.name, servers = list.len()
                );
                Some(Ok(list))
            }
            Outcome::None(reason) => self.error(reason),
            Outcome::Awaited(what) if self.patience == Patience::Over => {
                let seconds = MISSING_AFTER.as_secs();
                let what = what.join(", ");
                self.error(format!("{what} has not come in {seconds} s, and does not exist"))
            }
            Outcome::Awaited(_) => None,
        }
    }

    /// An error that was not told yet.
    fn error(&mut self, reason: String) -> Option<Result<Vec<Endpoint>, ResolveError>> {
        if self.told.as_ref() == Some(&reason) {
            return None;
        }
        self.given = None;
        let error = ResolveError::new(format!("{}: {reason}", self.name));
        self.told = Some(reason);
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
                // The control plane has nothing newer than what it has told.
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
