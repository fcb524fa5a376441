//! Parsed settings, and the builders made from them.

use std::collections::BTreeMap;

use rpc_core::server::NotServed;
use rpc_core::settings::Table as _;

use super::apply::{self, check_server};
use super::encryption::Wrong;
use super::error::{SettingsError, SettingsFault};
use super::invalid::{Conflicts, Invalid};
use super::layers::{self, Document};
use super::left_out::{Gaps, LeftOut};
use super::places::{Places, dotted};
use super::rdma;
use super::table::unknown;
use super::tables::{Root, ServerTable, TargetTable};
use crate::address::NO_SOCKET_SCHEME;
use crate::rdma::Rdma;
use crate::{Address, ChannelBuilder, ServerBuilder};

/// A file and an environment that were read.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(super) places: Places,
    pub(super) root: Root,
}

/// Stands for an address that is missing, so that the rest of its table is checked.
fn no_address() -> Address {
    Address::Tcp(String::new())
}

/// The builders of all targets and servers, which have read their TLS files.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) targets: BTreeMap<String, ChannelBuilder>,
    pub(super) servers: BTreeMap<String, ServerBuilder>,
}

impl Loaded {
    /// Reads a text and the variables of an environment.
    pub(super) fn read(
        origin: &str,
        text: &str,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let document = layers::read(origin, text, environment)?;
        let Document { root, places, mut mistakes, left_out } = document;
        let loaded = Self { places, root };
        if mistakes.is_empty() {
            return Ok(loaded);
        }
        mistakes.extend(loaded.build_beside(&left_out).err().into_iter().flatten());
        Err(SettingsError::joined(mistakes))
    }

    /// Builds everything once, since values of several keys are checked together.
    pub(super) fn build(&self) -> Result<Built, SettingsError> {
        self.build_beside(&LeftOut::default()).map_err(SettingsError::joined)
    }

    /// Builds everything, without what comes of keys that were left out.
    ///
    /// # Errors
    ///
    /// Returns every mistake.
    fn build_beside(&self, left_out: &LeftOut) -> Result<Built, Vec<SettingsError>> {
        let mut mistakes = Vec::new();
        let mut built = Built { targets: BTreeMap::new(), servers: BTreeMap::new() };
        let gaps = left_out.within(&[&[]]);
        let faults = rdma::faults(&self.root.rdma).into_iter().map(Invalid::from);
        mistakes.extend(self.conflicts(&[&[]], &gaps, faults));
        for name in self.root.targets.0.keys() {
            match self.channel_builder_beside(name, left_out) {
                Ok(builder) => drop(built.targets.insert(name.clone(), builder)),
                Err(errors) => mistakes.extend(errors),
            }
        }
        for name in self.root.servers.0.keys() {
            match self.server_builder_beside(name, left_out) {
                Ok((_, builder)) => drop(built.servers.insert(name.clone(), builder)),
                Err(errors) => mistakes.extend(errors),
            }
        }
        if mistakes.is_empty() { Ok(built) } else { Err(mistakes) }
    }

    /// Makes the handle to RDMA devices.
    pub(super) fn rdma(&self) -> Rdma {
        rdma::handle(&self.root.rdma, &self.places)
    }

    /// A builder of a channel to a target.
    pub(super) fn channel_builder(&self, name: &str) -> Result<ChannelBuilder, SettingsError> {
        self.channel_builder_beside(name, &LeftOut::default()).map_err(SettingsError::joined)
    }

    fn channel_builder_beside(
        &self,
        name: &str,
        left_out: &LeftOut,
    ) -> Result<ChannelBuilder, Vec<SettingsError>> {
        let targets = &self.root.targets.0;
        let Some(target) = targets.get(name) else {
            let known = targets.keys().map(String::as_str);
            return Err(vec![self.missing(unknown("target", name, known))]);
        };
        let target: TargetTable = target.clone().or(&self.root.defaults.target);
        let tables: [&[&str]; 2] = [&["targets", name], &["defaults", "target"]];
        let gaps = left_out.within(&tables);
        let (tls, has_address) = (target.tls.clone(), target.address.is_some());
        let address = target.address.clone().unwrap_or_else(no_address);
        let mut found = Conflicts::default();
        let requires_encryption = target.settings.require_encryption;
        let builder = apply::channel(address, target, &mut found);
        let mut mistakes = self.conflicts(&tables, &gaps, found.0);
        let switch = tls.switch();
        let tls = tls.tls().map_err(|all| mistakes.extend(self.wrong(&tables, &gaps, all)));
        // What is left out is known to be wrong, and so is not what it makes of the rest.
        let is_whole = !gaps.touch(&["address", "tls", "require_encryption"]);
        if !has_address && !gaps.explain(&["address"]) {
            mistakes.push(self.missing(format!("targets.{name} has no `address`")));
        }
        let Ok(tls) = tls else { return Err(mistakes) };
        let builder = builder.set_tls(tls);
        if let Some(message) = builder.refusal().filter(|_| is_whole && has_address) {
            let required = requires_encryption.filter(|it| *it).map(|_| "require_encryption");
            let key = switch.or(required).unwrap_or("address");
            mistakes.extend(self.wrong(&tables, &gaps, [Wrong::new(key, message)]));
        }
        if mistakes.is_empty() { Ok(builder) } else { Err(mistakes) }
    }

    /// The address and a builder of a server.
    pub(super) fn server_builder(
        &self,
        name: &str,
    ) -> Result<(Address, ServerBuilder), SettingsError> {
        self.server_builder_beside(name, &LeftOut::default()).map_err(SettingsError::joined)
    }

    fn server_builder_beside(
        &self,
        name: &str,
        left_out: &LeftOut,
    ) -> Result<(Address, ServerBuilder), Vec<SettingsError>> {
        let servers = &self.root.servers.0;
        let Some(server) = servers.get(name) else {
            let known = servers.keys().map(String::as_str);
            return Err(vec![self.missing(unknown("server", name, known))]);
        };
        let server: ServerTable = server.clone().or(&self.root.defaults.server);
        let ServerTable { address, tls, settings } = server;
        let tables: [&[&str]; 2] = [&["servers", name], &["defaults", "server"]];
        let gaps = left_out.within(&tables);
        let mut found = Conflicts::default();
        check_server(&settings, &mut found);
        let mut mistakes = self.conflicts(&tables, &gaps, found.0);
        let switch = tls.switch();
        let tls = tls.tls().map_err(|all| mistakes.extend(self.wrong(&tables, &gaps, all)));
        if address.is_none() && !gaps.explain(&["address"]) {
            mistakes.push(self.missing(format!("servers.{name} has no `address`")));
        }
        let (Ok(tls), Some(address)) = (tls, address) else { return Err(mistakes) };
        let builder = ServerBuilder::with_file(settings).set_tls(tls);
        let refused = builder
            .refusal(&address)
            .map(|message| Wrong::new(switch.unwrap_or("require_encryption"), message));
        let refused = refused.filter(|_| !gaps.touch(&["tls", "require_encryption"]));
        let conflict = builder.proxy_refusal(&address);
        let conflict = conflict.map(|message| Wrong::new("proxy_protocol.from", message));
        let unknown = matches!(address, Address::Custom(_));
        let unknown = unknown.then(|| Wrong::new("address", NO_SOCKET_SCHEME));
        let wrong = refused.into_iter().chain(conflict).chain(unknown);
        mistakes.extend(self.wrong(&tables, &gaps, wrong));
        if mistakes.is_empty() { Ok((address, builder)) } else { Err(mistakes) }
    }

    /// An error that says why the channels of a target cannot have its address.
    pub(super) fn misplaced_address(&self, target: &str, reason: String) -> SettingsError {
        let tables: [&[&str]; 2] = [&["targets", target], &["defaults", "target"]];
        self.misplaced(&tables, &["address"], reason)
    }

    /// A method or a service that is named in the settings of a server that does not have it.
    pub(super) fn not_served(&self, server: &str, error: &NotServed) -> SettingsError {
        let tables: [&[&str]; 2] = [&["servers", server], &["defaults", "server"]];
        // A method's first slash may be left out.
        let bare = error.name.trim_start_matches('/');
        let is_bare = |table: &&[&str]| {
            let key = [*table, &["methods", bare, "compress_from"]].concat();
            self.places.value_range(&key).is_some()
        };
        let name = if tables.iter().any(is_bare) { bare } else { &error.name };
        self.misplaced(&tables, &["methods", name, "compress_from"], error.to_string())
    }

    /// Settings that cannot be together, each named by one of them: the first of the tables that
    /// has it gave its value, and none did where the value is built in.
    fn conflicts(
        &self,
        tables: &[&[&str]],
        gaps: &Gaps<'_>,
        found: impl IntoIterator<Item = Invalid>,
    ) -> Vec<SettingsError> {
        let mut all = Vec::new();
        for Invalid { key, value, rule } in found {
            let names: Vec<&str> = key.iter().map(String::as_str).collect();
            if !gaps.explain(&names) {
                let message = format!("is {value}, but must be {rule}");
                all.push(self.misplaced(tables, &names, message));
            }
        }
        all
    }

    /// Places the mistakes in a table `tls` or in its use, each by one of its keys.
    fn wrong(
        &self,
        tables: &[&[&str]],
        gaps: &Gaps<'_>,
        found: impl IntoIterator<Item = Wrong>,
    ) -> Vec<SettingsError> {
        let named = found.into_iter().map(|it| (it.key.split('.').collect::<Vec<_>>(), it.message));
        let due = named.filter(|(names, _)| !gaps.explain(names));
        due.map(|(names, message)| self.misplaced(tables, &names, message)).collect()
    }

    /// A value that cannot be, named by the first of the tables that has its key.
    pub(super) fn misplaced(
        &self,
        tables: &[&[&str]],
        names: &[&str],
        message: String,
    ) -> SettingsError {
        let keys = tables.iter().map(|table| [*table, names].concat());
        let keys: Vec<_> = keys.collect();
        for key in &keys {
            if let Some(place) = self.places.value_range(key) {
                return self.places.error(place, Some(dotted(key)), message);
            }
        }
        self.missing(format!("{}: {message}", dotted(&keys[0])))
    }

    fn missing(&self, message: String) -> SettingsError {
        SettingsFault::Missing { origin: self.places.origin().to_owned(), message }.into()
    }
}
