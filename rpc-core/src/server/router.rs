//! The router: from a method's id, as the Hello numbered it, to its service.
//!
//! With it go the rules that every call of a server looks at, and that may change while it serves.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::layers::handle;
use super::peer::Authorization;
use super::peer::InsertPeer;
use super::{HandlerFuture, ServerCall, ServerSettings, ServerStack, Service};
use crate::call::log::CallLog;
use crate::wire::hello;
use crate::{MethodDescriptor, ServiceDescriptor};

const FAILURES: u8 = 1;
const ACCESS: u8 = 2;

/// The services of a server.
#[derive(Default)]
pub(crate) struct Router {
    services: Vec<Arc<dyn Service>>,
    /// For each method id, the service's and the method's index.
    routes: Vec<(usize, usize)>,
    /// The layers around all of them, where there are any.
    pub(super) stack: Option<ServerStack>,
    /// Connection details in every request's extensions.
    pub(super) peer_extensions: Option<InsertPeer>,
    /// Authorization of calls.
    pub(super) authorization: Authorization,
    /// Time limit of unary calls, and the calls that have a log line.
    pub(super) rules: CallRules,
}

impl Router {
    /// Adds a service; its methods get the next ids.
    pub(crate) fn add(&mut self, service: Arc<dyn Service>) {
        let index = self.services.len();
        let methods = 0..service.descriptor().methods.len();
        self.routes.extend(methods.map(|method| (index, method)));
        self.services.push(service);
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
    pub(crate) fn route(&self, id: u16) -> Option<(&Arc<dyn Service>, usize)> {
        let (service, method) = *self.routes.get(usize::from(id))?;
        Some((&self.services[service], method))
    }

    /// Runs a call of the service, under the layers where there are any.
    // Inlined, because as a function it would move each call once more.
    #[inline]
    pub(super) fn dispatch(
        &self,
        service: &Arc<dyn Service>,
        method: usize,
        call: ServerCall,
    ) -> HandlerFuture {
        match &self.stack {
            None => service.call(method, call),
            Some(stack) => handle(stack.clone(), Arc::clone(service), method, call),
        }
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.services().map(|service| service.name);
        f.debug_list().entries(names).finish()
    }
}

/// The rules that every call looks at. A look is one relaxed load: each rule stands alone, and
/// guards no other memory.
#[derive(Debug)]
pub(super) struct CallRules {
    /// In nanoseconds; 0 where unary calls have no timeout.
    unary_timeout: AtomicU64,
    log: AtomicU8,
}

impl Default for CallRules {
    fn default() -> Self {
        let rules = Self { unary_timeout: AtomicU64::new(0), log: AtomicU8::new(0) };
        rules.set_log(CallLog::default());
        rules
    }
}

impl CallRules {
    pub(super) fn unary_timeout(&self) -> Option<Duration> {
        let nanos = self.unary_timeout.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Takes what calls look at of `settings`.
    pub(super) fn set(&self, settings: &ServerSettings) {
        self.set_unary_timeout(settings.unary_timeout);
        let (failures, access) = (settings.log_failed_calls, settings.access_log);
        self.set_log(CallLog { failures, access });
    }

    fn set_unary_timeout(&self, timeout: Option<Duration>) {
        // The longest is 365 days, which are 2^55 ns.
        let nanos = timeout.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX));
        self.unary_timeout.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn log(&self) -> CallLog {
        let bits = self.log.load(Ordering::Relaxed);
        CallLog { failures: bits & FAILURES != 0, access: bits & ACCESS != 0 }
    }

    fn set_log(&self, CallLog { failures, access }: CallLog) {
        let bits = if failures { FAILURES } else { 0 } | if access { ACCESS } else { 0 };
        self.log.store(bits, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_call_looks_at_comes_back_as_it_was_set() {
        let rules = CallRules::default();
        assert_eq!((rules.unary_timeout(), rules.log()), (None, CallLog::default()));
        let year = Duration::from_secs(365 * 24 * 3600);
        for timeout in [Some(Duration::from_millis(1)), Some(year), None] {
            rules.set_unary_timeout(timeout);
            assert_eq!(rules.unary_timeout(), timeout);
        }
        for (failures, access) in [(false, false), (false, true), (true, false), (true, true)] {
            rules.set_log(CallLog { failures, access });
            assert_eq!(rules.log(), CallLog { failures, access });
        }
    }
}
