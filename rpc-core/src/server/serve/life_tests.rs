//! The time that a connection which is sent away takes for its last answers.

use futures::future::BoxFuture;

use super::*;
use crate::connect::{Candidate, ConnectionInfo, Declined, PendingOffer};
use crate::policy::keepalive::Traffic;
use crate::policy::lifetime::CallCounts;
use crate::policy::progress::Flows;
use crate::transport::{Addresses, TransportStats};

const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// An upgrade that is nothing but a name, and who added it.
#[derive(Debug)]
struct Named(&'static str, &'static str);

impl Upgrade for Named {
    fn name(&self) -> &'static str {
        self.0
    }

    fn offer(&self, _: &Addresses) -> Result<Box<dyn PendingOffer>, Declined> {
        Err(Declined::new(self.1))
    }

    fn accept(&self, _: &Addresses, _: &[u8]) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined> {
        Err(Declined::new(self.1))
    }
}

fn named(name: &'static str, owner: &'static str) -> Arc<dyn Upgrade> {
    Arc::new(Named(name, owner))
}

#[test]
fn upgrade_of_the_server_replaces_the_listeners() {
    let server = [named("rdma", "server")];
    let all = upgrades(&server, &[named("rdma", "listener"), named("other", "")]);
    let names: Vec<_> = all.iter().map(|upgrade| upgrade.name()).collect();
    assert_eq!(names, ["rdma", "other"]);
    let Err(declined) = all[0].offer(&Addresses::default()) else {
        panic!("it declines everything");
    };
    assert!(declined.to_string().contains("server"), "{declined}");
}

/// Answers everything but what it never does, and the last answer takes its time.
#[derive(Debug)]
struct Slow {
    flushed_at: Instant,
    is_stuck: bool,
    closed: CancellationToken,
}

impl ServerConnection for Slow {
    fn start(&self) {}

    fn closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.closed.cancelled())
    }

    fn drained(&self) -> BoxFuture<'_, ()> {
        match self.is_stuck {
            true => Box::pin(std::future::pending()),
            false => Box::pin(std::future::ready(())),
        }
    }

    fn go_away(&self) {}

    fn ping(&self, _: u64) {}

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    fn has_unread(&self) -> bool {
        false
    }

    fn flows(&self) -> Flows {
        Flows::default()
    }

    fn calls(&self) -> CallCounts {
        CallCounts::default()
    }

    fn is_flushed(&self) -> bool {
        Instant::now() >= self.flushed_at
    }

    fn abort(&self, _: CloseReason) {}

    fn close(&self) {
        self.closed.cancel();
    }

    fn info(&self) -> ConnectionInfo {
        ConnectionInfo {
            transport: "slow",
            addresses: Addresses::default(),
            is_upgraded: false,
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

/// Returns the time for which such a connection lives on when its server shuts down.
async fn life_after(shutdown: &LifeRules, flushing: Duration) -> Duration {
    let (start, drain) = (Instant::now(), CancellationToken::new());
    drain.cancel();
    live(&slow(flushing, false), shutdown, &LogLimit::default(), &drain).await;
    start.elapsed()
}

fn slow(flushing: Duration, is_stuck: bool) -> Slow {
    Slow { flushed_at: Instant::now() + flushing, is_stuck, closed: CancellationToken::new() }
}

fn rules(lifetime: LifetimeRules) -> LifeRules {
    LifeRules {
        keepalive: crate::Keepalive::off(),
        progress_timeout: None,
        lifetime,
        drain_timeout: DRAIN_TIMEOUT,
    }
}

/// Old from the beginning, with any time for its calls.
fn old() -> LifeRules {
    rules(LifetimeRules { age_max: Some(Duration::ZERO), ..LifetimeRules::default() })
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_take_the_drain_time_to_leave() {
    let (rules, flushing) = (rules(LifetimeRules::default()), Duration::from_secs(20));
    assert_eq!(life_after(&rules, flushing).await, flushing + GOODBYE_TIMEOUT);
    assert_eq!(life_after(&rules, 2 * DRAIN_TIMEOUT).await, DRAIN_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_more_is_not_waited_for_for_ever() {
    let (start, drain) = (Instant::now(), CancellationToken::new());
    let (slow, old) = (slow(100 * DRAIN_TIMEOUT, false), old());
    timeout(10 * DRAIN_TIMEOUT, live(&slow, &old, &LogLimit::default(), &drain))
        .await
        .expect("it ends");
    let took = start.elapsed();
    let bound = DRAIN_TIMEOUT + GOODBYE_TIMEOUT;
    assert!((bound..bound + Duration::from_secs(1)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_bounds_the_calls_of_an_old_connection() {
    let (start, drain) = (Instant::now(), CancellationToken::new());
    let (stuck, old, hour) = (slow(Duration::ZERO, true), old(), Duration::from_secs(3600));
    let shutdown = async {
        tokio::time::sleep(hour).await;
        drain.cancel();
    };
    let log = LogLimit::default();
    let life = timeout(2 * hour, live(&stuck, &old, &log, &drain));
    tokio::join!(life, shutdown).0.expect("it ends");
    let took = start.elapsed();
    let bound = hour + DRAIN_TIMEOUT;
    assert!((bound..bound + Duration::from_secs(1)).contains(&took), "{took:?}");
}
