//! The methods of a server, as its Hello lists them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

use super::attempts::ServiceConfig;
use crate::calls::id_hashing::IdHashing;
use crate::limited_log;
use crate::wire::hello;
use crate::{CallKind, Idempotency};

/// The methods of a server by their paths.
#[derive(Debug)]
pub struct MethodTable {
    /// The path of each method, shared with the calls that are made by it.
    ids: HashMap<Arc<str>, u16, IdHashing>,
    /// The kind and the idempotency of each method, by id.
    kinds: Bytes,
}

impl MethodTable {
    pub(super) fn new(paths: Vec<String>, kinds: Bytes) -> Self {
        Self { ids: paths.into_iter().map(Arc::from).zip(0..=u16::MAX).collect(), kinds }
    }

    /// The id that the server has given a method.
    pub(super) fn id(&self, path: &str) -> Option<u16> {
        self.ids.get(path).copied()
    }

    /// The path and the id of a method.
    pub(super) fn entry(&self, path: &str) -> Option<(&Arc<str>, u16)> {
        self.ids.get_key_value(path).map(|(path, id)| (path, *id))
    }

    /// The kind of a method, where the server says it.
    pub(super) fn kind(&self, id: u16) -> Option<(CallKind, Idempotency)> {
        self.kinds.get(usize::from(id)).copied().map(hello::decode_method)
    }

    /// The names of all services.
    fn services(&self) -> HashSet<&str> {
        let paths = self.ids.keys().filter_map(|path| path.strip_prefix('/')?.split_once('/'));
        paths.map(|(service, _)| service).collect()
    }
}

/// The names in a channel's service config, which are compared with the methods of the first server
/// that tells its own. All connections of a channel share it.
#[derive(Debug)]
pub struct ConfiguredNames(Mutex<NamesState>);

#[derive(Debug, Default)]
struct NamesState {
    /// Methods with their first slash, and services. Empty once they were compared.
    unchecked: Vec<String>,
    /// The methods of the last connection, for names that come while it is open.
    methods: Weak<MethodTable>,
}

impl ConfiguredNames {
    /// The names in `config`.
    #[must_use]
    pub fn new(config: &ServiceConfig) -> Self {
        let unchecked = config.names().map(ToOwned::to_owned).collect();
        Self(Mutex::new(NamesState { unchecked, methods: Weak::new() }))
    }

    /// Takes the names of another config, and compares them if a connection is open.
    pub fn replace(&self, config: &ServiceConfig) {
        let methods = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.unchecked = config.names().map(ToOwned::to_owned).collect();
            state.methods.clone()
        };
        self.check(&methods);
    }

    /// Warns of the names that are not among `methods`, those of a new connection.
    pub(super) fn check(&self, methods: &Weak<MethodTable>) {
        let Some(table) = methods.upgrade() else { return };
        let mut unchecked = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.methods.clone_from(methods);
            std::mem::take(&mut state.unchecked)
        };
        if unchecked.is_empty() {
            return;
        }
        unchecked.sort_unstable();
        let services = table.services();
        for name in unchecked {
            if name.starts_with('/') {
                if table.id(&name).is_none() {
                    limited_log!(
                        target: "farcall::settings",
                        of_process, WARN,
                        "settings for a method that the server does not have", method = name
                    );
                }
            } else if !services.contains(name.as_str()) {
                limited_log!(
                    target: "farcall::settings",
                    of_process, WARN,
                    "settings for a service that the server does not have", service = name
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::attempts::MethodConfig;
    use crate::limits::captured_log::CapturedLog;

    fn table(paths: &[&str]) -> Arc<MethodTable> {
        let paths = paths.iter().map(|&path| path.to_owned()).collect();
        Arc::new(MethodTable::new(paths, Bytes::new()))
    }

    fn config(methods: &[&str], services: &[&str]) -> ServiceConfig {
        let config = methods.iter().fold(ServiceConfig::new(), |config, &name| {
            config.with_method(name, MethodConfig::new())
        });
        let config = config.with_method("*", MethodConfig::new());
        services.iter().fold(config, |it, &name| it.with_method(name, MethodConfig::new()))
    }

    #[test]
    fn unknown_names_are_logged_once() {
        let log = CapturedLog::start();
        let (one, other) = (table(&["/shop.Cart/Get"]), table(&[]));
        let names = ConfiguredNames::new(&config(
            &["shop.Cart/Get", "/shop.Cart/Gett"],
            &["shop.Cart", "shop.Card"],
        ));
        names.check(&Arc::downgrade(&one));
        let lines = log.take_lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("WARN") && lines[0].contains("method=\"/shop.Cart/Gett\""));
        assert!(lines[1].contains("service=\"shop.Card\""), "{lines:?}");
        names.check(&Arc::downgrade(&other));
        assert!(log.take_lines().is_empty());
    }

    #[test]
    fn names_of_a_reload_are_compared_with_the_open_connection() {
        let log = CapturedLog::start();
        let names = ConfiguredNames::new(&config(&[], &[]));
        names.replace(&config(&["/a.A/B"], &[]));
        assert!(log.take_lines().is_empty());
        let open = table(&["/a.A/C"]);
        names.check(&Arc::downgrade(&open));
        assert_eq!(log.take_lines().len(), 1);
        names.replace(&config(&["/a.A/C", "/a.A/D"], &[]));
        assert_eq!(log.take_lines().len(), 1);
        drop(open);
        names.replace(&config(&["/a.A/E"], &[]));
        assert!(log.take_lines().is_empty());
    }
}
