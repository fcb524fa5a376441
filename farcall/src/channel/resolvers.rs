//! The resolver of an address.

use futures::future::BoxFuture;

use crate::Address;
use crate::balance::Endpoint;
use crate::resolve::{CustomSchemes, DnsName, Refresh, Resolve, ResolveError, StaticEndpoints};

/// Makes the resolver of `address`, which finds the servers of a name or of a registered scheme,
/// those of a list, or the one that it is.
pub(super) fn resolver_of(address: &Address, schemes: &CustomSchemes) -> Box<dyn Resolve> {
    match address {
        Address::Dns(name) => name_resolver(name),
        Address::Custom(custom) => schemes.resolver(custom).unwrap_or_else(|error| {
            unresolvable(address.to_string(), ResolveError::new(error.reason()))
        }),
        Address::List(addresses) => Box::new(endpoints_of(addresses)),
        one => Box::new(endpoints_of(std::slice::from_ref(one))),
    }
}

fn endpoints_of(addresses: &[Address]) -> StaticEndpoints {
    StaticEndpoints::new(addresses.iter().map(|address| Endpoint::new(address.to_string())))
}

#[cfg(feature = "dns")]
fn name_resolver(name: &DnsName) -> Box<dyn Resolve> {
    Box::new(crate::resolve::Dns::by_system(name.clone()))
}

#[cfg(not(feature = "dns"))]
fn name_resolver(name: &DnsName) -> Box<dyn Resolve> {
    let error = ResolveError::new("this program was built without farcall's feature `dns`");
    unresolvable(name.to_string(), error)
}

/// A name that cannot be resolved in this program.
fn unresolvable(name: String, error: ResolveError) -> Box<dyn Resolve> {
    Box::new(Unresolvable { name, error })
}

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
