//! What was read, and the builders that it makes.

use std::collections::BTreeMap;

use rpc_core::server::NotServed;
use rpc_core::settings::Table as _;

use super::encryption::Wrong;
use super::error::SettingsError;
use super::invalid::Invalid;
use super::layers::{self, Document};
use super::places::{Places, dotted};
use super::rdma;
use super::table::unknown;
use super::tables::{Root, ServerTable, TargetTable};
use crate::rdma::Rdma;
use crate::{Address, ChannelBuilder, Server, ServerBuilder};

/// A file and an environment that were read.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(super) places: Places,
    pub(super) root: Root,
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
        // A table that lacks a key is not the one that was meant: nothing more is said of it.
        let is_whole = |table: &str, name: &str| {
            !left_out.iter().any(|key| match key.as_slice() {
                [first, second, ..] if first == "defaults" => format!("{second}s") == table,
                [first, second, ..] => first == table && (second == name || name.is_empty()),
                [first] => first == table,
                [] => false,
            })
        };
        mistakes.extend(loaded.build_those(is_whole).err().into_iter().flatten());
        Err(SettingsError::joined(mistakes))
    }

    /// Builds everything once, since values of several keys are checked together.
    pub(super) fn build(&self) -> Result<Built, SettingsError> {
        self.build_those(|_, _| true).map_err(SettingsError::joined)
    }

    /// Builds the targets and servers that `is_due` holds for, by their table and their name.
    ///
    /// # Errors
    ///
    /// Returns the mistake of each one that cannot be built.
    fn build_those(
        &self,
        is_due: impl Fn(&str, &str) -> bool,
    ) -> Result<Built, Vec<SettingsError>> {
        let mut mistakes = Vec::new();
        let mut built = Built { targets: BTreeMap::new(), servers: BTreeMap::new() };
        if let Err(error) = rdma::check(&self.root.rdma) {
            mistakes.extend(is_due("rdma", "").then(|| self.invalid(&[&[]], &error.into())));
        }
        for name in self.root.targets.0.keys().filter(|name| is_due("targets", name)) {
            match self.channel_builder(name) {
                Ok(builder) => drop(built.targets.insert(name.clone(), builder)),
                Err(error) => mistakes.push(error),
            }
        }
        for name in self.root.servers.0.keys().filter(|name| is_due("servers", name)) {
            match self.server_builder(name) {
                Ok((_, builder)) => drop(built.servers.insert(name.clone(), builder)),
                Err(error) => mistakes.push(error),
            }
        }
        if mistakes.is_empty() { Ok(built) } else { Err(mistakes) }
    }

    /// Makes the handle to RDMA devices.
    pub(super) fn rdma(&self) -> Result<Rdma, SettingsError> {
        let handle = rdma::handle(&self.root.rdma, &self.places);
        handle.map_err(|error| self.invalid(&[&[]], &error.into()))
    }

    /// A builder of a channel to a target.
    pub(super) fn channel_builder(&self, name: &str) -> Result<ChannelBuilder, SettingsError> {
        let targets = &self.root.targets.0;
        let Some(target) = targets.get(name) else {
            let known = targets.keys().map(String::as_str);
            return Err(self.missing(unknown("target", name, known)));
        };
        let target: TargetTable = target.clone().or(&self.root.defaults.target);
        let Some(address) = &target.address else {
            return Err(self.missing(format!("targets.{name} has no `address`")));
        };
        let builder = ChannelBuilder::new(address.clone());
        let tables: [&[&str]; 2] = [&["targets", name], &["defaults", "target"]];
        let built = target.apply(builder);
        let builder = built.map_err(|error| self.invalid(&tables, &error))?;
        let tls = target.tls.tls().map_err(|wrong| self.wrong(&tables, &wrong))?;
        let builder = builder.set_tls(tls);
        let refused = |message: &str| {
            let required = target.require_encryption.filter(|it| *it).map(|_| "require_encryption");
            let key = target.tls.switch().or(required).unwrap_or("address");
            self.wrong(&tables, &Wrong { key, message: message.to_owned() })
        };
        builder.refusal().map_or(Ok(builder), |message| Err(refused(message)))
    }

    /// The address and a builder of a server.
    pub(super) fn server_builder(
        &self,
        name: &str,
    ) -> Result<(Address, ServerBuilder), SettingsError> {
        let servers = &self.root.servers.0;
        let Some(server) = servers.get(name) else {
            let known = servers.keys().map(String::as_str);
            return Err(self.missing(unknown("server", name, known)));
        };
        let server: ServerTable = server.clone().or(&self.root.defaults.server);
        let Some(address) = &server.address else {
            return Err(self.missing(format!("servers.{name} has no `address`")));
        };
        let builder = server.apply(Server::builder());
        let tables: [&[&str]; 2] = [&["servers", name], &["defaults", "server"]];
        let builder = builder.map_err(|error| self.invalid(&tables, &error))?;
        let tls = server.tls.tls().map_err(|wrong| self.wrong(&tables, &wrong))?;
        let builder = builder.set_tls(tls).by_settings();
        if let Some(message) = builder.refusal(address) {
            let key = server.tls.switch().unwrap_or("require_encryption");
            return Err(self.wrong(&tables, &Wrong { key, message: message.to_owned() }));
        }
        if let Some(message) = builder.refusal_of_proxies(address) {
            let wrong = Wrong { key: "proxy_protocol.from", message: message.to_owned() };
            return Err(self.wrong(&tables, &wrong));
        }
        Ok((address.clone(), builder))
    }

    /// A method or a service that is named in the settings of a server that does not have it.
    pub(super) fn not_served(&self, server: &str, error: &NotServed) -> SettingsError {
        let tables: [&[&str]; 2] = [&["servers", server], &["defaults", "server"]];
        // A method's first slash may be left out.
        let bare = error.name.trim_start_matches('/');
        let is_bare = |table: &&[&str]| {
            let key = [*table, &["methods", bare, "compress_from"]].concat();
            self.places.of_value(&key).is_some()
        };
        let name = if tables.iter().any(is_bare) { bare } else { &error.name };
        self.misplaced(&tables, &["methods", name, "compress_from"], error.to_string())
    }

    /// Settings that cannot be together, named by one of them: the first of the tables that has it
    /// gave its value, and none did where the value is built in.
    fn invalid(&self, tables: &[&[&str]], invalid: &Invalid) -> SettingsError {
        let message = format!("it is {}: it has to be {}", invalid.value, invalid.rule);
        let names: Vec<&str> = invalid.key.iter().map(String::as_str).collect();
        self.misplaced(tables, &names, message)
    }

    /// A table `tls` that cannot be used, named by one of its keys.
    fn wrong(&self, tables: &[&[&str]], wrong: &Wrong) -> SettingsError {
        let names: Vec<&str> = wrong.key.split('.').collect();
        self.misplaced(tables, &names, wrong.message.clone())
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
            if let Some(place) = self.places.of_value(key) {
                return self.places.error(place, Some(dotted(key)), message);
            }
        }
        self.missing(format!("{}: {message}", dotted(&keys[0])))
    }

    fn missing(&self, message: String) -> SettingsError {
        SettingsError::Missing { origin: self.places.origin().to_owned(), message }
    }
}
