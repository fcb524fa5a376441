//! The peer of a connection, as handlers see it, and who may call what.
//!
//! The latter is decided before a request is received, decoded or handled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tonic::{Extensions, Status};

use crate::MethodDescriptor;
use crate::payload::buffer::Buffers;
use crate::transport::{Addresses, Identity};

/// The connection of a call, as its handler sees it. Made once for each connection and shared.
///
/// # Examples
///
/// ```
/// # extern crate rpc_core as farcall;
/// use farcall::Status;
/// use farcall::server::PeerInfo;
///
/// /// Returns true if the handler that asks serves the billing service, by the identity that the
/// /// TLS handshake has verified.
/// fn is_billing() -> bool {
///     let peer = PeerInfo::current();
///     let identity = peer.as_ref().and_then(|peer| peer.addresses.identity());
///     identity.is_some_and(|identity| identity.has_name("spiffe://example.org/billing"))
/// }
///
/// /// Refuses a call of anyone but root, by the credentials of a Unix socket, for which the kernel
/// /// vouches.
/// fn check_root() -> Result<(), Status> {
///     match PeerInfo::current().and_then(|peer| peer.addresses.credentials) {
///         Some(client) if client.uid() == 0 => Ok(()),
///         _ => Err(Status::permission_denied("only root, over the Unix socket")),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The transport that carries the call, for example `tcp` or `rdma`.
    pub transport: &'static str,
    /// The connection's two ends, where they have addresses.
    pub addresses: Addresses,
    /// Source of memory for answers.
    pub(crate) buffers: Buffers,
}

impl PeerInfo {
    /// Returns the description of a connection over `transport` between `addresses`.
    #[must_use]
    pub fn new(transport: &'static str, addresses: Addresses) -> Self {
        Self { transport, addresses, buffers: Buffers::default() }
    }
}

/// A function that puts connection details into the extensions of every request.
pub(super) type InsertPeer = fn(&PeerInfo, &mut Extensions);

/// Decides which clients may call which methods, by the identity that TLS has verified and by the
/// method's full name, `/package.Service/Method`.
///
/// It is asked where requests arrive, and must not block. Of a large request it is asked before the
/// request is received, and once more when it has arrived; so it should say the same both times.
/// A closure that takes an identity and a method's name is one.
///
/// # Examples
///
/// ```
/// # extern crate rpc_core as farcall;
/// use farcall::server::Authorize;
/// use farcall::transport::Identity;
///
/// /// Only the billing service calls the ledger; anyone may ask for the server's health.
/// struct Rules;
///
/// impl Authorize for Rules {
///     fn allows(&self, identity: &Identity, method: &str) -> bool {
///         let is_billing = identity.has_name("spiffe://example.org/billing");
///         is_billing || !method.starts_with("/ledger.Ledger/")
///     }
///
///     fn allows_anonymous(&self, method: &str) -> bool {
///         method.starts_with("/grpc.health.v1.Health/")
///     }
/// }
/// ```
pub trait Authorize: Send + Sync + 'static {
    /// Returns true if the client of that identity may call the method. Otherwise the client gets
    /// `PERMISSION_DENIED`.
    fn allows(&self, identity: &Identity, method: &str) -> bool;

    /// Returns true if any client may call the method, with an identity or without. By default a
    /// client without one gets `UNAUTHENTICATED`, whatever it calls.
    fn allows_anonymous(&self, method: &str) -> bool {
        let _ = method;
        false
    }
}

impl<F: Fn(&Identity, &str) -> bool + Send + Sync + 'static> Authorize for F {
    fn allows(&self, identity: &Identity, method: &str) -> bool {
        self(identity, method)
    }
}

/// The rules of a server, if it has any.
#[derive(Clone, Default)]
pub(super) struct Authorization(Option<Arc<dyn Authorize>>);

impl Authorization {
    pub(super) fn new(rules: impl Authorize) -> Self {
        Self(Some(Arc::new(rules)))
    }

    /// The rules, if there are any.
    pub(super) fn rules(&self) -> Option<&dyn Authorize> {
        self.0.as_deref()
    }

    /// Returns false if every client may call every method.
    #[inline]
    pub(super) fn is_needed(&self) -> bool {
        self.0.is_some()
    }

    /// Checks that `peer` may call `method`.
    pub(super) fn check(&self, peer: &PeerInfo, method: &MethodDescriptor) -> Result<(), Status> {
        let Some(rules) = &self.0 else { return Ok(()) };
        // A panic ends its own call, as a handler's does, and not the connection.
        let decided = catch_unwind(AssertUnwindSafe(|| decide(&**rules, peer, method)));
        decided.unwrap_or_else(|_| {
            Err(Status::internal("the server's authorize function panicked: see its stderr"))
        })
    }
}

impl std::fmt::Debug for Authorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Authorization" } else { "no Authorization" })
    }
}

fn decide(rules: &dyn Authorize, peer: &PeerInfo, method: &MethodDescriptor) -> Result<(), Status> {
    let path = method.path;
    // Asked first: an open method needs no certificate, and a certificate closes none.
    if rules.allows_anonymous(path) {
        return Ok(());
    }
    let Some(identity) = peer.addresses.identity() else {
        let message = format!("{path} requires a client certificate, and this client has none");
        return Err(Status::unauthenticated(message));
    };
    if rules.allows(identity, path) {
        return Ok(());
    }
    Err(Status::permission_denied(format!("{identity} may not call {path}")))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::transport::{Addresses, TlsInfo};
    use crate::{CallKind, Idempotency};

    static METHOD: MethodDescriptor =
        MethodDescriptor::new("/t.T/M", CallKind::Unary, Idempotency::Unknown);

    fn peer(name: Option<&str>) -> PeerInfo {
        let identity = name.map(|name| Identity::new(vec![], vec![name.to_owned()], vec![]));
        let tls = Some(Arc::new(TlsInfo::new(identity)));
        PeerInfo::new("tls", Addresses { tls, ..Addresses::default() })
    }

    #[test]
    fn a_client_is_denied_by_what_it_lacks() {
        let rules = Authorization::new(|identity: &Identity, method: &str| {
            identity.has_name("a.example") && method == "/t.T/M"
        });
        assert!(rules.check(&peer(Some("a.example")), &METHOD).is_ok());
        let denied = rules.check(&peer(Some("b.example")), &METHOD).unwrap_err();
        assert_eq!(denied.code(), Code::PermissionDenied);
        assert_eq!(denied.message(), "b.example may not call /t.T/M");
        let anonymous = rules.check(&peer(None), &METHOD).unwrap_err();
        assert_eq!(anonymous.code(), Code::Unauthenticated);
        let without_tls = PeerInfo::new("tcp", Addresses::default());
        let denied = rules.check(&without_tls, &METHOD).unwrap_err();
        assert_eq!(denied.code(), Code::Unauthenticated);
        assert!(Authorization::default().check(&without_tls, &METHOD).is_ok());
    }

    #[test]
    fn rules_that_panic_let_no_call_through() {
        let rules = Authorization::new(|_: &Identity, _: &str| -> bool { panic!("on purpose") });
        let denied = rules.check(&peer(Some("a.example")), &METHOD).unwrap_err();
        assert_eq!(denied.code(), Code::Internal);
    }
}
