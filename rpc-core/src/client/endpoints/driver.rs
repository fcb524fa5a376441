//! The task of a channel with many endpoints: it asks the resolver, keeps the endpoints connected,
//! and ends the intervals of the outlier detection.
//!
//! ```text
//!   Idle ──wanted──> Connecting ──> Ready ──the connection has gone──> Idle
//!    ^                   │
//!    └──delay is over── TransientFailure
//! ```

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{sleep, sleep_until, timeout};

use super::resolve::Resolve;
use super::shared::{Shared, now};
use crate::balance::{Connectivity, Endpoint, EndpointId};
use crate::limited_log;
use crate::limits::log::LogLimit;
use crate::policy::reconnect::ConnectBackoff;

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

/// What the driver needs of the channel to one endpoint.
pub(super) trait Link: Clone + Send + Sync + 'static {
    /// Connects, unless there is a connection.
    ///
    /// # Errors
    ///
    /// With the reason, and the instant at which the next attempt may begin.
    fn connect(&self) -> impl Future<Output = Result<(), (String, Instant)>> + Send;

    /// Where the connection stands: ready or idle; and under health checks connecting until the
    /// server has said something, and failing while it says that it does not serve.
    fn state(&self) -> Connectivity;

    /// Ends the connection with its last call in flight.
    fn disconnect(&self);

    /// Sets further addresses of the server for later attempts.
    fn set_alternatives(&self, alternatives: &Arc<[SocketAddr]>);

    /// Waits until [`state`](Self::state) is another than `state`.
    fn left(&self, state: Connectivity) -> impl Future<Output = ()> + Send;
}

/// Runs until it is dropped.
pub(super) async fn drive<L: Link>(
    shared: Arc<Shared<L>>,
    mut resolver: Box<dyn Resolve>,
    make: impl Fn(&Endpoint) -> L + Send + 'static,
) {
    let _ending = Ending(Arc::clone(&shared));
    let name = resolver.name();
    let mut delays = ConnectBackoff::new().delays(fastrand::u64(..));
    let (mut pause, log) = (Duration::ZERO, LogLimit::default());
    let mut links = Links::new();
    loop {
        let listed = {
            let (refresh, resolver) = (&shared.refresh, &mut resolver);
            let next = async {
                sleep(pause).await;
                resolver.next(refresh).await
            };
            links.run_until(&shared, next).await
        };
        match listed {
            Ok(list) => {
                pause = Duration::ZERO;
                delays.reset();
                links.set(&shared, list, &make);
            }
            Err(error) => {
                pause = delays.next_delay();
                limited_log!(
                    target: "farcall::path",
                    log, WARN, "cannot resolve", target = %name, %error, retry_in = ?pause
                );
                shared.change(|state| state.failure = Some(error.to_string().into()));
            }
        }
    }
}

/// Lets calls fail once nothing connects endpoints any more: the runtime in which the channel was
/// first used has ended. They would wait for an attempt that no task makes.
struct Ending<L: Link>(Arc<Shared<L>>);

impl<L: Link> Drop for Ending<L> {
    fn drop(&mut self) {
        self.0.change(|state| {
            let ids: Vec<_> = state.roster.status().into_iter().map(|it| it.id).collect();
            for id in ids {
                state.roster.set_connectivity(id, Connectivity::TransientFailure, now());
            }
            let reason = "the runtime in which the channel was first used has ended";
            state.failure = Some(reason.into());
        });
    }
}

/// What has happened to an endpoint.
enum Event {
    /// An attempt to connect has ended.
    Connected(Result<(), (String, Instant)>),
    /// The connection has gone, or moved to another path.
    Left,
    /// The pause after an attempt that failed is over.
    PauseOver,
}

/// What is waited for, one thing for each endpoint that is not idle.
struct Links<L> {
    waits: FuturesUnordered<Abortable<BoxFuture<'static, (EndpointId, Event)>>>,
    known: HashMap<EndpointId, Known<L>>,
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
    /// Ends the wait of an endpoint that leaves the list, which would keep its connection.
    wait: Option<AbortHandle>,
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
        Self { waits, known, handshakes, pace: Arc::new(Pace::new()) }
    }

    /// Does what is due until `future` is ready.
    async fn run_until<T>(&mut self, shared: &Shared<L>, future: impl Future<Output = T>) -> T {
        tokio::pin!(future);
        loop {
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
    fn set(&mut self, shared: &Shared<L>, list: Vec<Endpoint>, make: &impl Fn(&Endpoint) -> L) {
        let known = &mut self.known;
        let is_empty = list.is_empty();
        shared.change(|state| {
            state.roster.set_endpoints(list, now(), |id, endpoint| {
                let link = make(endpoint);
                known.insert(id, Known { link: link.clone(), wait: None });
                link
            });
            let members = state.roster.status().into_iter().map(|it| (it.id, it.endpoint));
            let listed: HashMap<_, _> = members.collect();
            known.retain(|id, _| listed.contains_key(id));
            for (id, endpoint) in &listed {
                if let Some(known) = known.get(id) {
                    known.link.set_alternatives(&endpoint.alternatives);
                }
            }
            if is_empty {
                state.failure = Some("its list of endpoints is empty".into());
            }
        });
    }

    /// Begins the attempts that are wanted.
    fn connect_wanted(&mut self, shared: &Shared<L>) {
        let wanted = shared.look(|state| state.roster.wanted());
        for id in wanted {
            shared.change(|state| {
                state.roster.set_connectivity(id, Connectivity::Connecting, now());
            });
            let Some(known) = self.known.get(&id) else { continue };
            let (link, handshakes) = (known.link.clone(), Arc::clone(&self.handshakes));
            let pace = Arc::clone(&self.pace);
            self.wait(id, async move {
                // The semaphore is never closed, so that a permit comes.
                let permit = handshakes.acquire().await;
                pace.turn().await;
                let mut connecting = pin!(link.connect());
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
        let Some(known) = self.known.get(&id) else { return };
        let link = known.link.clone();
        match event {
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
                            state.failure = Some("the server says that it does not serve".into());
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
                shared.change(|state| {
                    state.roster.set_connectivity(id, Connectivity::TransientFailure, now());
                    state.failure = Some(reason.into());
                });
                shared.refresh.ask();
                let due = due.max(now() + MIN_PAUSE);
                self.wait(id, async move {
                    sleep_until(due.into()).await;
                    Event::PauseOver
                });
            }
            Event::PauseOver => shared.change(|state| {
                state.roster.set_connectivity(id, Connectivity::Idle, now());
            }),
        }
    }

    fn wait(&mut self, id: EndpointId, event: impl Future<Output = Event> + Send + 'static) {
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
