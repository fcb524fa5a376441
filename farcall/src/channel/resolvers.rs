//! The resolver of an address.

use futures::future::BoxFuture;

use crate::Address;
use crate::balance::Endpoint;
use crate::resolve::{DnsName, EtcdName, Refresh, Resolve, ResolveError, StaticEndpoints};

/// What tells the servers of `address`: of a name, of a list, or the one that it is.
pub(super) fn resolver_of(address: &Address) -> Box<dyn Resolve> {
    match address {
        Address::Dns(name) => resolver_of_name(name),
        Address::Etcd(name) => resolver_in_etcd(name),
        Address::List(addresses) => Box::new(endpoints_of(addresses)),
        one => Box::new(endpoints_of(std::slice::from_ref(one))),
    }
}

fn endpoints_of(addresses: &[Address]) -> StaticEndpoints {
    StaticEndpoints::new(addresses.iter().map(|address| Endpoint::new(address.to_string())))
}

#[cfg(feature = "dns")]
fn resolver_of_name(name: &DnsName) -> Box<dyn Resolve> {
    match crate::resolve::Dns::new(name.clone()) {
        Ok(resolver) => Box::new(resolver),
        Err(error) => Box::new(Unresolvable { name: name.to_string(), error }),
    }
}

#[cfg(not(feature = "dns"))]
fn resolver_of_name(name: &DnsName) -> Box<dyn Resolve> {
    let error = ResolveError::new("this program was built without farcall's feature `dns`");
    Box::new(Unresolvable { name: name.to_string(), error })
}

/// The channel to etcd has the default settings; [`Etcd`](crate::resolve::Etcd) takes another.
#[cfg(feature = "etcd")]
fn resolver_in_etcd(name: &EtcdName) -> Box<dyn Resolve> {
    let etcd = crate::ChannelBuilder::new(Address::Grpc(name.endpoint.clone())).connect_lazy();
    Box::new(crate::resolve::Etcd::new(etcd, name.prefix.clone(), name.scheme))
}

#[cfg(not(feature = "etcd"))]
fn resolver_in_etcd(name: &EtcdName) -> Box<dyn Resolve> {
    let error = ResolveError::new("this program was built without farcall's feature `etcd`");
    Box::new(Unresolvable { name: name.to_string(), error })
}

/// A name that cannot be resolved in this program.
struct Unresolvable {
    name: String,
    error: ResolveError,
}

impl Resolve for Unresolvable {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn next<'a>(
        &'a mut self,
        _refresh: &'a Refresh,
    ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>> {
        Box::pin(std::future::ready(Err(self.error.clone())))
    }
}
