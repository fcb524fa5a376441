//! The interface of a subject: the benchmark's service, as a server and as a client.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;
use tokio::task::JoinHandle;

use super::caller::{Caller, Client};
use super::load::Load;
use super::quota::Quota;
use super::tally::Tally;

/// Counters of an implementation since its start, by name.
pub type Counts = BTreeMap<String, u64>;

/// One implementation of the benchmark's service: farcall, or a peer that it is compared with.
#[allow(async_fn_in_trait, reason = "workers wait for these on the thread that runs them")]
pub trait Subject {
    /// One connection to its server.
    type Connection: Connection;

    /// Serves at `address` in the background and returns where, with the port that was chosen.
    async fn serve(&self, address: &str) -> Result<String>;

    /// Connects to a server.
    async fn connect(&self, address: &str) -> Result<Self::Connection>;

    /// Returns the counters of a server, or of a client with these connections.
    fn counts(&self, _connections: &[Self::Connection]) -> Counts {
        Counts::new()
    }

    /// Describes what a server, or a client with these connections, uses of devices. For people.
    fn state(&self, _connections: &[Self::Connection]) -> String {
        String::new()
    }
}

/// One connection, over which calls are made.
pub trait Connection: Sized {
    /// Starts this connection's part of a load: `in_flight` calls at a time, each of them with
    /// `quota` to do, or together with as much.
    fn start(&self, load: &Load, in_flight: usize, quota: Quota) -> Vec<JoinHandle<Result<Tally>>>;

    /// Starts a load over `connections`, among which the calls in flight are shared out. With fewer
    /// calls than connections, the first ones alone are called over.
    fn start_all(connections: &[Self], load: &Load, quota: Quota) -> Callers {
        let (all, count) = (load.in_flight, connections.len().max(1));
        let share = |index| all / count + usize::from(index < all % count);
        let connections = connections.iter().enumerate();
        connections.flat_map(|(index, to)| to.start(load, share(index), quota)).collect()
    }
}

/// The callers of a load, as tasks.
pub type Callers = Vec<JoinHandle<Result<Tally>>>;

impl<C: Client> Connection for C {
    fn start(&self, load: &Load, in_flight: usize, quota: Quota) -> Vec<JoinHandle<Result<Tally>>> {
        let payload = Bytes::from(vec![5; load.size]);
        let caller = Caller::new(vec![self.clone()], *load, payload, quota);
        (0..in_flight).map(|_| C::spawn(caller.clone())).collect()
    }

    /// Starts as many callers as the load has calls in flight. Each takes the connections in turn.
    fn start_all(connections: &[Self], load: &Load, quota: Quota) -> Callers {
        let payload = Bytes::from(vec![5; load.size]);
        let callers = 0..load.in_flight;
        callers
            .map(|first| {
                let own = connections.iter().skip(first % connections.len().max(1));
                let clients = own.step_by(load.in_flight).cloned().collect();
                C::spawn(Caller::new(clients, *load, payload.clone(), quota))
            })
            .collect()
    }
}

/// Starts a load: reads the clock once for all its callers.
pub(super) fn quota(load: &Load) -> (Instant, Quota) {
    let start = Instant::now();
    (start, Quota::of(load.span, start, load.in_flight))
}
