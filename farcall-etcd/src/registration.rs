//! A server's entry in etcd, which a lease keeps.

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

/// The shortest life of an entry without a sign of its server's; etcd counts in seconds.
const MIN_TTL: Duration = Duration::from_secs(2);

/// Between two attempts to register while etcd is not to be reached.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A server's entry in etcd: a key under a prefix, with the server's address as its value.
///
/// A lease of etcd keeps it while this value lives. When the process dies, the entry goes when the
/// lease's time is over. Where etcd has lost the lease, the server registers anew. Where the lease
/// lives and the entry was deleted, the server writes it again: it checks with each keepalive,
/// three times in `ttl`. Dropped, it gives no more signs of life; [`withdraw`](Self::withdraw)
/// takes the entry away at once.
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
///     // Before the server drains, so that no new client comes.
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

/// How an entry stands.
#[derive(Debug, Default)]
struct State {
    /// The lease that keeps it at present.
    lease: i64,
    /// Why it was not kept at the last attempt.
    failure: Option<Status>,
}

/// What is registered.
struct Entry {
    channel: Channel,
    prefix: String,
    address: String,
    ttl: Duration,
    log: LogLimit,
}

/// How the signs of life for a lease have ended.
enum LeaseEnd {
    /// etcd has no such lease any more.
    Lost,
    StreamEnded,
}

impl EtcdRegistration {
    /// Registers a server that is called at `address` under `prefix`, by a channel to etcd. The
    /// entry outlives the process by at most `ttl`, of which etcd counts whole seconds, two at
    /// least.
    ///
    /// # Errors
    ///
    /// When etcd cannot be reached, refuses, or gives no answer within 10 s.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, it may leave an entry behind, which goes after `ttl`.
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

    /// Takes the entry away.
    ///
    /// # Errors
    ///
    /// When etcd cannot be reached within 5 s. The entry goes by itself then, when its time is
    /// over.
    pub async fn withdraw(self) -> Result<(), Status> {
        self.keeping.abort();
        let lease = self.state.borrow().lease;
        api::revoke(&self.channel, lease).await
    }

    /// Why etcd does not keep the entry at this moment, as far as the last attempt has shown;
    /// `None` while all is well. For a health check: a change has a line in the log.
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
    /// Writes the entry with a new lease. The lease is known before the entry is there, so that
    /// a withdrawal at any moment takes it away.
    async fn register(&self, known: &watch::Sender<State>) -> Result<(), Status> {
        let ttl = i64::try_from(self.ttl.as_secs()).unwrap_or(i64::MAX);
        let id = api::grant(&self.channel, ttl).await?.id;
        known.send_modify(|state| state.lease = id);
        let put = self.put(id).await;
        if put.is_err() {
            // It would be left behind, one for each attempt.
            let _ = api::revoke(&self.channel, id).await;
        }
        put
    }

    /// The key of the entry. A lease is one server's, so that its number names the entry.
    fn key(&self, lease: i64) -> String {
        format!("{}{lease:x}", self.prefix)
    }

    /// Writes the entry with a lease.
    async fn put(&self, lease: i64) -> Result<(), Status> {
        let (key, value) = (self.key(lease).into(), self.address.clone().into());
        api::put(&self.channel, PutRequest { key, value, lease }).await
    }

    /// Writes the entry again if its lease does not keep it any more: it was deleted, or written
    /// by another program.
    async fn restore(&self, lease: i64) -> Result<(), Status> {
        let kept = match api::lease_keys(&self.channel, lease).await {
            // What stands in for etcd may keep leases alone.
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
            "this server's entry in etcd was deleted or overwritten: the server writes it again",
            key, server = self.address
        );
        self.put(lease).await
    }

    /// Gives signs of life until it is dropped, and registers anew where a lease is lost.
    async fn keep(self, known: watch::Sender<State>) {
        loop {
            let id = known.borrow().lease;
            // It ends with the lease, and with the connection to etcd.
            let kept = match self.keep_lease(id, &known).await {
                Ok(LeaseEnd::Lost) => self.register(&known).await,
                Ok(LeaseEnd::StreamEnded) => {
                    sleep(RETRY_DELAY).await;
                    continue;
                }
                Err(status) => Err(status),
            };
            let is_kept = kept.is_ok();
            self.note(&known, kept.err());
            if !is_kept {
                sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Records how the last attempt went, with a line in the log where that is a change.
    fn note(&self, known: &watch::Sender<State>, failure: Option<Status>) {
        let was_kept = known.borrow().failure.is_none();
        let (prefix, server) = (&self.prefix, &self.address);
        match &failure {
            Some(status) if was_kept => limited_log!(
                target: "farcall::server",
                self.log, WARN,
                "etcd does not keep this server's entry: clients lose it with its lease",
                prefix, server, code = ?status.code(), error = status.message()
            ),
            None if !was_kept => limited_log!(
                target: "farcall::server",
                self.log, INFO, "etcd keeps this server's entry again",
                prefix, server
            ),
            _ => {}
        }
        known.send_modify(|state| state.failure = failure);
    }

    /// Gives signs of life until the lease is lost, or the stream ends.
    async fn keep_lease(&self, id: i64, known: &watch::Sender<State>) -> Result<LeaseEnd, Status> {
        // The first sign is there before the call is made: etcd answers with its first message.
        let (mut signs, sent) = mpsc::channel(1);
        let mut is_sent = signs.try_send(LeaseId { id }).is_ok();
        let mut states = api::keep_alive(&self.channel, sent).await?;
        loop {
            if !is_sent {
                return Ok(LeaseEnd::StreamEnded);
            }
            // Beyond the lease's time there is nothing left to keep.
            let Ok(state) = timeout(self.ttl, states.next()).await else {
                let words = format!("no answer to a sign of life within {:?}", self.ttl);
                return Err(Status::deadline_exceeded(words));
            };
            match state {
                Some(Ok(state)) if state.ttl <= 0 => return Ok(LeaseEnd::Lost),
                Some(Ok(_)) => {
                    let interval = self.ttl / 3;
                    let next = Instant::now() + interval;
                    // The next sign of life is not to be late for it.
                    let Ok(restored) = timeout(interval, self.restore(id)).await else {
                        let message = format!("no answer about the lease within {interval:?}");
                        return Err(Status::deadline_exceeded(message));
                    };
                    restored?;
                    self.note(known, None);
                    sleep_until(next).await;
                }
                Some(Err(status)) => return Err(status),
                None => return Ok(LeaseEnd::StreamEnded),
            }
            is_sent = signs.try_send(LeaseId { id }).is_ok();
        }
    }
}
