//! The task of a channel with many endpoints: it asks the resolver, keeps the endpoints connected,
//! and ends the intervals of the outlier detection.
//!
//! ```text
//!   Idle ──wanted──> Connecting ──> Ready ──the connection has gone──> Idle
//!    ^                   │
//!    └──delay is over── TransientFailure
//! ```
//!
//! The driver outlives its task. When the runtime of the task ends, the driver is parked in
//! [`Shared`], from where the next caller takes it to a task on its own runtime.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::resolve::Resolve;
use super::shared::{Shared, now};
use crate::balance::{Connectivity, Endpoint, EndpointId};
use crate::limited_log;
use crate::limits::log::LogLimit;
use crate::policy::backoff::Delays;

/// Handshakes of one channel at a time, while they are young. A list of a thousand servers would
/// otherwise begin with a thousand sockets and, over RDMA, as many queue pairs in the making.
const MAX_HANDSHAKES: usize = 32;

/// Time after which an attempt does not count among the handshakes any more. A few servers that
/// answer nothing would otherwise hold up all others until their handshakes time out.
const YOUNG_HANDSHAKE: Duration = Duration::from_millis(250);

/// Attempts that may begin at once.
const ATTEMPTS_BURST: u32 = 128;

/// Time between two attempts beyond the burst: 100 a second. A resolver that tells thousands of
/// endpoints, or others each time, would otherwise have the channel connect without a pause.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(10);

/// The shortest pause between two attempts at one endpoint, whatever its channel says.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// An attempt's effect on the backoff of earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backoff {
    /// It is made when it is due.
    Keep,
    /// It is made at once: the resolver has news.
    Reset,
}

/// The driver's interface to the channel of one endpoint.
pub(super) trait Link: Clone + Send + Sync + 'static {
    /// Connects, unless there is a connection.
    ///
    /// # Errors
    ///
    /// Returns the reason, and the instant at which the next attempt may begin.
    fn connect(
        &self,
        backoff: Backoff,
    ) -> impl Future<Output = Result<(), (String, Instant)>> + Send;

    /// Returns the connectivity: ready or idle. Under health checks also connecting until the
    /// server has reported, and failing while it reports that it does not serve.
    fn state(&self) -> Connectivity;

    /// Ends the connection with its last call in flight.
    fn disconnect(&self);

    /// Sets further addresses of the server for later attempts.
    fn set_alternatives(&self, alternatives: &Arc<[SocketAddr]>);

    /// Waits until [`state`](Self::state) is another than `state`.
    fn left(&self, state: Connectivity) -> impl Future<Output = ()> + Send;
}

/// Makes what the channel keeps for an endpoint.
type Make<L> = Box<dyn Fn(&Endpoint) -> L + Send>;

/// Resolves and connects, in its task or parked.
pub(super) struct Driver<L> {
    resolver: Box<dyn Resolve>,
    make: Make<L>,
    delays: Delays,
    log: LogLimit,
    links: Links<L>,
}

impl<L> fmt::Debug for Driver<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("known", &self.links.known.len()).finish_non_exhaustive()
    }
}

impl<L: Link> Driver<L> {
    /// A driver that has resolved nothing yet.
    pub(super) fn new(
        resolver: Box<dyn Resolve>,
        make: impl Fn(&Endpoint) -> L + Send + 'static,
    ) -> Self {
        let delays = crate::Backoff::default().delays(fastrand::u64(..));
        let (log, links) = (LogLimit::default(), Links::new());
        Self { resolver, make: Box::new(make), delays, log, links }
    }

    /// Runs until it is dropped.
    async fn run(&mut self, shared: &Shared<L>) {
        let Self { resolver, make, delays, log, links } = self;
        let (name, mut pause) = (resolver.name(), Duration::ZERO);
        loop {
            let next = async {
                // Within the future that `run_until` polls: connections are kept while the pause
                // lasts.
                sleep(pause).await;
                resolver.next(&shared.refresh).await
            };
            match links.run_until(shared, next).await {
                Ok(list) => {
                    pause = Duration::ZERO;
                    // After a list, and not after a connection: these are the delays of the
                    // resolver.
                    delays.reset();
                    links.set(shared, list, make);
                }
                Err(error) => {
                    pause = delays.next_delay();
                    limited_log!(
                        target: "farcall::path",
                        log, WARN, "cannot resolve", target = %name, %error, retry_in = ?pause
                    );
                    links.resolve_again_at = Some(now() + pause);
                    shared.change(|state| {
                        state.failure = Some(error.to_string().into());
                        state.retry_at = links.retry_at();
                    });
                }
            }
        }
    }
}

/// Starts the parked driver in a task of the current runtime, unless it runs. False if the runtime
/// has ended and takes no task.
pub(super) fn start<L: Link>(shared: &Arc<Shared<L>>, gone: &CancellationToken) -> bool {
    let parked = shared.take_driver().and_then(|it| it.downcast::<Driver<L>>().ok());
    let Some(driver) = parked.map(|it| *it) else { return true };
    let (shared_of_task, gone_of_task) = (Arc::clone(shared), gone.clone());
    let task = DriverTask { driver: Some(driver), shared: shared_of_task, gone: gone_of_task };
    tokio::spawn(gone.clone().run_until_cancelled_owned(task.run()));
    // A runtime that has ended drops the task at once, and the task parks the driver.
    !shared.is_parked()
}

/// A driver in its task. Whatever ends the task, the driver is parked again, as long as there is a
/// channel.
struct DriverTask<L: Link> {
    driver: Option<Driver<L>>,
    shared: Arc<Shared<L>>,
    /// Set when the channel has gone.
    gone: CancellationToken,
}

impl<L: Link> DriverTask<L> {
    async fn run(mut self) {
        if let Some(driver) = &mut self.driver {
            driver.run(&self.shared).await;
        }
    }
}

impl<L: Link> Drop for DriverTask<L> {
    fn drop(&mut self) {
        let Some(mut driver) = self.driver.take() else { return };
        // The waits belong to the runtime that has ended, timers included.
        driver.links.give_up();
        if self.gone.is_cancelled() {
            return;
        }
        // In one change: a caller that sees the endpoints idle finds the driver. The connections
        // went with the runtime. Calls wait until another runtime has connected.
        self.shared.change(|state| {
            let ids: Vec<_> = state.roster.status().into_iter().map(|it| it.id).collect();
            for id in ids {
                state.roster.set_connectivity(id, Connectivity::Idle, now());
            }
            (state.failure, state.retry_at) = (None, None);
            state.parked = Some(Box::new(driver));
        });
    }
}

/// An event of an endpoint.
enum Event {
    /// An attempt to connect has ended.
    Connected(Result<(), (String, Instant)>),
    /// The connection has gone, or moved to another path.
    Left,
    /// The pause after an attempt that failed is over.
    PauseOver,
}

/// The awaited events, one for each endpoint that is not idle.
struct Links<L> {
    waits: FuturesUnordered<Abortable<BoxFuture<'static, (EndpointId, Event)>>>,
    known: HashMap<EndpointId, Known<L>>,
    /// Time of the next query of the resolver, if it failed.
    resolve_again_at: Option<Instant>,
    /// The last list, sorted by address.
    listed: Vec<Endpoint>,
    handshakes: Arc<Semaphore>,
    pace: Arc<Pace>,
}

/// The pace at which a channel begins its attempts to connect: the instant at which all attempts so
/// far would have begun without a burst. An attempt that is dropped while it waits leaves no trace.
#[derive(Debug)]
struct Pace(Mutex<Instant>);

impl Pace {
    fn new() -> Self {
        Self(Mutex::new(now()))
    }

    /// Waits for the turn of an attempt, in the order of arrival.
    async fn turn(&self) {
        // Held while it sleeps: those behind it queue in the order of their turns.
        let mut paced = self.0.lock().await;
        if let Some(due) = paced.checked_sub(ATTEMPTS_BURST * ATTEMPT_INTERVAL) {
            sleep_until(due.into()).await;
        }
        *paced = (*paced).max(now()) + ATTEMPT_INTERVAL;
    }
}

/// An endpoint of the list.
struct Known<L> {
    link: L,
    /// End of the pause after a failed attempt.
    retry_at: Option<Instant>,
    /// Effect of the next attempt on the backoff.
    backoff: Backoff,
    /// Ends the wait of an endpoint that leaves the list, which would keep its connection.
    wait: Option<AbortHandle>,
}

impl<L> Known<L> {
    fn new(link: L) -> Self {
        Self { link, retry_at: None, backoff: Backoff::Keep, wait: None }
    }

    /// Ends the pause after a failed attempt, and has the next attempt reset the backoff. False if
    /// there is no pause.
    fn end_pause(&mut self) -> bool {
        let is_paused = self.retry_at.take().is_some();
        if is_paused {
            self.wait.take().iter().for_each(AbortHandle::abort);
            self.backoff = Backoff::Reset;
        }
        is_paused
    }
}

impl<L> Drop for Known<L> {
    fn drop(&mut self) {
        self.wait.iter().for_each(AbortHandle::abort);
    }
}

impl<L: Link> Links<L> {
    fn new() -> Self {
        let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
        let (waits, known) = (FuturesUnordered::new(), HashMap::new());
        let (listed, pace) = (Vec::new(), Arc::new(Pace::new()));
        Self { waits, known, resolve_again_at: None, listed, handshakes, pace }
    }

    /// Returns the time of the next attempt to connect or to resolve, if one is scheduled.
    fn retry_at(&self) -> Option<Instant> {
        self.known.values().filter_map(|it| it.retry_at).chain(self.resolve_again_at).min()
    }

    /// Gives up what is waited for. The endpoints stay known.
    fn give_up(&mut self) {
        self.waits.clear();
        self.resolve_again_at = None;
        for known in self.known.values_mut() {
            (known.retry_at, known.wait) = (None, None);
        }
    }

    /// Does what is due until `future` is ready.
    async fn run_until<T>(&mut self, shared: &Shared<L>, future: impl Future<Output = T>) -> T {
        tokio::pin!(future);
        loop {
            // Before the wait: the last event may have made another endpoint wanted.
            self.connect_wanted(shared);
            let deadline = shared.look(|state| state.roster.next_deadline());
            tokio::select! {
                output = &mut future => return output,
                Some(ended) = self.waits.next(), if !self.waits.is_empty() => {
                    // An endpoint that was removed meanwhile has aborted its wait.
                    if let Ok((id, event)) = ended {
                        self.handle(shared, id, event);
                    }
                }
                () = until(deadline) => shared.change(|state| state.roster.handle_timer(now())),
            }
        }
    }

    /// Makes `list` the endpoints.
    fn set(&mut self, shared: &Shared<L>, list: Vec<Endpoint>, make: &Make<L>) {
        let had_failed = self.resolve_again_at.take().is_some();
        let mut sorted = list.clone();
        sorted.sort_unstable_by(|one, other| one.address.cmp(&other.address));
        // Compared sorted: a resolver may return the same list in another order each time.
        let is_news = std::mem::replace(&mut self.listed, sorted) != self.listed || had_failed;
        let is_empty = list.is_empty();
        let known = &mut self.known;
        shared.change(|state| {
            state.roster.set_endpoints(list, now(), |id, endpoint| {
                let link = make(endpoint);
                known.insert(id, Known::new(link.clone()));
                link
            });
            let members = state.roster.status().into_iter().map(|it| (it.id, it.endpoint));
            let listed: HashMap<_, _> = members.collect();
            // Dropping one aborts its wait: what it would report is of no use.
            known.retain(|id, _| listed.contains_key(id));
            for (id, endpoint) in &listed {
                if let Some(known) = known.get(id) {
                    known.link.set_alternatives(&endpoint.alternatives);
                }
            }
            if is_empty {
                state.failure = Some("its list of endpoints is empty".into());
            }
            if is_news {
                for (id, known) in known.iter_mut() {
                    if known.end_pause() {
                        state.roster.set_connectivity(*id, Connectivity::Idle, now());
                    }
                }
            }
        });
        let retry_at = self.retry_at();
        // A second change: the first has borrowed the endpoints that `retry_at` reads.
        shared.change(|state| state.retry_at = retry_at);
    }

    /// Begins the attempts that are wanted.
    fn connect_wanted(&mut self, shared: &Shared<L>) {
        let wanted = shared.look(|state| state.roster.wanted());
        for id in wanted {
            shared.change(|state| {
                state.roster.set_connectivity(id, Connectivity::Connecting, now());
            });
            let Some(known) = self.known.get_mut(&id) else { continue };
            // Once only: a second attempt after the news is an attempt like any other.
            let backoff = std::mem::replace(&mut known.backoff, Backoff::Keep);
            let (link, handshakes) = (known.link.clone(), Arc::clone(&self.handshakes));
            let pace = Arc::clone(&self.pace);
            self.wait(id, async move {
                // The semaphore is never closed, so that a permit comes.
                let permit = handshakes.acquire().await;
                pace.turn().await;
                let mut connecting = pin!(link.connect(backoff));
                // A server that does not answer must not keep the permit of those that would.
                let young = timeout(YOUNG_HANDSHAKE, &mut connecting).await;
                drop(permit);
                Event::Connected(match young {
                    Ok(connected) => connected,
                    Err(_) => connecting.await,
                })
            });
        }
    }

    fn handle(&mut self, shared: &Shared<L>, id: EndpointId, event: Event) {
        let Some(known) = self.known.get_mut(&id) else { return };
        let link = known.link.clone();
        match event {
            // Under pick-first another one may have become ready while this one was being
            // connected.
            Event::Connected(Ok(())) if shared.look(|it| it.roster.is_superfluous(id)) => {
                link.disconnect();
                shared.change(|state| {
                    state.roster.set_connectivity(id, Connectivity::Idle, now());
                });
            }
            Event::Connected(Ok(())) | Event::Left => {
                let connectivity = link.state();
                shared.change(|state| {
                    state.roster.set_connectivity(id, connectivity, now());
                    match connectivity {
                        Connectivity::Idle => {
                            state.failure = Some("the connection has ended".into());
                        }
                        Connectivity::TransientFailure => {
                            state.failure = Some(
                                "the server reports that it is not \
                                                  serving"
                                    .into(),
                            );
                        }
                        Connectivity::Connecting | Connectivity::Ready { .. } => {}
                    }
                });
                if connectivity == Connectivity::Idle {
                    // A server that goes away is perhaps not in the list any more.
                    shared.refresh.ask();
                } else {
                    self.wait(id, async move {
                        link.left(connectivity).await;
                        Event::Left
                    });
                }
            }
            Event::Connected(Err((reason, due))) => {
                // A subchannel that may connect at once would be asked in a loop.
                let due = due.max(now() + MIN_PAUSE);
                known.retry_at = Some(due);
                let retry_at = self.retry_at();
                shared.change(|state| {
                    state.roster.set_connectivity(id, Connectivity::TransientFailure, now());
                    (state.failure, state.retry_at) = (Some(reason.into()), retry_at);
                });
                shared.refresh.ask();
                self.wait(id, async move {
                    sleep_until(due.into()).await;
                    Event::PauseOver
                });
            }
            Event::PauseOver => {
                known.retry_at = None;
                let retry_at = self.retry_at();
                shared.change(|state| {
                    state.roster.set_connectivity(id, Connectivity::Idle, now());
                    state.retry_at = retry_at;
                });
            }
        }
    }

    fn wait(&mut self, id: EndpointId, event: impl Future<Output = Event> + Send + 'static) {
        // Each endpoint has one wait at a time. The handle ends it when the endpoint leaves.
        let (abort, registration) = AbortHandle::new_pair();
        let event = event.map(move |event| (id, event)).boxed();
        self.waits.push(Abortable::new(event, registration));
        if let Some(known) = self.known.get_mut(&id) {
            known.wait = Some(abort);
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
