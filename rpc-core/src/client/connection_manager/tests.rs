//! Callers that wait for an attempt to connect, and the attempt without them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::ConnectionManager;
use crate::client::{
    ClientConfig, Connect, Connection, EncodedCall, EncodedCalls, EncodedReply, Established, Path,
};
use crate::connect::{ConnectError, ConnectFault, ConnectionInfo, UpgradePolicy, Wanted};
use crate::transport::{Addresses, CloseReason, TransportStats};
use crate::{Backoff, BufferSource};

/// Duration of an attempt.
const ATTEMPT: Duration = Duration::from_millis(100);

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(3600);

/// Never connects, and counts how often it has tried, has failed and was given up.
#[derive(Debug, Clone, Default)]
struct Failing {
    config: ClientConfig,
    begun: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    panics: bool,
}

impl Failing {
    fn counts(&self) -> [usize; 2] {
        [&self.begun, &self.failed].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Connect for Failing {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn address(&self) -> Arc<str> {
        "nowhere".into()
    }

    fn connect(&self, _: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        Box::pin(async {
            self.begun.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics, "as it was told");
            tokio::time::sleep(ATTEMPT).await;
            self.failed.fetch_add(1, Ordering::Relaxed);
            let (address, reason) = ("nowhere".into(), "no server is there".into());
            Err(ConnectError::from(ConnectFault::Address { address, reason }))
        })
    }
}

fn manager(connect: &Failing) -> Arc<ConnectionManager> {
    Arc::new(ConnectionManager::new(connect.clone()))
}

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_every_state_and_has_the_channel_connect() {
    use crate::balance::Connectivity::{Connecting, Idle, TransientFailure};

    let connect = Failing::default();
    let manager = manager(&connect);
    assert_eq!((manager.connectivity(), connect.counts()), (Idle, [0, 0]));
    let mut state = Idle;
    for expected in [Connecting, TransientFailure, Idle, Connecting, TransientFailure] {
        state = manager.connectivity_changed(state).await;
        assert_eq!((state, manager.connectivity()), (expected, expected));
    }
    assert_eq!(connect.counts(), [2, 2]);
}

/// Waits until no task of the manager is left.
async fn parked(manager: &ConnectionManager) {
    for _ in 0..100 {
        if manager.is_parked() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("its task goes on");
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_fail_with_one_attempt() {
    let connect = Failing::default();
    let (manager, start) = (manager(&connect), Instant::now());
    let outcomes = join_all((0..20).map(|_| manager.connection())).await;
    assert!(outcomes.iter().all(Result::is_err));
    assert_eq!((start.elapsed(), connect.counts()), (ATTEMPT, [1, 1]));
    let refused = manager.connection().await.unwrap_err();
    assert!(matches!(refused.fault(), ConnectFault::Waiting { .. }), "{refused}");
    assert_eq!(connect.counts(), [1, 1], "no attempt is due");
    tokio::time::sleep_until(Instant::from_std(manager.next_connect())).await;
    manager.connection().await.unwrap_err();
    assert_eq!(connect.counts(), [2, 2], "a later caller has another");
}

#[tokio::test(start_paused = true)]
async fn a_path_keeps_its_last_failure_until_a_success() {
    let manager = manager(&Failing::default());
    assert_eq!(manager.path(), Path::Disconnected { reason: None, retry_in: None });
    let error = manager.connection().await.unwrap_err().to_string();
    let path = manager.path();
    assert_eq!(path.reason(), Some(&*error));
    assert!(path.retry_in().is_some());
    tokio::time::sleep_until(Instant::from_std(manager.next_connect())).await;
    let due = Path::Disconnected { reason: Some(error), retry_in: None };
    assert_eq!(manager.path(), due);
}

/// Otherwise a server that is further away than deadlines are long is never reached.
#[tokio::test(start_paused = true)]
async fn an_attempt_outlives_the_call_that_asked_for_it() {
    let no_delay = Backoff { max_delay: Duration::ZERO, ..Backoff::default() };
    let config = ClientConfig::with_settings(|it| it.connect_backoff = no_delay);
    let connect = Failing { config, ..Failing::default() };
    let manager = manager(&connect);
    for _ in 0..8 {
        // At the first of each two it ends too late.
        let _ = tokio::time::timeout(ATTEMPT * 3 / 4, manager.connection()).await;
    }
    let [begun, failed] = connect.counts();
    assert!(begun == 4 && failed >= 3, "{begun} begun, {failed} of them came to their end");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_with_its_channel() {
    let connect = Failing::default();
    let manager = manager(&connect);
    tokio::time::timeout(ATTEMPT / 2, manager.connection()).await.unwrap_err();
    drop(manager);
    tokio::time::sleep(2 * ATTEMPT).await;
    assert_eq!(connect.counts(), [1, 0]);
    assert_eq!(Arc::strong_count(&connect.begun), 1, "nothing is left of it");
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_attempt() {
    let connect = Failing { panics: true, ..Failing::default() };
    let manager = manager(&connect);
    for _ in 0..2 {
        let error = manager.connection().await.unwrap_err();
        assert!(matches!(error.fault(), ConnectFault::Panicked), "{error}");
        let refused = manager.connection().await.unwrap_err();
        assert!(matches!(refused.fault(), ConnectFault::Waiting { .. }), "{refused}");
        tokio::time::sleep_until(Instant::from_std(manager.next_connect())).await;
    }
    assert_eq!(connect.counts(), [2, 0]);
    parked(&manager).await;
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// A runtime with an attempt under way, which no caller waits for any more.
fn connecting(manager: &ConnectionManager) -> Runtime {
    let runtime = runtime();
    runtime.block_on(async {
        tokio::time::timeout(ATTEMPT / 10, manager.connection()).await.unwrap_err();
    });
    runtime
}

/// A channel may be used on several runtimes, of which one ends while it connects there.
#[test]
fn an_attempt_whose_runtime_ends_is_made_on_another() {
    let connect = Failing::default();
    let manager = manager(&connect);
    drop(connecting(&manager));
    runtime().block_on(manager.connection()).unwrap_err();
    assert_eq!(connect.counts(), [2, 1]);
}

/// The end of the other runtime is no answer for a caller that has asked just before it.
#[test]
fn a_request_that_a_runtimes_end_overtakes_is_made_again() {
    let connect = Failing::default();
    let manager = manager(&connect);
    let (first, second) = (connecting(&manager), runtime());
    let number = manager.request();
    drop(first);
    assert!(!manager.drive(number, second.handle()).is_driven_here);
    second.block_on(manager.connection()).unwrap_err();
    assert_eq!(connect.counts(), [2, 1]);
}

/// A connection that a test ends.
#[derive(Debug)]
struct Scripted {
    is_upgraded: bool,
    /// True while calls are started. Cleared first, as by GOAWAY.
    is_open: AtomicBool,
    is_retired: AtomicBool,
    ended: CancellationToken,
    reason: Mutex<Option<CloseReason>>,
}

impl Scripted {
    fn new(is_upgraded: bool) -> Arc<Self> {
        Arc::new(Self {
            is_upgraded,
            is_open: true.into(),
            is_retired: false.into(),
            ended: CancellationToken::new(),
            reason: Mutex::default(),
        })
    }

    fn drain(&self) {
        self.is_open.store(false, Ordering::Relaxed);
    }

    fn end(&self, reason: CloseReason) {
        self.drain();
        self.reason.lock().get_or_insert(reason);
        self.ended.cancel();
    }

    fn cut(&self) {
        self.end(CloseReason::Failed("cut".into()));
    }
}

impl EncodedCalls for Scripted {
    fn call(self: Arc<Self>, _: EncodedCall) -> BoxFuture<'static, Result<EncodedReply, Status>> {
        Box::pin(async { Err(Status::unimplemented("no calls are made")) })
    }
}

impl Connection for Scripted {
    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    fn closed(&self) -> Option<CloseReason> {
        self.reason.lock().clone()
    }

    fn answered_count(&self) -> u64 {
        1
    }

    fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
        self.drain();
    }

    fn close(&self) {
        self.end(CloseReason::Local);
    }

    fn buffers(&self) -> Option<Arc<dyn BufferSource>> {
        None
    }

    fn info(&self) -> ConnectionInfo {
        ConnectionInfo {
            transport: if self.is_upgraded { "fast" } else { "slow" },
            addresses: Addresses::default(),
            is_upgraded: self.is_upgraded,
            wanted_upgrade: false,
            fallback: None,
            fallback_can_pass: false,
            is_without_device: false,
            accepts_compressed: false,
            sends_compressed: false,
            calls_in_flight: 0,
            path: None,
            stats: TransportStats::default(),
        }
    }
}

/// Makes scripted connections: over the upgraded path at once the first time, and later only when
/// it is allowed to, over the path below at once.
#[derive(Debug, Clone, Default)]
struct Script {
    config: ClientConfig,
    made: Arc<Mutex<Vec<Arc<Scripted>>>>,
    upgrade: Arc<tokio::sync::Notify>,
    /// Paths wanted so far, and the number of attempts that have not ended.
    wanted: Arc<watch::Sender<Vec<Wanted>>>,
    under_way: Arc<()>,
}

impl Script {
    fn new() -> Self {
        let config =
            ClientConfig { policy: UpgradePolicy::Prefer(Vec::new()), ..ClientConfig::default() };
        Self { config, ..Self::default() }
    }

    fn last(&self) -> Arc<Scripted> {
        Arc::clone(self.made.lock().last().expect("a connection was made"))
    }

    fn made_count(&self) -> usize {
        self.made.lock().len()
    }

    fn wanted(&self) -> Vec<Wanted> {
        self.wanted.borrow().clone()
    }

    /// Waits until the attempt at the upgraded path with this number is under way.
    async fn failing_back(&self, number: usize) {
        let mut wanted = self.wanted.subscribe();
        let is_under_way = |wanted: &Vec<Wanted>| {
            wanted.iter().filter(|it| **it == Wanted::Upgraded).count() == number
        };
        let waited = tokio::time::timeout(LONG, wanted.wait_for(is_under_way)).await;
        waited.expect("failback begins").expect("it lives");
    }
}

impl Connect for Script {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn address(&self) -> Arc<str> {
        "nowhere".into()
    }

    fn connect(&self, wanted: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        Box::pin(async move {
            let _under_way = Arc::clone(&self.under_way);
            self.wanted.send_modify(|it| it.push(wanted.clone()));
            if wanted == Wanted::Upgraded {
                self.upgrade.notified().await;
            }
            let connection = Scripted::new(!matches!(wanted, Wanted::Bootstrap(_)));
            self.made.lock().push(Arc::clone(&connection));
            Ok(Established::Encoded(connection))
        })
    }
}

/// A channel whose upgraded path has died, with a connection below.
async fn failed_over() -> (Script, ConnectionManager) {
    let script = Script::new();
    let manager = ConnectionManager::new(script.clone());
    assert!(manager.connection().await.unwrap().info().is_upgraded);
    assert_eq!(manager.path(), Path::Upgraded { transport: "fast" });
    script.last().cut();
    assert!(!manager.connection().await.unwrap().info().is_upgraded);
    assert!(matches!(manager.path(), Path::Broken { transport: Some("slow"), .. }));
    (script, manager)
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ended_is_dropped_without_a_call() {
    let script = Script::new();
    let manager = ConnectionManager::new(script.clone());
    drop(manager.connection().await.unwrap());
    let connection = script.last();
    script.made.lock().clear();
    connection.end(CloseReason::Peer);
    parked(&manager).await;
    assert_eq!(Arc::strong_count(&connection), 1);
    assert!(matches!(manager.path(), Path::Disconnected { .. }));
}

#[tokio::test(start_paused = true)]
async fn failback_replaces_the_connection_which_drains() {
    let (script, manager) = failed_over().await;
    let below = script.last();
    let connected = manager.connected();
    script.failing_back(1).await;
    assert!(!manager.open().unwrap().info().is_upgraded, "calls go on");
    script.upgrade.notify_one();
    tokio::time::timeout(LONG, connected).await.expect("it is back");
    assert!(manager.open().unwrap().info().is_upgraded);
    assert_eq!(manager.path(), Path::Upgraded { transport: "fast" });
    assert!(below.is_retired.load(Ordering::Relaxed) && !below.ended.is_cancelled());
    let counts = manager.path_counts();
    assert_eq!((counts.failovers, counts.failbacks), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_caller_replaces_failback_after_a_lost_connection() {
    let (script, manager) = failed_over().await;
    script.failing_back(1).await;
    script.last().drain();
    assert!(!manager.connection().await.unwrap().info().is_upgraded);
    assert_eq!(script.made_count(), 3);
    // It is still due, and begins anew.
    script.failing_back(2).await;
    let wanted = script.wanted();
    let [Wanted::Best, Wanted::Bootstrap(_), Wanted::Upgraded] = &wanted[..3] else {
        panic!("{wanted:?}")
    };
    assert_eq!(wanted[1..3], wanted[3..]);
}

#[tokio::test(start_paused = true)]
async fn failback_ends_with_the_channel_and_so_do_its_connections() {
    let (script, manager) = failed_over().await;
    script.failing_back(1).await;
    drop(manager);
    assert!(script.last().ended.is_cancelled(), "the current one is closed at once");
    script.upgrade.notify_one();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(script.made_count(), 2, "the attempt was given up");
    assert_eq!(Arc::strong_count(&script.under_way), 1, "nothing is left of it");
}

/// Each caller that gave up would otherwise leave something behind.
#[tokio::test(start_paused = true)]
async fn callers_that_give_up_leave_nothing_and_no_attempt_follows() {
    let connect = Failing::default();
    let manager = manager(&connect);
    for _ in 0..1000 {
        let caller = manager.connection();
        tokio::time::timeout(Duration::ZERO, caller).await.unwrap_err();
    }
    parked_within(&manager, 2 * ATTEMPT).await;
    assert_eq!(connect.counts(), [1, 1]);
}

async fn parked_within(manager: &ConnectionManager, limit: Duration) {
    tokio::time::sleep(limit).await;
    parked(manager).await;
}
