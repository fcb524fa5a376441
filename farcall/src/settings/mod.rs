//! Configuration as data: servers and targets by name, from a TOML file and the environment.
//!
//! [`layers`] joins the file and the environment, [`strays`] finds variables that would set
//! nothing, [`places`] says where each value came from, [`table`], [`tables`], [`balance`] and
//! [`methods`] say which keys there are, [`value`] how values are written and [`checks`] which are
//! right, and [`apply`] gives them to the builders.

mod apply;
mod balance;
mod checks;
mod encryption;
mod error;
mod invalid;
mod layers;
mod methods;
mod places;
mod server;
mod strays;
mod table;
mod tables;
mod value;

use std::path::Path;
use std::sync::Arc;

pub use error::{Misplaced, SettingsError};
pub use server::ConfiguredServer;

use self::encryption::Wrong;
use self::invalid::Invalid;
use self::places::{Places, dotted};
use self::table::{Table, unknown};
use self::tables::{Root, ServerTable, TargetTable};
use crate::{Channel, ChannelBuilder, Rdma, Server};

/// Servers and targets by name, with their settings, from a file and the environment.
///
/// ```toml
/// [targets.inventory]
/// address = "auto://10.0.0.1:7000"    # RDMA when both sides can; tcp:// or rdma:// to choose
/// timeout = "2s"
///
/// [servers.orders]
/// address = "auto://0.0.0.0:7001"
/// limits.max_message_len = "64 MiB"
///
/// [rdma]
/// devices = ["mlx5_0"]
/// ```
///
/// A variable of the environment replaces a value of the file:
/// `FARCALL__TARGETS__INVENTORY__ADDRESS` is `targets.inventory.address`. Its value is TOML where
/// it can be read as that, as `8`, `true` or `["mlx5_0"]`, and text otherwise. What the program
/// sets in code takes precedence over both. A variable of a target or server that the file does not
/// have is an error, and so is one with a single underscore between its parts: both would set
/// nothing, in silence. To set a target by variables alone, write its empty table into the file.
///
/// Every key, with its documentation and default, stands in [`Settings::reference`]. A key that
/// does not exist, a value of another type and one that makes no sense are errors that name the
/// line, or the variable.
///
/// All channels and servers of one `Settings` share its RDMA devices ([`Settings::rdma`]); clones
/// are the same.
///
/// # Examples
///
/// ```no_run
/// # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn std::error::Error>> {
/// let settings = farcall::Settings::load("farcall.toml")?;
/// let channel = settings.channel("inventory")?;
/// settings.server("orders")?.add_service(service).serve().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Settings {
    places: Arc<Places>,
    root: Root,
    rdma: Rdma,
}

impl Settings {
    /// Reads a file, and the variables of the environment that begin with `FARCALL__`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or it or the environment says what cannot be.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, SettingsError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|reason| SettingsError::unreadable(path, reason))?;
        // What is no Unicode cannot be meant for us: our names and values are.
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        });
        Self::new(&path.display().to_string(), &text, environment)
    }

    /// Reads a text as [`Settings::load`] reads a file, and no environment. `origin` is its name in
    /// messages.
    ///
    /// # Errors
    ///
    /// When the text says what cannot be.
    ///
    /// # Examples
    ///
    /// ```
    /// let text = "[targets.inventory]\naddress = \"tcp//inventory:7000\"";
    /// let error = farcall::Settings::parse("example", text).unwrap_err();
    /// assert!(error.to_string().starts_with("example:2:11: targets.inventory.address: "));
    /// ```
    pub fn parse(origin: &str, text: &str) -> Result<Self, SettingsError> {
        Self::new(origin, text, std::iter::empty())
    }

    fn new(
        origin: &str,
        text: &str,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let (root, places) = layers::read(origin, text, environment)?;
        let mut settings = Self { places: Arc::new(places), root, rdma: Rdma::default() };
        let config = settings.root.rdma.config();
        settings.rdma = Rdma::new(config.map_err(|error| settings.invalid(&[&[]], &error.into()))?);
        // What values of several keys say together is checked here, and not at the first call.
        for name in settings.root.targets.0.keys() {
            settings.channel_builder(name).map(drop)?;
        }
        for name in settings.root.servers.0.keys() {
            settings.server(name).map(drop)?;
        }
        Ok(settings)
    }

    /// The same settings with the RDMA devices of another handle, in the place of those that the
    /// table `rdma` describes: one that the program shares with others, or a simulated one.
    #[must_use]
    pub fn with_rdma(mut self, rdma: &Rdma) -> Self {
        self.rdma = rdma.clone();
        self
    }

    /// The handle to the RDMA devices of all channels and servers of these settings.
    #[must_use]
    pub fn rdma(&self) -> &Rdma {
        &self.rdma
    }

    /// A channel to the target of that name, which connects at its first call.
    ///
    /// # Errors
    ///
    /// When there is no such target.
    pub fn channel(&self, name: &str) -> Result<Channel, SettingsError> {
        self.channel_builder(name).map(ChannelBuilder::connect_lazy)
    }

    /// A builder of a channel to the target of that name, for settings in code and to connect at
    /// once.
    ///
    /// # Errors
    ///
    /// When there is no such target.
    pub fn channel_builder(&self, name: &str) -> Result<ChannelBuilder, SettingsError> {
        let targets = &self.root.targets.0;
        let Some(target) = targets.get(name) else {
            let known = targets.keys().map(String::as_str);
            return Err(self.missing(unknown("target", name, known)));
        };
        let target: TargetTable = target.clone().or(&self.root.defaults.target);
        let Some(address) = &target.address else {
            return Err(self.missing(format!("targets.{name} has no `address`")));
        };
        let builder = ChannelBuilder::new(address.clone()).rdma(&self.rdma);
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

    /// The server of that name, without services yet.
    ///
    /// # Errors
    ///
    /// When there is no such server.
    pub fn server(&self, name: &str) -> Result<ConfiguredServer, SettingsError> {
        let servers = &self.root.servers.0;
        let Some(server) = servers.get(name) else {
            let known = servers.keys().map(String::as_str);
            return Err(self.missing(unknown("server", name, known)));
        };
        let server: ServerTable = server.clone().or(&self.root.defaults.server);
        let Some(address) = &server.address else {
            return Err(self.missing(format!("servers.{name} has no `address`")));
        };
        let builder = server.apply(Server::builder().rdma(&self.rdma));
        let tables: [&[&str]; 2] = [&["servers", name], &["defaults", "server"]];
        let builder = builder.map_err(|error| self.invalid(&tables, &error))?;
        let tls = server.tls.tls().map_err(|wrong| self.wrong(&tables, &wrong))?;
        let builder = builder.set_tls(tls);
        if let Some(message) = builder.refusal(address) {
            let key = server.tls.switch().unwrap_or("require_encryption");
            return Err(self.wrong(&tables, &Wrong { key, message: message.to_owned() }));
        }
        Ok(ConfiguredServer::new(address.clone(), builder))
    }

    /// The names of the targets.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.root.targets.0.keys().map(String::as_str)
    }

    /// The names of the servers.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.root.servers.0.keys().map(String::as_str)
    }

    /// A file with every key, its documentation and its default, all commented out.
    #[must_use]
    pub fn reference() -> String {
        let mut text = String::from(
            "# Every setting of a program that uses farcall, with its default.\n\
             # A variable of the environment replaces a value: targets.inventory.timeout is\n\
             # FARCALL__TARGETS__INVENTORY__TIMEOUT. The file has to have the table of its target\n\
             # or server, which may be empty. What the program sets in code replaces both.\n\
             # [defaults.target] and [defaults.server] have the same keys, for all of a kind.\n",
        );
        Root::describe("", &mut text);
        text
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

    fn misplaced(&self, tables: &[&[&str]], names: &[&str], message: String) -> SettingsError {
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

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
