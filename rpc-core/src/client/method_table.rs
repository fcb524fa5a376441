//! The methods of a server, as its Hello lists them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

use super::attempts::ServiceConfig;
use crate::calls::id_hashing::IdHashing;
use crate::limited_log;
use crate::wire::hello;
use crate::{CallKind, Idempotency, Method};

/// Methods whose ids are found without their paths. Two of one slot take turns.
const RECENT_COUNT: usize = 16;

/// Bits of an id beside an address.
const ID_BITS: u32 = u16::BITS;

/// The methods of a server by their paths.
#[derive(Debug)]
pub struct MethodTable {
    /// The path of each method, shared with the calls that are made by it.
    ids: HashMap<Arc<str>, u16, IdHashing>,
    /// The kind and the idempotency of each method, by id.
    kinds: Bytes,
    /// Ids of methods that were called, each below the address of its descriptor: hashing a path
    /// costs more than the rest of the look-up. 0 is no address.
    recent: [AtomicU64; RECENT_COUNT],
}

impl MethodTable {
    pub(super) fn new(paths: Vec<String>, kinds: Bytes) -> Self {
        let ids = paths.into_iter().map(Arc::from).zip(0..=u16::MAX).collect();
        Self { ids, kinds, recent: Default::default() }
    }

    /// Returns the id of a method that is to be called.
    #[inline(always)]
    pub(super) fn call_id(&self, method: &Method) -> Option<u16> {
        let Method::Static(descriptor) = method else { return self.id(method.path()) };
        // A static descriptor is never freed, so that its address names it for good.
        let address = std::ptr::from_ref(*descriptor).addr();
        // Divided, because the low bits of an aligned address are the same for all descriptors.
        let slot = &self.recent[address / align_of_val(*descriptor) % RECENT_COUNT];
        // Relaxed suffices: one word has both address and id, so a reader sees a matching pair or
        // another method's.
        let (address, known) = (address as u64, slot.load(Ordering::Relaxed));
        if known >> ID_BITS == address {
            return u16::try_from(known & u64::from(u16::MAX)).ok();
        }
        let id = self.id(method.path())?;
        // An address of more than 48 bits leaves no room for the id. Its method is looked up each
        // time.
        if address.leading_zeros() >= ID_BITS {
            slot.store(address << ID_BITS | u64::from(id), Ordering::Relaxed);
        }
        Some(id)
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
            let mut state = self.0.lock();
            state.unchecked = config.names().map(ToOwned::to_owned).collect();
            state.methods.clone()
        };
        self.check(&methods);
    }

    /// Warns of the names that are not among `methods`, those of a new connection.
    pub(super) fn check(&self, methods: &Weak<MethodTable>) {
        let Some(table) = methods.upgrade() else { return };
        let mut unchecked = {
            let mut state = self.0.lock();
            state.methods.clone_from(methods);
            std::mem::take(&mut state.unchecked)
        };
        if unchecked.is_empty() {
            return;
        }
        // Logged without the lock: a subscriber is the program's code, and may replace the config.
        unchecked.sort_unstable();
        let services = table.services();
        for name in unchecked {
            if name.starts_with('/') {
                if table.id(&name).is_none() {
                    limited_log!(
                        target: "farcall::settings",
                        process_wide, WARN,
                        "settings for a method that the server does not have", method = name
                    );
                }
            } else if !services.contains(name.as_str()) {
                limited_log!(
                    target: "farcall::settings",
                    process_wide, WARN,
                    "settings for a service that the server does not have", service = name
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MethodDescriptor;
    use crate::client::attempts::MethodConfig;
    use crate::limits::log::captured::CapturedLog;

    fn table(paths: &[&str]) -> Arc<MethodTable> {
        let paths = paths.iter().map(|&path| path.to_owned()).collect();
        Arc::new(MethodTable::new(paths, Bytes::new()))
    }

    fn config(methods: &[&str], services: &[&str]) -> ServiceConfig {
        let config = methods.iter().fold(ServiceConfig::new(), |config, &name| {
            config.with_method(name, MethodConfig::default())
        });
        let config = config.with_method("*", MethodConfig::default());
        services.iter().fold(config, |it, &name| it.with_method(name, MethodConfig::default()))
    }

    #[test]
    fn ids_of_recent_methods_are_those_of_their_paths() {
        // More than there are slots, so that some share one.
        let paths: Vec<_> = (0..3 * RECENT_COUNT).map(|n| format!("/a.B/{n}")).collect();
        let methods = paths.iter().map(|path| {
            let path: &'static str = path.clone().leak();
            let descriptor = MethodDescriptor::new(path, CallKind::Unary, Idempotency::Unknown);
            Method::Static(Box::leak(Box::new(descriptor)))
        });
        let methods: Vec<_> = methods.collect();
        let table = MethodTable::new(paths[1..].to_vec(), Bytes::new());
        for _ in 0..3 {
            for (number, method) in methods.iter().enumerate() {
                let id = number.checked_sub(1).and_then(|id| u16::try_from(id).ok());
                assert_eq!([table.call_id(method), table.call_id(method)], [id, id]);
            }
        }
        let other = MethodTable::new(vec![paths[5].clone()], Bytes::new());
        assert_eq!(other.call_id(&methods[5]), Some(0), "another server has other ids");
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
