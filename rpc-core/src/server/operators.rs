//! The services for operators: who sees them.
//!
//! Their methods have the last ids. A client that may not see them gets a Hello without them, and
//! the answer of a method that the server does not have.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::router::{Operators, Router};
use crate::MethodDescriptor;
use crate::transport::Addresses;

/// The methods that a client sees: all, or those that are not for operators.
#[derive(Debug, Clone, Default)]
pub struct MethodAccess(Option<Arc<Router>>);

impl MethodAccess {
    pub(super) fn new(router: &Arc<Router>) -> Self {
        Self(router.operators.is_some().then(|| Arc::clone(router)))
    }

    /// Returns the number of methods that a client at `addresses` sees, of `count`.
    pub(super) fn visible(&self, addresses: &Addresses, count: usize) -> usize {
        match &self.0 {
            Some(router) if !router.admits(addresses) => router.open_count,
            _ => count,
        }
    }
}

impl Router {
    /// Returns true if the client at `addresses` is an operator.
    pub(super) fn admits(&self, addresses: &Addresses) -> bool {
        let Some(operators) = &self.operators else { return false };
        is_local(addresses, operators.sees_loopback) || self.allows_identity(operators, addresses)
    }

    /// Returns true for methods of the services for operators.
    pub(super) fn is_for_operators(&self, method: &MethodDescriptor) -> bool {
        let Some(operators) = &self.operators else { return false };
        // By identity: another service of the program may have a method of the same path, whose
        // calls `authorize` decides.
        let mut methods = operators.services.iter().flat_map(|service| service.methods);
        methods.any(|own| std::ptr::eq(own, method))
    }

    fn allows_identity(&self, operators: &Operators, addresses: &Addresses) -> bool {
        let Some(identity) = addresses.identity() else { return false };
        let Some(rules) = self.authorization.rules() else { return false };
        let allows = |method: &MethodDescriptor| rules.allows(identity, method.path);
        // Rules that panic allow nothing. Those that name the methods of the first service cannot
        // know of the others.
        let first = operators.services.first();
        let first = first.filter(|service| !service.methods.is_empty());
        let allowed = || first.is_some_and(|service| service.methods.iter().all(allows));
        catch_unwind(AssertUnwindSafe(allowed)).unwrap_or(false)
    }
}

/// Returns true for the two ends of a link that does not leave the host. A byte stream of the
/// program may come from anywhere.
fn is_local(addresses: &Addresses, sees_loopback: bool) -> bool {
    match addresses {
        Addresses { stream: Some(_), .. } => false,
        Addresses { unix: Some(_), .. } => true,
        Addresses { peer: Some(peer), .. } => {
            sees_loopback && peer.ip().to_canonical().is_loopback()
        }
        // Inside the process.
        Addresses { local: None, peer: None, .. } => true,
        Addresses { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(peer: &str) -> Addresses {
        Addresses { peer: Some(peer.parse().unwrap()), ..Addresses::default() }
    }

    #[test]
    fn links_inside_the_host_are_local() {
        let unix = Addresses { unix: Some("/run/a".into()), ..Addresses::default() };
        let stream = Addresses { stream: Some("vsock".into()), ..at("127.0.0.1:1") };
        for (addresses, expected) in [
            (at("127.0.0.1:1"), true),
            (at("127.9.9.9:1"), true),
            (at("[::1]:1"), true),
            (at("[::ffff:127.0.0.1]:1"), true),
            (at("10.0.0.1:1"), false),
            (at("[::ffff:10.0.0.1]:1"), false),
            (at("0.0.0.0:1"), false),
            (at("[::]:1"), false),
            (unix, true),
            (stream, false),
            // A transport that does not name its peer.
            (Addresses { local: at("10.0.0.1:1").peer, ..Addresses::default() }, false),
            (Addresses::default(), true),
        ] {
            assert_eq!(is_local(&addresses, true), expected, "{addresses}");
        }
        assert!(!is_local(&at("127.0.0.1:1"), false));
    }
}
