//! DNS: every server that a name stands for.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{RData, RecordType};
use hickory_resolver::{ResolverBuilder, TokioResolver};
use rpc_core::limited_log;
use rpc_core::limits::log::LogLimit;
use tokio::time::{Instant, sleep_until};

use super::{DnsName, Refresh, Resolve, ResolveError};
use crate::balance::Endpoint;

/// The service's label of SRV records, as `_farcall._tcp.inventory.example.com`.
const SRV_PREFIX: &str = "_farcall._tcp.";

/// Shortest time between two lookups, whatever the TTL. A TTL of zero, or a server that is down,
/// would otherwise have the name server asked without a pause.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Pause before the next lookup for each query of the last one: 100 queries a second on average.
/// SRV records with a TTL of zero would otherwise have every target looked up every second.
const QUERY_INTERVAL: Duration = Duration::from_millis(10);

/// Queries for the addresses of a host: A and AAAA.
const HOST_QUERIES: u32 = 2;

/// Maximum number of SRV records whose targets are looked up: 512 queries a lookup.
const MAX_TARGETS: usize = 256;

/// Maximum number of addresses of one answer, and of all targets together. The channel connects to
/// each of them.
const MAX_ADDRESSES: usize = 1024;

/// The longest time between two lookups, whatever the record's TTL: a day of TTL on a list of
/// servers is an oversight more often than a wish.
const MAX_INTERVAL: Duration = Duration::from_secs(300);

/// Every server that a name stands for, by DNS.
///
/// With a port, these are the name's A and AAAA records. Without one, they are the SRV records of
/// `_farcall._tcp.` before the name, with their ports and weights; of several priorities the best
/// one alone. A Kubernetes service without a cluster IP ("headless") is such a name.
///
/// The name is looked up again when its TTL is over, after a second at the earliest and five
/// minutes at the latest, and when a server of the last answer could not be connected to. A lookup
/// of many SRV records is followed by a longer pause: 10 ms for each of its queries. The name
/// servers and the search list are those of `/etc/resolv.conf`; `/etc/hosts` counts.
///
/// Of an answer at most 256 SRV records and 1,024 addresses are used. The subset stays the same
/// from lookup to lookup, and differs among processes. A line of WARN counts the rest.
pub struct Dns {
    resolver: TokioResolver,
    name: DnsName,
    /// The earliest instant of the next lookup.
    soonest: Instant,
    /// The end of the last answer's TTL; `None` if the last lookup failed, or there was none.
    holds_until: Option<Instant>,
    /// Queries of the lookup under way.
    query_count: u32,
    /// Ranks records: the subset of a long answer.
    ranks: RandomState,
    log: LogLimit,
}

impl std::fmt::Debug for Dns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dns").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Dns {
    /// The servers of `name`, by the system's configuration.
    ///
    /// # Errors
    ///
    /// When the system's configuration cannot be read.
    pub fn new(name: DnsName) -> Result<Self, ResolveError> {
        let resolver = TokioResolver::builder_tokio().and_then(ResolverBuilder::build);
        let resolver = resolver
            .map_err(|error| ResolveError::new(format!("the system's DNS settings: {error}")))?;
        Ok(Self::with_resolver(resolver, name))
    }

    /// The servers of `name`, by a resolver with a configuration of its own.
    #[must_use]
    pub fn with_resolver(resolver: TokioResolver, name: DnsName) -> Self {
        Self {
            resolver,
            name,
            soonest: Instant::now(),
            holds_until: None,
            query_count: 0,
            ranks: RandomState::new(),
            log: LogLimit::default(),
        }
    }

    /// Waits until the last answer is to be replaced, and the next lookup is due.
    async fn outdated(&self, refresh: &Refresh) {
        if let Some(holds_until) = self.holds_until {
            tokio::select! {
                () = sleep_until(holds_until) => {}
                () = refresh.asked() => {}
            }
            // The resolver's own cache would give the same answer until its TTL is over.
            self.resolver.clear_cache();
        }
        sleep_until(self.soonest).await;
    }

    async fn look_up(&mut self) -> Result<(Vec<Endpoint>, std::time::Instant), NetError> {
        let Some(port) = self.name.port else { return self.look_up_services().await };
        self.query_count += HOST_QUERIES;
        let found = self.resolver.lookup_ip(self.name.name.as_str()).await?;
        let ips = self.subset(found.iter().collect(), MAX_ADDRESSES);
        Ok((ips.into_iter().map(|ip| self.endpoint(ip, port, 1)).collect(), found.valid_until()))
    }

    /// The servers of the SRV records with the best priority.
    async fn look_up_services(&mut self) -> Result<(Vec<Endpoint>, std::time::Instant), NetError> {
        let name = format!("{SRV_PREFIX}{}", self.name.name);
        self.query_count += 1;
        let found = self.resolver.lookup(name, RecordType::SRV).await?;
        let services = || {
            found.answers().iter().filter_map(|record| match &record.data {
                RData::SRV(service) => Some(service),
                _ => None,
            })
        };
        let best = services().map(|service| service.priority).min();
        let best = services().filter(|service| Some(service.priority) == best);
        let (mut servers, mut holds_until) = (Vec::new(), found.valid_until());
        for service in self.subset(best.collect(), MAX_TARGETS) {
            self.query_count += HOST_QUERIES;
            let hosts = self.resolver.lookup_ip(service.target.clone()).await?;
            let hosts_of_it = hosts.iter().map(|ip| (ip, service.port, service.weight));
            servers.extend(hosts_of_it);
            // Here, too: a target may have as many addresses as an answer can carry.
            if servers.len() > MAX_ADDRESSES {
                servers = self.subset(servers, MAX_ADDRESSES);
            }
            holds_until = holds_until.min(hosts.valid_until());
        }
        let endpoint = |(ip, port, weight)| self.endpoint(ip, port, weight);
        Ok((servers.into_iter().map(endpoint).collect(), holds_until))
    }

    /// Returns `records`, or the same `max` of them whatever the order in which they come.
    fn subset<T: Hash + Eq>(&self, mut records: Vec<T>, max: usize) -> Vec<T> {
        if records.len() > max {
            records.sort_by_cached_key(|record| self.ranks.hash_one(record));
            records.dedup();
        }
        if records.len() > max {
            let left_out = records.len() - max;
            records.truncate(max);
            limited_log!(
                target: "farcall::path",
                self.log, WARN, "a name stands for too many servers",
                target = %self.name, max, unused = left_out
            );
        }
        records
    }

    fn endpoint(&self, ip: IpAddr, port: u16, weight: u16) -> Endpoint {
        let address = format!("{}://{}", self.name.scheme.of_address(), SocketAddr::new(ip, port));
        Endpoint::new(address).with_weight(weight)
    }
}

/// Pause after a lookup of so many queries.
fn pause_after(query_count: u32) -> Duration {
    (QUERY_INTERVAL * query_count).max(MIN_INTERVAL)
}

impl Resolve for Dns {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn next<'a>(
        &'a mut self,
        refresh: &'a Refresh,
    ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>> {
        async {
            self.outdated(refresh).await;
            // An answer without a server is an error: the channel keeps the servers that it has.
            self.holds_until = None;
            self.query_count = 0;
            let found = self.look_up().await;
            let now = Instant::now();
            self.soonest = now + pause_after(self.query_count);
            let (endpoints, holds_until) = found.map_err(ResolveError::new)?;
            self.holds_until = Some(Instant::from(holds_until).min(now + MAX_INTERVAL));
            Ok(endpoints)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::resolve::Scheme;

    fn dns() -> Dns {
        let resolver = farcall_testkit::name_server::resolver_at(([127, 0, 0, 1], 1).into());
        Dns::with_resolver(resolver.unwrap(), DnsName::new("a.test.", None, Scheme::Tcp))
    }

    #[test]
    fn subsets_are_stable_and_differ_among_resolvers() {
        let addresses: Vec<_> = (0..4000u32).map(Ipv4Addr::from_bits).collect();
        let rotated: Vec<_> = [&addresses[999..], &addresses[..999]].concat();
        let (one, other) = (dns(), dns());
        let subset = one.subset(addresses.clone(), MAX_ADDRESSES);
        assert_eq!(subset.len(), MAX_ADDRESSES);
        assert_eq!(subset, one.subset(rotated, MAX_ADDRESSES));
        assert_ne!(subset, other.subset(addresses.clone(), MAX_ADDRESSES));
        let short = addresses[..MAX_ADDRESSES].to_vec();
        assert_eq!(one.subset(short.clone(), MAX_ADDRESSES), short);
        let doubled = [short.clone(), short.clone()].concat();
        assert_eq!(one.subset(doubled, MAX_ADDRESSES).len(), MAX_ADDRESSES);
    }

    #[test]
    fn a_lookup_of_many_queries_is_followed_by_a_long_pause() {
        assert_eq!(pause_after(0), MIN_INTERVAL);
        assert_eq!(pause_after(HOST_QUERIES), MIN_INTERVAL);
        let most = 1 + HOST_QUERIES * u32::try_from(MAX_TARGETS).unwrap();
        assert_eq!(pause_after(most), Duration::from_millis(5130));
    }
}
