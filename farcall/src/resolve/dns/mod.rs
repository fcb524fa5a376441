//! DNS: every server that a name stands for.

mod failure;
mod server;
mod system;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use rpc_core::limited_log;
use rpc_core::limits::log::LogLimit;
use tokio::time::{Instant, sleep_until};

use self::failure::LookupFailure;
use self::server::{Server, servers};
use self::system::CurrentResolver;
use super::{DnsName, Refresh, Resolve, ResolveError};
use crate::balance::Endpoint;

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

/// Targets that are looked up at the same time. One whose name servers do not answer delays the
/// others little.
const TARGETS_AT_ONCE: usize = 16;

/// Time after which targets that did not resolve are looked up again, whatever the TTL of the
/// others.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum number of servers of one answer, and of all targets together. The channel connects to
/// each of them.
const MAX_SERVERS: usize = 1024;

/// The longest time between two lookups, whatever the record's TTL: a day of TTL on a list of
/// servers is an oversight more often than a wish.
const MAX_INTERVAL: Duration = Duration::from_secs(300);

/// Every server that a name stands for, by DNS.
///
/// With a port, these are the name's A and AAAA records. Without one, they are the SRV records of
/// `_farcall._tcp.` before the name, or of `_grpc._tcp.` for servers of gRPC, with their ports and
/// weights. Of several priorities the best one is used that has a server. A target that does not
/// resolve is left out, with a line of WARN; one of "." stands for no service. A Kubernetes service
/// without a cluster IP ("headless") is such a name.
///
/// DNS does not say which A and AAAA records belong to one server. A name or target with as many of
/// one kind as of the other stands for servers with an address of both kinds: each is one endpoint
/// with [an alternative](Endpoint::alternatives). In any other case each address is an endpoint,
/// and an address of the other kind stands in for it where it cannot be connected to.
///
/// The name is looked up again when its TTL is over, after a second at the earliest and five
/// minutes at the latest, and when a server of the last answer could not be connected to. A lookup
/// of many SRV records is followed by a longer pause: 10 ms for each of its queries. The name
/// servers and the search list are those of `/etc/resolv.conf`; `/etc/hosts` counts. Each lookup
/// reads them again if they have changed.
///
/// Of an answer at most 256 SRV records and 1,024 servers are used. The subset stays the same from
/// lookup to lookup, and differs among processes. A line of WARN counts the rest.
pub struct Dns {
    resolver: CurrentResolver,
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

/// Servers, and the end of the TTL.
type Found<T> = (Vec<T>, Instant);

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
    /// Returns an error if the system's configuration cannot be read.
    pub fn new(name: DnsName) -> Result<Self, ResolveError> {
        let mut dns = Self::by_system(name);
        dns.resolver()?;
        Ok(dns)
    }

    /// The servers of `name`, by the system's configuration, which the first lookup reads.
    pub(crate) fn by_system(name: DnsName) -> Self {
        Self::by(CurrentResolver::follow_system(), name)
    }

    /// The servers of `name`, by a resolver with a configuration of its own.
    #[must_use]
    pub fn with_resolver(resolver: TokioResolver, name: DnsName) -> Self {
        Self::by(CurrentResolver::fixed(resolver), name)
    }

    fn by(resolver: CurrentResolver, name: DnsName) -> Self {
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

    /// Returns the resolver by the configuration of this moment, with an empty cache: the cache
    /// would give the same answer until its TTL is over.
    fn resolver(&mut self) -> Result<TokioResolver, ResolveError> {
        let resolver = self.resolver.resolver(&self.log)?;
        resolver.clear_cache();
        Ok(resolver)
    }

    /// Waits until the last answer is to be replaced, and the next lookup is due.
    async fn outdated(&self, refresh: &Refresh) {
        if let Some(holds_until) = self.holds_until {
            tokio::select! {
                () = sleep_until(holds_until) => {}
                () = refresh.requested() => {}
            }
        }
        sleep_until(self.soonest).await;
    }

    async fn look_up(&mut self) -> Result<Found<Endpoint>, ResolveError> {
        let resolver = self.resolver()?;
        let Some(port) = self.name.port else { return self.look_up_services(&resolver).await };
        self.query_count += HOST_QUERIES;
        let found = look_up_host(&resolver, &self.name.name).await;
        let (servers, holds_until) = found.map_err(ResolveError::new)?;
        let servers = self.subset(servers, MAX_SERVERS);
        Ok((servers.into_iter().map(|it| self.endpoint(it, port, 1)).collect(), holds_until))
    }

    /// The servers of the SRV records, of the best priority that has any.
    async fn look_up_services(
        &mut self,
        resolver: &TokioResolver,
    ) -> Result<Found<Endpoint>, ResolveError> {
        let name = format!("{}{}", self.name.service_label(), self.name.name);
        self.query_count += 1;
        let mut failure = LookupFailure::no_records(&name, "SRV");
        let found = resolver.lookup(name.as_str(), RecordType::SRV).await;
        let found = found.map_err(|it| ResolveError::new(LookupFailure::new(&it, &name, "SRV")))?;
        let mut services: Vec<_> = found.answers().iter().filter_map(service).collect();
        if services.iter().any(|service| service.target.is_root()) {
            failure = LookupFailure::no_service(&name);
            services.retain(|service| !service.target.is_root());
        }
        services.sort_by_key(|service| service.priority);
        let mut left = MAX_TARGETS;
        for targets in services.chunk_by(|one, other| one.priority == other.priority) {
            let targets = self.subset(targets.to_vec(), left);
            left -= targets.len();
            match self.look_up_targets(resolver, &targets).await {
                Ok((servers, holds_until)) => {
                    return Ok((servers, holds_until.min(Instant::from(found.valid_until()))));
                }
                Err(Some(reason)) => failure = reason,
                Err(None) => break,
            }
        }
        Err(ResolveError::new(failure))
    }

    /// The servers of SRV records of one priority.
    ///
    /// # Errors
    ///
    /// Returns the reason of a target if none resolves.
    async fn look_up_targets(
        &mut self,
        resolver: &TokioResolver,
        targets: &[SRV],
    ) -> Result<Found<Endpoint>, Option<LookupFailure>> {
        let look_up = |service: &SRV| {
            // Escaped: it is another's text.
            let (resolver, target) = (resolver.clone(), service.target.to_ascii());
            let (port, weight) = (service.port, service.weight);
            async move { (look_up_host(&resolver, &target).await, target, port, weight) }.boxed()
        };
        let lookups: Vec<_> = targets.iter().map(look_up).collect();
        let mut lookups = stream::iter(lookups).buffered(TARGETS_AT_ONCE);
        let (mut servers, mut failure) = (Vec::new(), None);
        let mut holds_until = Instant::now() + MAX_INTERVAL;
        while let Some((found, target, port, weight)) = lookups.next().await {
            self.query_count += HOST_QUERIES;
            match found {
                Ok((found, until)) => {
                    servers.extend(found.into_iter().map(|server| (server, port, weight)));
                    // Here, too: a target may have as many addresses as an answer can carry.
                    if servers.len() > MAX_SERVERS {
                        servers = self.subset(servers, MAX_SERVERS);
                    }
                    holds_until = holds_until.min(until);
                }
                Err(reason) => {
                    limited_log!(
                        target: "farcall::path",
                        self.log, WARN, "a target of SRV records does not resolve",
                        target = %self.name, server = %target, reason = %reason
                    );
                    holds_until = holds_until.min(Instant::now() + RETRY_INTERVAL);
                    failure = Some(reason);
                }
            }
        }
        if servers.is_empty() {
            return Err(failure);
        }
        let endpoint = |(server, port, weight)| self.endpoint(server, port, weight);
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
                self.log, WARN, "a DNS name has too many servers",
                target = %self.name, max, unused = left_out
            );
        }
        records
    }

    fn endpoint(&self, server: Server, port: u16, weight: u16) -> Endpoint {
        let at = |ip| SocketAddr::new(ip, port);
        let address = format!("{}://{}", self.name.scheme.as_str(), at(server.address));
        Endpoint::new(address).with_weight(weight).with_alternatives(server.alternative.map(at))
    }
}

/// The servers at the A and AAAA records of a name; there is one at least.
async fn look_up_host(
    resolver: &TokioResolver,
    name: &str,
) -> Result<Found<Server>, LookupFailure> {
    let kind = "A or AAAA";
    let found = resolver.lookup_ip(name).await;
    let found = found.map_err(|error| LookupFailure::new(&error, name, kind))?;
    match servers(found.iter()) {
        servers if servers.is_empty() => Err(LookupFailure::no_records(name, kind)),
        servers => Ok((servers, Instant::from(found.valid_until()))),
    }
}

fn service(record: &Record) -> Option<SRV> {
    match &record.data {
        RData::SRV(service) => Some(service.clone()),
        _ => None,
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
            let (endpoints, holds_until) = found?;
            self.holds_until = Some(holds_until.min(now + MAX_INTERVAL));
            Ok(endpoints)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use farcall_testkit::name_server::{Zone, address};
    use hickory_resolver::config::{
        ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts,
    };

    use super::*;
    use crate::resolve::Scheme;

    fn dns() -> Dns {
        let resolver = farcall_testkit::name_server::resolver_at(([127, 0, 0, 1], 1).into());
        Dns::with_resolver(resolver.unwrap(), DnsName::new("a.test.", None, Scheme::Tcp))
    }

    /// The system's settings with the name server at this address.
    fn settings(server: SocketAddr) -> (ResolverConfig, ResolverOpts) {
        let mut connection = ConnectionConfig::udp();
        connection.port = server.port();
        let server = NameServerConfig::new(server.ip(), true, vec![connection]);
        (ResolverConfig::from_name_servers(vec![server]), ResolverOpts::default())
    }

    #[tokio::test]
    async fn changed_settings_take_effect_at_the_next_lookup() {
        let zones = [1, 2].map(|last| {
            let zone = Zone::default();
            zone.set(vec![address("a.test.", Ipv4Addr::new(127, 0, 0, last), 1).unwrap()]);
            zone
        });
        let servers = [zones[0].listen().await.unwrap(), zones[1].listen().await.unwrap()];
        let mut read = servers.map(settings).into_iter();
        let system = CurrentResolver::by(move || Ok(read.next()));
        let name = DnsName::new("a.test.", Some(7), Scheme::Tcp);
        let mut dns = Dns::by(system, name);
        for expected in ["tcp://127.0.0.1:7", "tcp://127.0.0.2:7"] {
            let found = dns.next(&Refresh::default()).await.unwrap();
            assert_eq!(found, [Endpoint::new(expected)]);
        }
    }

    #[test]
    fn subsets_are_stable_and_differ_among_resolvers() {
        let addresses: Vec<_> = (0..4000u32).map(Ipv4Addr::from_bits).collect();
        let rotated: Vec<_> = [&addresses[999..], &addresses[..999]].concat();
        let (one, other) = (dns(), dns());
        let subset = one.subset(addresses.clone(), MAX_SERVERS);
        assert_eq!(subset.len(), MAX_SERVERS);
        assert_eq!(subset, one.subset(rotated, MAX_SERVERS));
        assert_ne!(subset, other.subset(addresses.clone(), MAX_SERVERS));
        let short = addresses[..MAX_SERVERS].to_vec();
        assert_eq!(one.subset(short.clone(), MAX_SERVERS), short);
        let doubled = [short.clone(), short.clone()].concat();
        assert_eq!(one.subset(doubled, MAX_SERVERS).len(), MAX_SERVERS);
    }

    #[test]
    fn a_lookup_of_many_queries_is_followed_by_a_long_pause() {
        assert_eq!(pause_after(0), MIN_INTERVAL);
        assert_eq!(pause_after(HOST_QUERIES), MIN_INTERVAL);
        let most = 1 + HOST_QUERIES * u32::try_from(MAX_TARGETS).unwrap();
        assert_eq!(pause_after(most), Duration::from_millis(5130));
    }
}
