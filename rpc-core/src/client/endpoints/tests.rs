//! The driver of a channel with many endpoints, with links whose servers come and go by order.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::driver::{Backoff, Driver, Link, start};
use super::resolve::{Refresh, Resolve, ResolveError};
use super::shared::{Counted, Shared, now};
use crate::balance::{
    BalanceConfig, Connectivity, Endpoint, OutlierDetection, Pick, Policy, Roster,
};

const READY: Connectivity = Connectivity::Ready { is_upgraded: false };

/// Pause of a link after a failed attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// The servers of a test: which of them are up.
#[derive(Clone, Default)]
struct Servers {
    up: Arc<Mutex<HashMap<String, watch::Sender<bool>>>>,
    attempts: Arc<AtomicUsize>,
    handshakes: Arc<AtomicUsize>,
    most_handshakes: Arc<AtomicUsize>,
    disconnects: Arc<AtomicUsize>,
    /// Servers that answer nothing until they leave this set.
    silent: Arc<watch::Sender<HashSet<String>>>,
}

impl Servers {
    fn server(&self, name: &str) -> watch::Sender<bool> {
        let mut up = self.up.lock();
        up.entry(name.to_owned()).or_insert_with(|| watch::Sender::new(true)).clone()
    }

    fn set_up(&self, name: &str, is_up: bool) {
        self.server(name).send_replace(is_up);
    }

    fn set_silent(&self, names: &[&str]) {
        self.silent.send_replace(names.iter().map(|&name| name.to_owned()).collect());
    }

    fn link(&self, endpoint: &Endpoint) -> FakeLink {
        let (up, name) = (self.server(&endpoint.address), endpoint.address.to_string());
        let (alive, alternatives) = (Arc::new(()), Arc::default());
        FakeLink { up, name, servers: self.clone(), alive, alternatives }
    }
}

#[derive(Clone)]
struct FakeLink {
    up: watch::Sender<bool>,
    name: String,
    servers: Servers,
    /// Counts who holds the link.
    alive: Arc<()>,
    alternatives: Arc<Mutex<Arc<[SocketAddr]>>>,
}

impl Link for FakeLink {
    async fn connect(&self, _: Backoff) -> Result<(), (String, Instant)> {
        self.servers.attempts.fetch_add(1, Ordering::Relaxed);
        let running = self.servers.handshakes.fetch_add(1, Ordering::Relaxed) + 1;
        self.servers.most_handshakes.fetch_max(running, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut silent = self.servers.silent.subscribe();
        let _ = silent.wait_for(|silent| !silent.contains(&self.name)).await;
        self.servers.handshakes.fetch_sub(1, Ordering::Relaxed);
        let is_up = *self.up.borrow();
        if is_up { Ok(()) } else { Err(("it is down".to_owned(), now() + PAUSE)) }
    }

    fn state(&self) -> Connectivity {
        if *self.up.borrow() { READY } else { Connectivity::Idle }
    }

    fn disconnect(&self) {
        self.servers.disconnects.fetch_add(1, Ordering::Relaxed);
    }

    fn set_alternatives(&self, alternatives: &Arc<[SocketAddr]>) {
        *self.alternatives.lock() = Arc::clone(alternatives);
    }

    async fn left(&self, state: Connectivity) {
        let mut changes = self.up.subscribe();
        let ready = state == READY;
        let _ = changes.wait_for(|&is_up| is_up != ready).await;
    }
}

/// Lists by order, and how often the channel asked for a new one.
struct Lists {
    lists: watch::Receiver<Result<Vec<Endpoint>, &'static str>>,
    requests: Arc<AtomicUsize>,
    is_first: bool,
}

impl Resolve for Lists {
    fn name(&self) -> String {
        "the list of a test".to_owned()
    }

    fn next<'a>(
        &'a mut self,
        refresh: &'a Refresh,
    ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>> {
        async {
            if !std::mem::take(&mut self.is_first) {
                tokio::select! {
                    Ok(()) = self.lists.changed() => {}
                    () = refresh.requested() => {
                        self.requests.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            self.lists.borrow_and_update().clone().map_err(ResolveError::new)
        }
        .boxed()
    }
}

struct World {
    servers: Servers,
    shared: Arc<Shared<FakeLink>>,
    lists: watch::Sender<Result<Vec<Endpoint>, &'static str>>,
    requests: Arc<AtomicUsize>,
    _gone: DropGuard,
}

fn list(names: &[&str]) -> Result<Vec<Endpoint>, &'static str> {
    Ok(names.iter().map(|&name| Endpoint::new(name)).collect())
}

fn world(names: &[&str], config: BalanceConfig) -> World {
    let (servers, requests) = (Servers::default(), Arc::new(AtomicUsize::new(0)));
    let lists = watch::Sender::new(list(names));
    let resolver =
        Lists { lists: lists.subscribe(), requests: Arc::clone(&requests), is_first: true };
    let making = servers.clone();
    let driver = Driver::new(Box::new(resolver), move |it: &Endpoint| making.link(it));
    let shared = Arc::new(Shared::new(Roster::new(config, 7, now()), Box::new(driver)));
    let gone = CancellationToken::new();
    assert!(start(&shared, &gone), "the runtime takes its task");
    World { servers, shared, lists, requests, _gone: gone.drop_guard() }
}

impl World {
    /// The states in the order of the list, once everything that is due has been done.
    async fn states(&self) -> Vec<Connectivity> {
        for _ in 0..100 {
            yield_now().await;
        }
        self.shared.status().iter().map(|it| it.connectivity).collect()
    }

    async fn pass(&self, time: Duration) -> Vec<Connectivity> {
        tokio::time::sleep(time).await;
        self.states().await
    }

    /// The address of an endpoint that is picked.
    fn picked(&self) -> Option<Arc<str>> {
        let id = match self.shared.picker().pick(fastrand::u64(..), None, &[], now()) {
            Pick::Endpoint { candidate, .. } => candidate.id,
            Pick::Wait | Pick::Fail => return None,
        };
        let status = self.shared.status().into_iter().find(|it| it.id == id);
        status.map(|it| it.endpoint.address)
    }
}

#[tokio::test(start_paused = true)]
async fn endpoints_are_connected_and_again_after_they_were_down() {
    let world = world(&["a", "b"], BalanceConfig::default());
    assert_eq!(world.pass(Duration::from_millis(20)).await, [READY, READY]);
    world.servers.set_up("b", false);
    assert_eq!(world.states().await[0], READY);
    let after = world.pass(Duration::from_millis(20)).await;
    assert_eq!(after, [READY, Connectivity::TransientFailure]);
    assert!((0..100).all(|_| world.picked().as_deref() == Some("a")));
    assert!(world.requests.load(Ordering::Relaxed) > 0, "the channel asks for another list");
    world.servers.set_up("b", true);
    assert_eq!(world.pass(PAUSE * 2).await, [READY, READY]);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_leaves_the_list_is_let_go_and_others_stay() {
    let world = world(&["a", "b"], BalanceConfig::default());
    world.pass(Duration::from_millis(20)).await;
    let held = match world.shared.picker().pick(0, None, &[], now()) {
        Pick::Endpoint { candidate, .. } => candidate.handle.alive.clone(),
        _ => panic!("both are connected"),
    };
    let _ = world.lists.send_replace(list(&["c"]));
    assert_eq!(world.pass(Duration::from_millis(20)).await, [READY]);
    assert_eq!(Arc::strong_count(&held), 1, "nothing keeps its connection");
    assert_eq!(world.picked().as_deref(), Some("c"));
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_fails_leaves_the_last_list() {
    let world = world(&["a"], BalanceConfig::default());
    world.pass(Duration::from_millis(20)).await;
    let _ = world.lists.send_replace(Err("no name server answers"));
    world.states().await;
    assert_eq!(world.shared.failure().as_deref(), Some("no name server answers"));
    assert_eq!(world.picked().as_deref(), Some("a"));
    let _ = world.lists.send_replace(list(&["a", "b"]));
    assert_eq!(world.pass(Duration::from_secs(3)).await, [READY, READY]);
}

#[tokio::test(start_paused = true)]
async fn pick_first_connects_to_one_and_to_the_next_when_that_is_down() {
    let config = BalanceConfig::default().with_policy(Policy::PickFirst);
    let world = world(&["a", "b", "c"], config);
    let idle = Connectivity::Idle;
    assert_eq!(world.pass(Duration::from_millis(20)).await, [READY, idle, idle]);
    world.servers.set_up("a", false);
    let after = world.pass(Duration::from_millis(30)).await;
    assert_eq!(after, [Connectivity::TransientFailure, READY, idle]);
}

#[tokio::test(start_paused = true)]
async fn pick_first_tries_the_next_beside_a_silent_one() {
    let config = BalanceConfig::default().with_policy(Policy::PickFirst);
    let world = world(&["a", "b", "c", "d"], config);
    world.servers.set_silent(&["a", "b"]);
    let (connecting, idle) = (Connectivity::Connecting, Connectivity::Idle);
    assert_eq!(world.pass(Duration::from_millis(240)).await, [connecting, idle, idle, idle]);
    let after = world.pass(Duration::from_millis(300)).await;
    assert_eq!(after, [connecting, connecting, READY, idle]);
    assert_eq!(world.picked().as_deref(), Some("c"));
    // Those that answer late are not used.
    world.servers.set_silent(&[]);
    assert_eq!(world.pass(Duration::from_secs(60)).await, [idle, idle, READY, idle]);
    assert_eq!(world.servers.disconnects.load(Ordering::Relaxed), 2);
    assert_eq!(world.servers.attempts.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn silent_servers_do_not_hold_up_a_long_list() {
    let names: Vec<String> = (0..100).map(|number| format!("server-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = world(&[], BalanceConfig::default());
    world.servers.set_silent(&names[..40]);
    let _ = world.lists.send_replace(list(&names));
    let states = world.pass(Duration::from_secs(1)).await;
    assert_eq!(states.iter().filter(|state| **state == READY).count(), 60);
}

#[tokio::test(start_paused = true)]
async fn changed_alternatives_keep_a_servers_connection() {
    let world = world(&["a"], BalanceConfig::default());
    world.pass(Duration::from_millis(20)).await;
    let alternatives = [SocketAddr::from(([127, 0, 0, 1], 7))];
    let _ = world.lists.send_replace(Ok(vec![Endpoint::new("a").with_alternatives(alternatives)]));
    assert_eq!(world.states().await, [READY]);
    let picker = world.shared.picker();
    let Pick::Endpoint { candidate, .. } = picker.pick(0, None, &[], now()) else {
        panic!("it is connected")
    };
    assert_eq!(**candidate.handle.alternatives.lock(), alternatives);
    assert_eq!(world.servers.attempts.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_connected_a_few_at_a_time() {
    let names: Vec<String> = (0..100).map(|number| format!("server-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = world(&names, BalanceConfig::default());
    let states = world.pass(Duration::from_secs(1)).await;
    assert!(states.iter().all(|state| *state == READY));
    assert_eq!(world.servers.most_handshakes.load(Ordering::Relaxed), 32);
}

/// The attempts at endpoints that a resolver tells, all of which are down.
async fn attempts(lists: impl Iterator<Item = Vec<String>>, pause: Duration) -> usize {
    let world = world(&[], BalanceConfig::default());
    for names in lists {
        names.iter().for_each(|name| world.servers.set_up(name, false));
        let _ = world.lists.send_replace(Ok(names.iter().map(|it| Endpoint::new(&**it)).collect()));
        world.pass(pause).await;
    }
    world.servers.attempts.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn attempts_at_many_endpoints_are_paced() {
    let list = |of: usize| (0..400).map(|number| format!("{of}-{number}")).collect::<Vec<_>>();
    let same = attempts([list(0)].into_iter(), Duration::from_secs(2)).await;
    let others = attempts((0..4).map(list), Duration::from_millis(500)).await;
    println!("attempts in 2 s: {same} of one list, {others} of four lists");
    // A burst of 128, then 100 a second, and one for the end of the last second.
    for attempts in [same, others] {
        assert!((300..=128 + 200 + 4).contains(&attempts), "{attempts} attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_fails_its_calls_is_ejected_and_comes_back() {
    let rules = OutlierDetection::default().with_consecutive_failures(3);
    // By load a failing endpoint gets so few calls that it takes long to eject it.
    let config =
        BalanceConfig::default().with_outlier_detection(rules).with_policy(Policy::RoundRobin);
    let world = world(&["a", "b"], config);
    world.pass(Duration::from_millis(20)).await;
    for _ in 0..200 {
        let picker = world.shared.picker();
        let Pick::Endpoint { candidate, .. } = picker.pick(fastrand::u64(..), None, &[], now())
        else {
            panic!("one of them is connected")
        };
        let mut call = Counted::new(&world.shared, candidate, now());
        match *candidate.handle.up.subscribe().borrow() {
            true if candidate.handle.up.same_channel(&world.servers.server("a")) => call.failed(),
            _ => call.answered(now()),
        }
    }
    let ejected: Vec<_> = world.shared.status().iter().map(|it| it.ejected_until).collect();
    assert!(matches!(ejected[..], [Some(_), None]), "{ejected:?}");
    assert!((0..100).all(|_| world.picked().as_deref() == Some("b")));
    world.pass(rules.base_ejection_time + 2 * rules.interval).await;
    assert!(world.shared.status().iter().all(|it| it.ejected_until.is_none()));
    assert!(world.shared.status().iter().all(|it| it.in_flight == 0));
}

#[test]
fn a_driver_whose_runtime_ends_goes_on_in_the_next_one() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let world = first.block_on(async { world(&["a", "b"], BalanceConfig::default()) });
    assert_eq!(first.block_on(world.pass(Duration::from_millis(20))), [READY, READY]);
    drop(first);
    let states = second.block_on(world.states());
    assert_eq!(states, [Connectivity::Idle; 2], "calls wait, and find the driver");
    assert!(world.shared.is_parked() && world.shared.failure().is_none());
    second.block_on(async {
        assert!(start(&world.shared, &CancellationToken::new()));
        assert_eq!(world.pass(Duration::from_millis(20)).await, [READY, READY]);
        let _ = world.lists.send_replace(list(&["b", "c"]));
        assert_eq!(world.pass(Duration::from_millis(20)).await, [READY, READY]);
    });
    assert_eq!(world.servers.attempts.load(Ordering::Relaxed), 5, "two, two and one");
}

#[test]
fn a_runtime_that_has_ended_takes_no_driver() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let world = runtime.block_on(async { world(&["a"], BalanceConfig::default()) });
    let handle = runtime.handle().clone();
    drop(runtime);
    let _inside = handle.enter();
    assert!(!start(&world.shared, &CancellationToken::new()));
    assert!(world.shared.is_parked());
}

#[tokio::test(start_paused = true)]
async fn news_of_the_resolver_ends_the_pauses_of_endpoints() {
    let world = world(&["a"], BalanceConfig::default());
    world.servers.set_up("a", false);
    let _ = world.lists.send_replace(list(&["a"]));
    let failed = Connectivity::TransientFailure;
    assert_eq!(world.pass(Duration::from_millis(20)).await, [failed]);
    let described = world.shared.describe_failure("nothing");
    assert!(described.starts_with("it is down; the channel tries again in 9"), "{described}");
    world.servers.set_up("a", true);
    // The same list is no news.
    let _ = world.lists.send_replace(list(&["a"]));
    assert_eq!(world.pass(Duration::from_millis(20)).await, [failed]);
    let _ = world.lists.send_replace(list(&["a", "b"]));
    assert_eq!(world.pass(Duration::from_millis(20)).await, [READY, READY]);
    assert_eq!(world.shared.look(|state| state.retry_at), None);
}
