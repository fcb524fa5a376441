//! The router: from a method's id, as the Hello numbered it, to its service.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::call_stats::CallStats;
use super::peer::Authorization;
use super::peer::InsertPeer;
use super::settings::CallRules;
use super::{ServerStack, Service};
use crate::transport::Addresses;
use crate::wire::hello;
use crate::{MethodDescriptor, ServiceDescriptor};

/// The services of a server.
#[derive(Default)]
pub(crate) struct Router {
    services: Vec<Arc<dyn Service>>,
    /// For each method id, the service's and the method's index.
    routes: Vec<(usize, usize)>,
    /// Number of methods that every client sees.
    pub(super) open_count: usize,
    /// The services for operators, the last of all.
    pub(super) operators: Option<Operators>,
    /// The layers around all of them, where there are any.
    pub(super) stack: Option<ServerStack>,
    /// Connection details in every request's extensions.
    pub(super) peer_extensions: Option<InsertPeer>,
    /// Authorization of calls.
    pub(super) authorization: Authorization,
    /// Time limit of unary calls, and the calls that have a log line.
    pub(super) rules: Arc<CallRules>,
}

/// The services for operators of a router.
#[derive(Debug)]
pub(super) struct Operators {
    /// The first decides who sees all of them.
    pub(super) services: Vec<&'static ServiceDescriptor>,
    /// True if clients at the host's loopback addresses see it.
    pub(super) sees_loopback: bool,
}

impl Router {
    /// Adds a service; its methods get the next ids.
    pub(crate) fn add(&mut self, service: Arc<dyn Service>) {
        let index = self.services.len();
        let methods = 0..service.descriptor().methods.len();
        self.routes.extend(methods.map(|method| (index, method)));
        self.open_count = self.routes.len();
        self.services.push(service);
    }

    /// Adds the services for operators, after all others, and counts calls from now on.
    pub(super) fn add_for_operators(
        &mut self,
        services: Vec<Arc<dyn Service>>,
        sees_loopback: bool,
    ) {
        let open_count = self.open_count;
        let descriptors = services.iter().map(|service| service.descriptor()).collect();
        services.into_iter().for_each(|service| self.add(service));
        // `add` has opened their methods to all clients: the count from before closes them.
        self.open_count = open_count;
        self.operators = Some(Operators { services: descriptors, sees_loopback });
        self.rules = Arc::new(CallRules::counting(CallStats::new(self.methods())));
    }

    /// The services, in the order in which they were added.
    pub(super) fn services(&self) -> impl Iterator<Item = &'static ServiceDescriptor> {
        self.services.iter().map(|service| service.descriptor())
    }

    /// All methods, by id.
    pub(super) fn methods(&self) -> impl Iterator<Item = &'static MethodDescriptor> {
        self.services().flat_map(|service| service.methods)
    }

    /// The paths of all methods, by id.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.methods().map(|method| method.path.to_owned()).collect()
    }

    /// All methods by their paths; of two with the same path the first, as clients find it.
    pub(crate) fn by_path(&self) -> HashMap<&'static str, &'static MethodDescriptor> {
        let mut methods = HashMap::new();
        for method in self.methods() {
            methods.entry(method.path).or_insert(method);
        }
        methods
    }

    /// Returns the description of each method in the Hello, beside its path.
    pub(crate) fn kinds(&self) -> Bytes {
        hello::encode_methods(self.methods())
    }

    /// The service of a method id, and the method's index in it.
    #[inline]
    pub(crate) fn route(&self, id: u16) -> Option<(&Arc<dyn Service>, usize)> {
        let (service, method) = *self.routes.get(usize::from(id))?;
        Some((&self.services[service], method))
    }

    /// The service of a method id that a client at `addresses` calls, and the method's index in it.
    #[inline]
    pub(super) fn route_for(
        &self,
        id: u16,
        addresses: &Addresses,
    ) -> Option<(&Arc<dyn Service>, usize)> {
        if usize::from(id) >= self.open_count && !self.admits(addresses) {
            // The same answer as for a number that no method has: a client must not learn that this
            // one exists.
            return None;
        }
        self.route(id)
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.services().map(|service| service.name);
        f.debug_list().entries(names).finish()
    }
}
