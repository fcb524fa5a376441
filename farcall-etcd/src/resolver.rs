//! etcd: the servers that have registered under a prefix of its keys.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use farcall::balance::Endpoint;
use farcall::resolve::{Refresh, Resolve, ResolveError, Scheme};
use farcall::{Address, Channel, Status, Streaming};
use futures::channel::mpsc;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep_until};

use crate::api::{self, DELETED, Event, WatchRequest, WatchResponse};

/// The shortest time between two lists, so that an etcd which ends each watch at once is not asked
/// without a pause.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The most entries that are kept of a prefix. Further ones are left out.
const MAX_ENTRIES: usize = 10_000;

/// The servers that have registered with etcd under a prefix.
///
/// The keys under the prefix are listed once, and watched from that revision on: a server that
/// comes or goes is known at once. Where the watch ends, with a connection or by compaction, they
/// are listed anew.
///
/// An answer that does not come within 10 s is an error. A watch is silent for as long as nothing
/// changes: that its etcd is gone is found by the channel's keepalive
/// ([`ChannelBuilder::keepalive`](farcall::ChannelBuilder::keepalive)), which is on by default, and
/// within 5 minutes and 20 s then.
///
/// A value is an address: `10.0.0.1:7000`, which is called by the resolver's [`Scheme`], or one
/// with a scheme, `tcp://10.0.0.1:7000`. [`EtcdRegistration`](crate::EtcdRegistration) writes such
/// values. An entry that is no address is left out. A prefix without servers is an error, and the
/// channel keeps the servers that it has: an etcd that has lost all leases does not take them away.
///
/// # Examples
///
/// ```
/// use farcall::Channel;
/// use farcall::resolve::Scheme;
/// use farcall_etcd::Etcd;
///
/// # fn example() -> Result<(), farcall::AddressError> {
/// let etcd = Channel::builder("grpc://10.0.0.9:2379")?.connect_lazy();
/// let resolver = Etcd::new(etcd, "/services/inventory/", Scheme::Auto);
/// let channel = Channel::builder("auto://inventory:1")?.connect_with_resolver(resolver);
/// # drop(channel);
/// # Ok(())
/// # }
/// ```
pub struct Etcd {
    /// What error messages call it.
    name: String,
    channel: Channel,
    pub(crate) prefix: String,
    scheme: Scheme,
    listed_at: Option<Instant>,
    watch: Option<Watch>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// A watch, and what is registered by its word.
struct Watch {
    /// The watch ends with it.
    _requests: mpsc::UnboundedSender<WatchRequest>,
    responses: Streaming<WatchResponse>,
    servers: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Etcd {
    /// The servers under `prefix`, which ends with a slash whether it is written or not, by a
    /// channel to etcd. Values without a scheme are called by
    /// `scheme`.
    #[must_use]
    pub fn new(channel: Channel, prefix: impl Into<String>, scheme: Scheme) -> Self {
        let prefix = within(&prefix.into());
        let name = format!("the prefix {prefix} of etcd");
        Self { name, channel, prefix, scheme, listed_at: None, watch: None }
    }

    /// The same under another name in error messages.
    pub(crate) fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// Lists what is registered, and watches from there on.
    async fn list(&mut self) -> Result<(), Status> {
        if let Some(at) = self.listed_at.replace(Instant::now()) {
            sleep_until(at + MIN_INTERVAL).await;
            self.listed_at = Some(Instant::now());
        }
        let found = api::range(&self.channel, &self.prefix).await?;
        let revision = found.header.map_or(0, |header| header.revision);
        // One request, and then none until the watch is dropped.
        let (requests, sent) = mpsc::unbounded();
        let _ = requests.unbounded_send(api::watch_from(&self.prefix, revision.saturating_add(1)));
        let responses = api::watch(&self.channel, sent).await?;
        let listed = found.kvs.into_iter().map(|kv| (kv.key, kv.value));
        let servers = listed.take(MAX_ENTRIES).collect();
        self.watch = Some(Watch { _requests: requests, responses, servers });
        Ok(())
    }

    /// Waits for a change.
    async fn changed(&mut self, refresh: &Refresh) -> Result<(), Status> {
        let Some(watch) = &mut self.watch else { return self.list().await };
        loop {
            let response = tokio::select! {
                response = watch.responses.next() => response,
                // A server that cannot be connected to stays until its lease ends: etcd has
                // nothing newer than the watch.
                () = refresh.asked() => return Ok(()),
            };
            match response {
                Some(Ok(response)) if !response.canceled => {
                    if watch.apply(&self.prefix, response.events) {
                        return Ok(());
                    }
                }
                // By compaction, or with the connection.
                Some(Ok(_) | Err(_)) | None => break,
            }
        }
        self.watch = None;
        self.list().await
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>, ResolveError> {
        let servers = self.watch.iter().flat_map(|watch| watch.servers.values());
        let endpoints: Vec<_> = servers.filter_map(|value| self.endpoint(value)).collect();
        match endpoints.is_empty() {
            true => Err(ResolveError::new(format!("no server is registered at {}", self.name()))),
            false => Ok(endpoints),
        }
    }

    /// The endpoint of a value; `None` where it is no address of a server.
    fn endpoint(&self, value: &[u8]) -> Option<Endpoint> {
        let value = std::str::from_utf8(value).ok()?.trim();
        let address = match value.contains("://") {
            true => value.to_owned(),
            false => format!("{}://{value}", self.scheme.of_address()),
        };
        // One server of the network: a writer of entries chooses no socket of this host, and
        // where the target requires RDMA or TLS, nothing else.
        let is_allowed = match (Address::try_from(address.as_str()).ok()?, self.scheme) {
            (Address::Rdma(_), Scheme::Rdma) | (Address::Grpcs(_), Scheme::Grpcs) => true,
            (_, Scheme::Rdma | Scheme::Grpcs) => false,
            (
                Address::Auto(_)
                | Address::Rdma(_)
                | Address::Tcp(_)
                | Address::Grpc(_)
                | Address::Grpcs(_),
                _,
            ) => true,
            _ => false,
        };
        is_allowed.then(|| Endpoint::new(address))
    }
}

impl Watch {
    /// Whether the events have changed anything.
    fn apply(&mut self, prefix: &str, events: Vec<Event>) -> bool {
        let mut is_changed = false;
        for Event { kind, kv } in events {
            let Some(kv) = kv.filter(|kv| kv.key.starts_with(prefix.as_bytes())) else { continue };
            let is_full = self.servers.len() >= MAX_ENTRIES && !self.servers.contains_key(&kv.key);
            is_changed |= match kind {
                DELETED => self.servers.remove(&kv.key).is_some(),
                _ if is_full => false,
                _ => self.servers.insert(kv.key, kv.value.clone()) != Some(kv.value),
            };
        }
        is_changed
    }
}

/// A prefix with its last slash: `/shop` is not the beginning of `/shopping/`.
pub(crate) fn within(prefix: &str) -> String {
    format!("{}/", prefix.trim_end_matches('/'))
}

impl Resolve for Etcd {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn next<'a>(
        &'a mut self,
        refresh: &'a Refresh,
    ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>> {
        async {
            let changed = self.changed(refresh).await;
            changed.map_err(|status| {
                ResolveError::new(format!("{}: {}", self.name(), status.message()))
            })?;
            self.endpoints()
        }
        .boxed()
    }
}
