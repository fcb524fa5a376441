//! DNS: every server that a name stands for.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{RData, RecordType};
use hickory_resolver::{ResolverBuilder, TokioResolver};
use tokio::time::{Instant, sleep_until};

use super::{DnsName, Refresh, Resolve, ResolveError};
use crate::balance::Endpoint;

/// The service's label of SRV records, as `_farcall._tcp.inventory.example.com`.
const SRV_PREFIX: &str = "_farcall._tcp.";

/// The shortest time between two lookups. A record with a TTL of zero, or a server that is down,
/// would otherwise have the name server asked without a pause.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

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
/// minutes at the latest, and when a server of the last answer could not be connected to. The name
/// servers and the search list are those of `/etc/resolv.conf`; `/etc/hosts` counts.
pub struct Dns {
    resolver: TokioResolver,
    name: DnsName,
    /// When the last answer was had, and until when it holds.
    last: Option<(Instant, Instant)>,
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
        Self { resolver, name, last: None }
    }

    /// Waits until the last answer is to be replaced.
    async fn outdated(&self, refresh: &Refresh) {
        let Some((had_at, holds_until)) = self.last else { return };
        let soonest = had_at + MIN_INTERVAL;
        let holds_until = holds_until.clamp(soonest, had_at + MAX_INTERVAL);
        tokio::select! {
            () = sleep_until(holds_until) => {}
            () = async {
                refresh.asked().await;
                sleep_until(soonest).await;
            } => {}
        }
        // The resolver's own cache would give the same answer until its TTL is over.
        self.resolver.clear_cache();
    }

    async fn look_up(&self) -> Result<(Vec<Endpoint>, std::time::Instant), NetError> {
        match self.name.port {
            Some(port) => {
                let found = self.resolver.lookup_ip(self.name.name.as_str()).await?;
                let endpoints = found.iter().map(|ip| self.endpoint(ip, port, 1)).collect();
                Ok((endpoints, found.valid_until()))
            }
            None => self.look_up_services().await,
        }
    }

    /// The servers of the SRV records with the best priority.
    async fn look_up_services(&self) -> Result<(Vec<Endpoint>, std::time::Instant), NetError> {
        let name = format!("{SRV_PREFIX}{}", self.name.name);
        let found = self.resolver.lookup(name, RecordType::SRV).await?;
        let services = || {
            found.answers().iter().filter_map(|record| match &record.data {
                RData::SRV(service) => Some(service),
                _ => None,
            })
        };
        let best = services().map(|service| service.priority).min();
        let (mut endpoints, mut holds_until) = (Vec::new(), found.valid_until());
        for service in services().filter(|service| Some(service.priority) == best) {
            let hosts = self.resolver.lookup_ip(service.target.clone()).await?;
            let weight = service.weight;
            endpoints.extend(hosts.iter().map(|ip| self.endpoint(ip, service.port, weight)));
            holds_until = holds_until.min(hosts.valid_until());
        }
        Ok((endpoints, holds_until))
    }

    fn endpoint(&self, ip: IpAddr, port: u16, weight: u16) -> Endpoint {
        let address = format!("{}://{}", self.name.scheme.of_address(), SocketAddr::new(ip, port));
        Endpoint::new(address).with_weight(weight)
    }
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
            let found = self.look_up().await;
            let now = Instant::now();
            // An answer without a server is an error: the channel keeps the servers that it has.
            self.last = None;
            let (endpoints, holds_until) = found.map_err(ResolveError::new)?;
            self.last = Some((now, holds_until.into()));
            Ok(endpoints)
        }
        .boxed()
    }
}
