//! The channels and servers that settings have made and that are in use.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use rpc_core::server::NotServed;
use rpc_core::settings::read_small_file;

use super::changes::{HeldBack, LogFilter, Reload, changes};
use crate::channel::LiveTarget;
use crate::resolve::{CustomScheme, CustomSchemes};
use crate::server::settings::ServerOverlay;
use crate::server::{LiveServer, Origin, SettingsView};
use crate::settings::error::{SettingsError, SettingsFault};
use crate::settings::loaded::{Built, Loaded};
use crate::tls::ServerTls;
use crate::{Address, ChannelBuilder, Server, ServerBuilder};

/// Reads a file and the environment of the process.
pub(crate) fn read(path: &Path) -> Result<Loaded, SettingsError> {
    let unreadable = |reason| SettingsError::unreadable(path, reason);
    let bytes = read_small_file(path).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        let reason = "the file is not UTF-8: save it as UTF-8";
        unreadable(io::Error::new(io::ErrorKind::InvalidData, reason))
    })?;
    // Editors put a byte order mark before the text.
    let text = text.trim_start_matches('\u{feff}');
    // What is no Unicode cannot be meant for us: our names and values are.
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    });
    Loaded::read(&path.display().to_string(), text, environment)
}

/// The state that clones of settings share.
#[derive(Debug)]
pub(crate) struct Shared {
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    loaded: Arc<Loaded>,
    uses: Uses,
    /// The schemes that the addresses of targets may have beside farcall's own.
    schemes: CustomSchemes,
    last_reload: Option<(SystemTime, Result<Vec<String>, String>)>,
}

/// The users of the settings.
#[derive(Debug)]
enum Uses {
    /// Nothing, and they are not watched.
    None,
    /// A channel or a server, before the settings were watched.
    Unwatched,
    Watched(Registry),
}

/// The receivers of new values. The registry keeps none of them alive, and forgets dropped ones
/// when it adds another.
#[derive(Debug, Default)]
struct Registry {
    targets: Vec<(String, Weak<LiveTarget>)>,
    servers: Vec<(String, LiveServer)>,
}

impl Registry {
    fn prune(&mut self) {
        self.targets.retain(|(_, target)| target.strong_count() > 0);
        self.servers.retain(|(_, server)| server.is_alive());
    }

    fn targets(&self) -> impl Iterator<Item = (&str, Arc<LiveTarget>)> {
        self.targets.iter().filter_map(|(name, it)| Some((name.as_str(), it.upgrade()?)))
    }

    /// Returns the changes in `built` that those in use cannot take.
    fn held_back(&self, built: &Built) -> HeldBack {
        let mut held = HeldBack::default();
        let add = |to: &mut BTreeMap<String, BTreeSet<_>>, name: &str, keys: &[&'static str]| {
            to.entry(name.to_owned()).or_default().extend(keys);
        };
        for (name, target) in self.targets() {
            if let Some(builder) = built.targets.get(name) {
                add(&mut held.targets, name, target.held_back(builder));
            }
        }
        for (name, server) in &self.servers {
            if let Some(builder) = built.servers.get(name) {
                add(&mut held.servers, name, server.held_back(builder));
            }
        }
        held
    }

    /// Gives those in use what they can take. One that the file has no longer stays as it is. The
    /// servers are to be dropped without a lock.
    fn update(&self, built: &Built) -> Vec<rpc_core::Server> {
        for (name, target) in self.targets() {
            if let Some(builder) = built.targets.get(name) {
                target.update(builder);
            }
        }
        let servers = self.servers.iter();
        servers.filter_map(|(name, server)| server.update(built.servers.get(name)?)).collect()
    }
}

impl Shared {
    pub(crate) fn new(loaded: Loaded, path: Option<&Path>) -> Self {
        let (uses, schemes) = (Uses::None, CustomSchemes::default());
        let state = State { loaded: Arc::new(loaded), uses, schemes, last_reload: None };
        Self { path: path.map(Path::to_owned), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Keeps the result of a reload for operators.
    pub(super) fn reloaded(&self, result: &Result<Reload, SettingsError>) {
        let result = match result {
            Ok(reload) => Ok(reload.changes.iter().map(ToString::to_string).collect()),
            Err(error) => Err(error.to_string()),
        };
        self.state().last_reload = Some((SystemTime::now(), result));
    }

    /// Returns the settings that were read last.
    pub(crate) fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.state().loaded)
    }

    /// Registers a scheme for all targets.
    pub(crate) fn register(&self, scheme: CustomScheme) {
        self.state().schemes.register(scheme);
    }

    /// A builder of a channel to a target, which is watched where the settings are. The lock is
    /// held while it is made: a reload would find it in neither of its states.
    pub(crate) fn target(&self, name: &str) -> Result<ChannelBuilder, SettingsError> {
        let (loaded, schemes) = {
            let state = self.state();
            (Arc::clone(&state.loaded), state.schemes.clone())
        };
        // A factory is the program's, which may make another channel of these settings.
        if let Some(reason) = schemes.refusal(loaded.channel_builder(name)?.address()) {
            return Err(loaded.misplaced_address(name, reason));
        }
        let mut state = self.state();
        let builder = state.loaded.channel_builder(name)?.set_schemes(schemes);
        let Uses::Watched(registry) = &mut state.uses else {
            state.uses = Uses::Unwatched;
            return Ok(builder);
        };
        registry.prune();
        let (builder, target) = builder.live(format!("targets.{name}"));
        registry.targets.push((name.to_owned(), Arc::downgrade(&target)));
        Ok(builder)
    }

    /// The address and a builder of a server, and what makes it known once it listens.
    pub(crate) fn server(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<(Address, ServerBuilder, Registration), SettingsError> {
        let mut state = self.state();
        let loaded = Arc::clone(&state.loaded);
        let (address, builder) = loaded.server_builder(name)?;
        if let Uses::None = state.uses {
            state.uses = Uses::Unwatched;
        }
        let (shared, name, tls) = (Arc::clone(self), name.to_owned(), builder.tls_handle());
        let registration = Registration { shared, name, loaded, tls: tls.cloned() };
        Ok((address, builder, registration))
    }

    /// Lets everything that is made from now on take new values, and returns the file.
    pub(super) fn watch(&self) -> Result<PathBuf, SettingsError> {
        let mut state = self.state();
        let origin = || state.loaded.places.origin().to_owned();
        let refuse = |reason: &str| {
            Err(SettingsFault::Unwatchable { origin: origin(), reason: reason.to_owned() }.into())
        };
        let Some(path) = &self.path else { return refuse("the settings are text, not a file") };
        match state.uses {
            Uses::None => {}
            Uses::Unwatched => {
                return refuse(
                    "an existing channel or server would not change: call `watch` right after \
                     `load`",
                );
            }
            Uses::Watched(_) => return refuse("the file is already being watched"),
        }
        state.uses = Uses::Watched(Registry::default());
        Ok(path.clone())
    }

    /// Checks that the servers in use have the methods and services that `built`, which `new` made,
    /// names.
    pub(super) fn check_methods(&self, new: &Loaded, built: &Built) -> Result<(), SettingsError> {
        // Servers are dropped without the lock: this may have the last handle.
        let servers: Vec<_> = match &self.state().uses {
            Uses::Watched(registry) => registry.servers.iter(),
            Uses::None | Uses::Unwatched => [].iter(),
        }
        .filter_map(|(name, it)| Some((name.clone(), it.resolved(built.servers.get(name)?)?)))
        .collect();
        servers.iter().try_for_each(|(name, (server, settings))| {
            let checked = server.check_methods(&settings.base);
            checked.map_err(|error| new.not_served(name, &error))
        })
    }

    /// Checks that the targets in use can have the addresses that `built`, which `new` made, gives
    /// them.
    pub(super) fn check_addresses(&self, new: &Loaded, built: &Built) -> Result<(), SettingsError> {
        let (schemes, names) = {
            let state = self.state();
            let Uses::Watched(registry) = &state.uses else { return Ok(()) };
            let names: BTreeSet<_> = registry.targets().map(|(name, _)| name.to_owned()).collect();
            (state.schemes.clone(), names)
        };
        names.iter().try_for_each(|name| {
            let address = built.targets.get(name).map(ChannelBuilder::address);
            match address.and_then(|address| schemes.refusal(address)) {
                Some(reason) => Err(new.misplaced_address(name, reason)),
                None => Ok(()),
            }
        })
    }

    /// Puts `new`, which was checked by making `built`, in the place of what was read before.
    pub(super) fn apply(&self, new: Loaded, built: &Built, log_filter: LogFilter) -> Reload {
        let mut state = self.state();
        let mut none = Registry::default();
        let State { loaded, uses, .. } = &mut *state;
        let registry = match uses {
            Uses::Watched(registry) => registry,
            Uses::None | Uses::Unwatched => &mut none,
        };
        registry.prune();
        let held = HeldBack { log_filter, ..registry.held_back(built) };
        let changes = changes(loaded, &new, &held);
        let servers = registry.update(built);
        *loaded = Arc::new(new);
        drop(state);
        drop(servers);
        Reload { changes }
    }

    /// Returns the numbers of known targets with channels and of known servers.
    #[cfg(test)]
    pub(crate) fn known(&self) -> (usize, usize) {
        match &self.state().uses {
            Uses::Watched(registry) => (registry.targets.len(), registry.servers.len()),
            Uses::None | Uses::Unwatched => (0, 0),
        }
    }
}

/// Makes a server known to the settings that it is of.
#[derive(Debug)]
pub(crate) struct Registration {
    shared: Arc<Shared>,
    name: String,
    /// Settings that the server was made from.
    loaded: Arc<Loaded>,
    tls: Option<ServerTls>,
}

/// The settings of a server, as operators see them.
struct View {
    shared: Arc<Shared>,
    server: String,
}

impl SettingsView for View {
    fn source(&self, key: &[String]) -> Option<String> {
        let loaded = self.shared.loaded();
        let key: Vec<&str> = key.iter().map(String::as_str).collect();
        let tables: [&[&str]; 2] = [&["servers", &self.server], &["defaults", "server"]];
        tables.iter().find_map(|table| loaded.places.source(&[*table, &key].concat()))
    }

    fn last_reload(&self) -> Option<(SystemTime, Result<Vec<String>, String>)> {
        self.shared.state().last_reload.clone()
    }
}

impl Origin for Registration {
    fn view(&self) -> Arc<dyn SettingsView> {
        Arc::new(View { shared: Arc::clone(&self.shared), server: self.name.clone() })
    }

    fn describe(&self, error: &NotServed) -> String {
        self.loaded.not_served(&self.name, error).to_string()
    }

    fn register(self: Box<Self>, server: &Server, code: ServerOverlay) {
        let mut state = self.shared.state();
        let State { loaded, uses, .. } = &mut *state;
        let Uses::Watched(registry) = uses else { return };
        registry.prune();
        let live = LiveServer::new(server, self.tls, code);
        // A reload came between: what it has read was checked then. A file of TLS that was damaged
        // since is the next reload's to tell.
        if !Arc::ptr_eq(loaded, &self.loaded)
            && let Ok((_, builder)) = loaded.server_builder(&self.name)
        {
            // The caller has it, too. A name that the server does not have means nothing until the
            // next reload, which refuses it.
            drop(live.update(&builder));
        }
        registry.servers.push((self.name, live));
    }
}
