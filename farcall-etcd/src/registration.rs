//! A server's entry in etcd, which a lease keeps alive.

use std::time::Duration;

use farcall::{Channel, Code, Status};
use futures::StreamExt;
use futures::channel::mpsc;
use rpc_core::limited_log;
use rpc_core::limits::log::LogLimit;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::api::{self, LeaseId, PutRequest};
use crate::resolver::within;

/// Minimum lifetime of an entry without heartbeats. etcd counts whole seconds.
const MIN_TTL: Duration = Duration::from_secs(2);

/// Delay between registration attempts while etcd is unreachable.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A server's entry in etcd: a key under a prefix, with the server's address as its value.
///
/// An etcd lease keeps the entry while this value lives. If the process dies, the entry disappears
/// when the lease expires. If etcd loses the lease, the server registers again. If the entry is
/// deleted while the lease lives, the server writes it again: it checks with each heartbeat, three
/// times per `ttl`.
///
/// Dropping the registration stops the heartbeats. [`withdraw`](Self::withdraw) deletes the entry
/// at once.
///
/// # Examples
///
/// ```no_run
/// # use farcall::{Channel, Server, Service};
/// use std::time::Duration;
///
/// use farcall_etcd::EtcdRegistration;
///
/// # async fn example(service: impl Service) -> Result<(), Box<dyn std::error::Error>> {
/// let listener = Server::builder().add_service(service).bind("auto://10.0.0.1:7000").await?;
/// let etcd = Channel::connect("grpc://10.0.0.9:2379").await?;
/// let (prefix, ttl) = ("/services/inventory/", Duration::from_secs(10));
/// let entry = EtcdRegistration::new(etcd, prefix, "10.0.0.1:7000", ttl).await?;
/// let serving = listener.serve().with_graceful_shutdown(async {
///     let _ = tokio::signal::ctrl_c().await;
///     // Before the server drains, so that no new client arrives.
///     let _ = entry.withdraw().await;
/// });
/// serving.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EtcdRegistration {
    channel: Channel,
    state: watch::Receiver<State>,
    keeping: JoinHandle<()>,
}

/// The state of an entry.
#[derive(Debug, Default)]
struct State {
    /// ID of the current lease.
    lease: i64,
    /// The failure of the last attempt to keep the entry, if it failed.
    failure: Option<Status>,
}

/// The registered entry.
struct Entry {
    channel: Channel,
    prefix: String,
    address: String,
    ttl: Duration,
    log: LogLimit,
}

/// The reason why heartbeats have ended.
enum LeaseEnd {
    /// etcd no longer has the lease.
    Lost,
    StreamEnded,
}

impl EtcdRegistration {
    /// Registers a server at `address` under `prefix`. `channel` leads to etcd.
    ///
    /// The entry outlives the process by at most `ttl`. etcd counts whole seconds, and at least
    /// two.
    ///
    /// # Errors
    ///
    /// Returns an error if etcd is unreachable, refuses, or does not answer within 10 s.
    ///
    /// # Cancel safety
    ///
    /// If cancelled, it may leave an entry behind, which disappears after `ttl`.
    pub async fn new(
        channel: Channel,
        prefix: impl Into<String>,
        address: impl Into<String>,
        ttl: Duration,
    ) -> Result<Self, Status> {
        let (prefix, address, ttl) = (prefix.into(), address.into(), ttl.max(MIN_TTL));
        let entry = Entry {
            channel: channel.clone(),
            prefix: within(&prefix),
            address,
            ttl,
            log: LogLimit::default(),
        };
        let (known, state) = watch::channel(State::default());
        entry.register(&known).await?;
        let keeping = tokio::spawn(entry.keep(known));
        Ok(Self { channel, state, keeping })
    }

    /// Deletes the entry.
    ///
    /// # Errors
    ///
    /// Returns an error if etcd is unreachable for 5 s. The entry then disappears when its lease
    /// expires.
    pub async fn withdraw(self) -> Result<(), Status> {
        self.keeping.abort();
        let lease = self.state.borrow().lease;
        api::revoke(&self.channel, lease).await
    }

    /// Returns the reason why etcd does not keep the entry, as of the last attempt; `None` while
    /// all is well.
    ///
    /// Use it for a health check. Each change is also logged.
    #[must_use]
    pub fn failure(&self) -> Option<Status> {
        self.state.borrow().failure.clone()
    }
}

impl Drop for EtcdRegistration {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

impl Entry {
    /// Writes the entry with a new lease. Publishes the lease before it writes the entry, so that a
    /// withdrawal at any moment also deletes the entry.
    async fn register(&self, known: &watch::Sender<State>) -> Result<(), Status> {
        let ttl = i64::try_from(self.ttl.as_secs()).unwrap_or(i64::MAX);
        let id = api::grant(&self.channel, ttl).await?.id;
        known.send_modify(|state| state.lease = id);
        let put = self.put(id).await;
        if put.is_err() {
            // Each failed attempt would otherwise leave a lease behind.
            let _ = api::revoke(&self.channel, id).await;
        }
        put
    }

    /// Returns the key of the entry. A lease belongs to one server, so its ID is unique.
    fn key(&self, lease: i64) -> String {
        format!("{}{lease:x}", self.prefix)
    }

    /// Writes the entry with a lease.
    async fn put(&self, lease: i64) -> Result<(), Status> {
        let (key, value) = (self.key(lease).into(), self.address.clone().into());
        api::put(&self.channel, PutRequest { key, value, lease }).await
    }

    /// Writes the entry again if its lease no longer has it: another program deleted or overwrote
    /// it.
    async fn restore(&self, lease: i64) -> Result<(), Status> {
        let kept = match api::lease_keys(&self.channel, lease).await {
            // A substitute for etcd may only implement leases.
            Err(status) if status.code() == Code::Unimplemented => return Ok(()),
            kept => kept?.keys,
        };
        let key = self.key(lease);
        if kept.iter().any(|kept| *kept == key.as_bytes()) {
            return Ok(());
        }
        limited_log!(
            target: "farcall::server",
            self.log, WARN,
            "this server's entry in etcd was deleted or overwritten: writing it again",
            key, server = self.address
        );
        self.put(lease).await
    }

    /// Sends heartbeats until it is dropped. Registers again if a lease is lost.
    async fn keep(self, known: watch::Sender<State>) {
        loop {
            let id = known.borrow().lease;
            // Returns when the lease or the connection to etcd ends.
            let kept = match self.keep_lease(id, &known).await {
                Ok(LeaseEnd::Lost) => self.register(&known).await,
                Ok(LeaseEnd::StreamEnded) => {
                    sleep(RETRY_DELAY).await;
                    continue;
                }
                Err(status) => Err(status),
            };
            // Every outcome but a lost stream is recorded. A stream ends with each reconnect, and
            // the lease usually survives that.
            let is_kept = kept.is_ok();
            self.note(&known, kept.err());
            if !is_kept {
                sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Records the result of the last attempt. Logs a change.
    fn note(&self, known: &watch::Sender<State>, failure: Option<Status>) {
        let was_kept = known.borrow().failure.is_none();
        let (prefix, server) = (&self.prefix, &self.address);
        match &failure {
            Some(status) if was_kept => limited_log!(
                target: "farcall::server",
                self.log, WARN,
                "cannot renew this server's lease in etcd: clients lose the server when the lease \
                 expires",
                prefix, server, code = ?status.code(), error = status.message()
            ),
            None if !was_kept => limited_log!(
                target: "farcall::server",
                self.log, INFO, "etcd renews this server's lease again",
                prefix, server
            ),
            _ => {}
        }
        known.send_modify(|state| state.failure = failure);
    }

    /// Sends heartbeats until the lease is lost or the stream ends.
    async fn keep_lease(&self, id: i64, known: &watch::Sender<State>) -> Result<LeaseEnd, Status> {
        // The first heartbeat is queued before the call: etcd only answers with its first message.
        let (mut heartbeats, sent) = mpsc::channel(1);
        let mut is_sent = heartbeats.try_send(LeaseId { id }).is_ok();
        let mut states = api::keep_alive(&self.channel, sent).await?;
        loop {
            if !is_sent {
                return Ok(LeaseEnd::StreamEnded);
            }
            // After the lease's time there is nothing left to keep.
            let Ok(state) = timeout(self.ttl, states.next()).await else {
                let message = format!("etcd did not answer a heartbeat within {:?}", self.ttl);
                return Err(Status::deadline_exceeded(message));
            };
            match state {
                Some(Ok(state)) if state.ttl <= 0 => return Ok(LeaseEnd::Lost),
                Some(Ok(_)) => {
                    let interval = self.ttl / 3;
                    let next = Instant::now() + interval;
                    // The check must not delay the next heartbeat.
                    let Ok(restored) = timeout(interval, self.restore(id)).await else {
                        let message = format!("etcd did not confirm the entry within {interval:?}");
                        return Err(Status::deadline_exceeded(message));
                    };
                    restored?;
                    self.note(known, None);
                    sleep_until(next).await;
                }
                Some(Err(status)) => return Err(status),
                None => return Ok(LeaseEnd::StreamEnded),
            }
            is_sent = heartbeats.try_send(LeaseId { id }).is_ok();
        }
    }
}
