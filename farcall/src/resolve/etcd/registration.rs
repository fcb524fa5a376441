//! A server's entry in etcd, which a lease keeps.

use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tonic::Status;

use super::api::{self, LeaseId, PutRequest};
use crate::Channel;

/// The shortest life of an entry without a sign of its server's; etcd counts in seconds.
const MIN_TTL: Duration = Duration::from_secs(2);

/// Between two attempts to register while etcd is not to be reached.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A server's entry in etcd: a key under a prefix, with the server's address as its value.
///
/// A lease of etcd keeps it while this value lives. When the process dies, the entry goes when the
/// lease's time is over. Where etcd has lost the lease, the server registers anew. Dropped, it
/// gives no more signs of life; [`withdraw`](Self::withdraw) takes the entry away at once.
///
/// # Examples
///
/// ```no_run
/// # use farcall::{Channel, Server, Service};
/// use std::time::Duration;
///
/// use farcall::resolve::EtcdRegistration;
///
/// # async fn example(service: impl Service) -> Result<(), Box<dyn std::error::Error>> {
/// let listener = Server::builder().add_service(service).bind("auto://10.0.0.1:7000").await?;
/// let etcd = Channel::connect("grpc://10.0.0.9:2379").await?;
/// let (prefix, ttl) = ("/services/inventory/", Duration::from_secs(10));
/// let entry = EtcdRegistration::new(etcd, prefix, "10.0.0.1:7000", ttl).await?;
/// listener.serve_with_shutdown(async {
///     let _ = tokio::signal::ctrl_c().await;
///     // Before the server drains, so that no new client comes.
///     let _ = entry.withdraw().await;
/// }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EtcdRegistration {
    channel: Channel,
    /// The lease that keeps the entry at present.
    lease: watch::Receiver<i64>,
    keeping: JoinHandle<()>,
}

/// What is registered.
struct Entry {
    channel: Channel,
    prefix: String,
    address: String,
    ttl: Duration,
}

impl EtcdRegistration {
    /// Registers a server that is called at `address` under `prefix`, by a channel to etcd. The
    /// entry outlives the process by at most `ttl`, of which etcd counts whole seconds, two at
    /// least.
    ///
    /// # Errors
    ///
    /// When etcd cannot be reached, or refuses.
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
        let entry = Entry { channel: channel.clone(), prefix, address, ttl };
        let id = entry.register().await?;
        let (known, lease) = watch::channel(id);
        let keeping = tokio::spawn(entry.keep(known));
        Ok(Self { channel, lease, keeping })
    }

    /// Takes the entry away.
    ///
    /// # Errors
    ///
    /// When etcd cannot be reached. The entry goes by itself then, when its time is over.
    pub async fn withdraw(self) -> Result<(), Status> {
        self.keeping.abort();
        let lease = *self.lease.borrow();
        api::revoke(&self.channel, lease).await
    }
}

impl Drop for EtcdRegistration {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

impl Entry {
    /// Writes the entry with a new lease.
    async fn register(&self) -> Result<i64, Status> {
        let ttl = i64::try_from(self.ttl.as_secs()).unwrap_or(i64::MAX);
        let id = api::grant(&self.channel, ttl).await?.id;
        // A lease is one server's, so that its number names the entry.
        let (key, value) = (format!("{}{id:x}", self.prefix).into(), self.address.clone().into());
        api::put(&self.channel, PutRequest { key, value, lease: id }).await?;
        Ok(id)
    }

    /// Gives signs of life until it is dropped, and registers anew where a lease is lost.
    async fn keep(self, known: watch::Sender<i64>) {
        loop {
            let id = *known.borrow();
            // It ends with the lease, and with the connection to etcd.
            let is_kept = self.keep_lease(id).await.unwrap_or(true);
            if is_kept {
                sleep(RETRY_DELAY).await;
                continue;
            }
            match self.register().await {
                Ok(id) => known.send_replace(id),
                Err(_) => {
                    sleep(RETRY_DELAY).await;
                    continue;
                }
            };
        }
    }

    /// Gives signs of life until the lease is gone (`false`), or etcd (an error).
    async fn keep_lease(&self, id: i64) -> Result<bool, Status> {
        let (signs, sent) = mpsc::channel(1);
        let mut signs = signs;
        let mut states = api::keep_alive(&self.channel, sent).await?;
        loop {
            if signs.try_send(LeaseId { id }).is_err() {
                return Ok(true);
            }
            match states.next().await {
                Some(Ok(state)) if state.ttl <= 0 => return Ok(false),
                Some(Ok(_)) => sleep(self.ttl / 3).await,
                Some(Err(status)) => return Err(status),
                None => return Ok(true),
            }
        }
    }
}
