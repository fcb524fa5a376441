//! etcd: the servers that have registered under a prefix of its keys.

mod api;
mod registration;
#[cfg(all(test, feature = "testing"))]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures::channel::mpsc;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep_until};
use tonic::{Status, Streaming};

pub use registration::EtcdRegistration;

use self::api::{DELETED, Event, WatchRequest, WatchResponse};
use super::{Refresh, Resolve, ResolveError, Scheme};
use crate::Channel;
use crate::balance::Endpoint;

/// The shortest time between two lists, so that an etcd which ends each watch at once is not asked
/// without a pause.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The servers that have registered with etcd under a prefix.
///
/// The keys under the prefix are listed once, and watched from that revision on: a server that
/// comes or goes is known at once. Where the watch ends, with a connection or by compaction, they
/// are listed anew.
///
/// A value is an address: `10.0.0.1:7000`, which is called by the resolver's [`Scheme`], or one
/// with a scheme, `tcp://10.0.0.1:7000`. [`EtcdRegistration`] writes such values. An entry that is
/// no address is left out. A prefix without servers is an error, and the channel keeps the servers
/// that it has: an etcd that has lost all leases does not take them away.
///
/// # Examples
///
/// ```
/// use farcall::Channel;
/// use farcall::resolve::{Etcd, Scheme};
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
    channel: Channel,
    prefix: String,
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
    /// The servers under `prefix`, by a channel to etcd. Values without a scheme are called by
    /// `scheme`.
    #[must_use]
    pub fn new(channel: Channel, prefix: impl Into<String>, scheme: Scheme) -> Self {
        Self { channel, prefix: prefix.into(), scheme, listed_at: None, watch: None }
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
        let _ = requests.unbounded_send(api::watch_from(&self.prefix, revision + 1));
        let responses = api::watch(&self.channel, sent).await?;
        let servers = found.kvs.into_iter().map(|kv| (kv.key, kv.value)).collect();
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
                () = refresh.asked() => continue,
            };
            match response {
                Some(Ok(response)) if !response.canceled => {
                    if response.events.is_empty() {
                        continue;
                    }
                    watch.apply(response.events);
                    return Ok(());
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
        crate::Address::try_from(address.as_str()).ok()?;
        Some(Endpoint::new(address))
    }
}

impl Watch {
    fn apply(&mut self, events: Vec<Event>) {
        for Event { kind, kv } in events {
            let Some(kv) = kv else { continue };
            match kind {
                DELETED => self.servers.remove(&kv.key),
                _ => self.servers.insert(kv.key, kv.value),
            };
        }
    }
}

impl Resolve for Etcd {
    fn name(&self) -> String {
        format!("etcd://{}", self.prefix)
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
