//! How long a connection that is sent away may take for its last answers.

use futures::future::BoxFuture;

use super::*;
use crate::calls::keepalive::Traffic;
use crate::calls::lifetime::CallCounts;
use crate::connect::ConnectionInfo;
use crate::transport::{Addresses, TransportStats};

/// Has answered everything, and the last answer takes its time.
#[derive(Debug)]
struct Slow {
    flushed_at: Instant,
    closed: CancellationToken,
}

impl ServerConnection for Slow {
    fn start(&self) {}

    fn closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.closed.cancelled())
    }

    fn drained(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn go_away(&self) {}

    fn ping(&self, _: u64) {}

    fn traffic(&self) -> Traffic {
        Traffic::default()
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
            fallback: None,
            calls_in_flight: 0,
            stats: TransportStats::default(),
        }
    }
}

/// How long such a connection lives on when its server shuts down.
async fn life_after(shutdown: &LifeRules, flushing: Duration) -> Duration {
    let (start, drain) = (Instant::now(), CancellationToken::new());
    let connection = Slow { flushed_at: start + flushing, closed: CancellationToken::new() };
    drain.cancel();
    live(&connection, shutdown, &drain).await;
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_take_the_drain_time_to_leave() {
    let drain_timeout = Duration::from_secs(60);
    let rules = LifeRules { keepalive: None, lifetime: LifetimeRules::default(), drain_timeout };
    let flushing = Duration::from_secs(20);
    assert_eq!(life_after(&rules, flushing).await, flushing + GOODBYE_TIMEOUT);
    assert_eq!(life_after(&rules, 2 * drain_timeout).await, drain_timeout);
}
