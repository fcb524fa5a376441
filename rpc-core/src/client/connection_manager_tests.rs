//! Who waits for an attempt to connect, and what becomes of it without them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;

use super::*;
use crate::ConnectBackoff;
use crate::connect::ClientConfig;

/// How long an attempt takes.
const ATTEMPT: Duration = Duration::from_millis(100);

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

    fn connect(&self, _: Wanted) -> BoxFuture<'_, Result<Arc<dyn Connection>, ConnectError>> {
        Box::pin(async {
            self.begun.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics, "as it was told");
            tokio::time::sleep(ATTEMPT).await;
            self.failed.fetch_add(1, Ordering::Relaxed);
            let (address, reason) = ("nowhere".into(), "no server is there".into());
            Err(ConnectError::Address { address, reason })
        })
    }
}

fn manager(connect: &Failing) -> Arc<ConnectionManager> {
    Arc::new(ConnectionManager::new(connect.clone()))
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_fail_with_one_attempt() {
    let connect = Failing::default();
    let (manager, start) = (manager(&connect), Instant::now());
    let outcomes = join_all((0..20).map(|_| manager.connection())).await;
    assert!(outcomes.iter().all(Result::is_err));
    assert_eq!((start.elapsed(), connect.counts()), (ATTEMPT, [1, 1]));
    let refused = manager.connection().await.unwrap_err();
    assert!(matches!(*refused, ConnectError::Waiting { .. }), "{refused}");
    assert_eq!(connect.counts(), [1, 1], "no attempt is due");
    tokio::time::sleep_until(Instant::from_std(manager.next_connect())).await;
    manager.connection().await.unwrap_err();
    assert_eq!(connect.counts(), [2, 2], "a later caller has another");
}

#[tokio::test(start_paused = true)]
async fn a_path_says_why_the_last_attempt_failed_until_another_succeeds() {
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
    let no_delay = ConnectBackoff { max_delay: Duration::ZERO, ..ConnectBackoff::default() };
    let config = ClientConfig { connect_backoff: no_delay, ..ClientConfig::default() };
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
        assert!(matches!(*error, ConnectError::Panicked), "{error}");
        let refused = manager.connection().await.unwrap_err();
        assert!(matches!(*refused, ConnectError::Waiting { .. }), "{refused}");
        tokio::time::sleep_until(Instant::from_std(manager.next_connect())).await;
    }
    assert_eq!(connect.counts(), [2, 0]);
    assert!(lock(&manager.attempt).is_none(), "nothing is left of it");
}

/// A channel may be used on several runtimes, of which one ends while it connects there.
#[test]
fn an_attempt_whose_runtime_ends_is_made_on_another() {
    let connect = Failing::default();
    let manager = manager(&connect);
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let first = runtime();
    first.block_on(async {
        tokio::time::timeout(ATTEMPT / 10, manager.connection()).await.unwrap_err();
    });
    drop(first);
    runtime().block_on(manager.connection()).unwrap_err();
    assert_eq!(connect.counts(), [2, 1]);
}
