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

/// Minimum interval between two lists. An etcd that ends every watch at once must not be asked in a
/// loop.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of entries kept per prefix. Others are left out.
const MAX_ENTRIES: usize = 10_000;

/// A resolver for servers that have registered with etcd under a prefix.
///
/// It lists the keys under the prefix once, and watches them from that revision on, so changes
/// arrive at once. If the watch ends, because of a connection or a compaction, it lists them again.
///
/// A list that takes longer than 10 s is an error. A watch is silent while nothing changes. The
/// channel's keepalive ([`ChannelBuilder::keepalive`](farcall::ChannelBuilder::keepalive)) detects
/// a dead etcd, by default within 5 minutes and 20 s.
///
/// A value is an address: `10.0.0.1:7000`, which uses the resolver's [`Scheme`], or one with a
/// scheme, `tcp://10.0.0.1:7000`. [`EtcdRegistration`](crate::EtcdRegistration) writes such values.
/// Entries that are not addresses are left out. A prefix without servers is an error, and the
/// channel keeps its servers: an etcd that has lost all leases does not remove them.
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
    /// The resolver's name in error messages.
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

/// A watch, and the servers that it knows.
struct Watch {
    /// Dropping it ends the watch.
    _requests: mpsc::UnboundedSender<WatchRequest>,
    responses: Streaming<WatchResponse>,
    servers: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Etcd {
    /// Creates a resolver for the servers under `prefix`, with or without its final slash.
    /// `channel` leads to etcd. Values without a scheme use `scheme`.
    #[must_use]
    pub fn new(channel: Channel, prefix: impl Into<String>, scheme: Scheme) -> Self {
        let prefix = within(&prefix.into());
        let name = format!("the prefix {prefix} of etcd");
        Self { name, channel, prefix, scheme, listed_at: None, watch: None }
    }

    /// Sets the name in error messages.
    pub(crate) fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// Lists the registered servers, and starts a watch from there.
    async fn list(&mut self) -> Result<(), Status> {
        if let Some(at) = self.listed_at.replace(Instant::now()) {
            sleep_until(at + MIN_INTERVAL).await;
            self.listed_at = Some(Instant::now());
        }
        let found = api::range(&self.channel, &self.prefix).await?;
        let revision = found.header.map_or(0, |header| header.revision);
        // One request, and no other until the watch is dropped.
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
                // The channel could not connect to a server. The server stays until its lease ends,
                // since etcd has nothing newer than the watch.
                () = refresh.requested() => return Ok(()),
            };
            match response {
                Some(Ok(response)) if !response.canceled => {
                    if watch.apply(&self.prefix, response.events) {
                        return Ok(());
                    }
                }
                // The watch ended with a compaction or with the connection.
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

    /// Returns the endpoint of a value, or `None` if it is not a server's address.
    fn endpoint(&self, value: &[u8]) -> Option<Endpoint> {
        let value = std::str::from_utf8(value).ok()?.trim();
        let address = match value.contains("://") {
            true => value.to_owned(),
            false => format!("{}://{value}", self.scheme.as_str()),
        };
        // Only a server on the network is allowed. An entry must not point to a socket of this
        // host, nor bypass RDMA or TLS if the target requires it.
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
    /// Applies events. Returns true if they changed anything.
    fn apply(&mut self, prefix: &str, events: Vec<Event>) -> bool {
        let mut is_changed = false;
        for Event { kind, kv } in events {
            let Some(kv) = kv.filter(|kv| kv.key.starts_with(prefix.as_bytes())) else { continue };
            // A full list still takes updates of known keys.
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

/// Returns a prefix with its final slash: `/shop` must not match `/shopping/`.
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
