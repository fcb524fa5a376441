//! Configuration as data: servers and targets by name, from a TOML file and the environment.
//!
//! [`layers`] joins the file and the environment, and [`reader`] reads the values of their keys.
//! [`strays`] finds variables that would set nothing, and [`places`] says where each value came
//! from. Types of the program declare their keys where they are (`rpc_core::settings`). [`tables`]
//! and [`methods`] declare all others, with types of [`value`]. [`apply`] checks the values, and
//! gives them to the builders, which [`loaded`] makes. [`reload`] reads the file again while the
//! program runs.

mod apply;
mod encryption;
mod error;
mod invalid;
mod layers;
mod left_out;
mod loaded;
mod methods;
mod places;
#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
mod rdma;
#[cfg(not(all(target_os = "linux", any(feature = "rdma", feature = "sim"))))]
#[path = "rdma/not_built_in.rs"]
mod rdma;
mod reader;
mod reload;
mod strays;
mod table;
mod tables;
mod value;

use std::path::Path;
use std::sync::Arc;

use rpc_core::settings::{Effect, Table as _};

pub use error::SettingsError;
pub use reload::{Reload, Reloader, SettingChange, TakesEffect};

use self::loaded::Loaded;
use self::reload::Shared;
use self::tables::Root;
use crate::rdma::Rdma;
use crate::resolve::CustomScheme;
use crate::{Address, Channel, ChannelBuilder, ServerBuilder};

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
/// line, or the variable. All mistakes of a file are reported together. The file is a regular one
/// of at most 1 MiB.
///
/// All channels and servers of one `Settings` share its RDMA devices ([`Settings::rdma`]); clones
/// are the same. [`Settings::watch`] has them take what the file says later.
///
/// # Examples
///
/// ```no_run
/// # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn std::error::Error>> {
/// let settings = farcall::Settings::load("farcall.toml")?;
/// let channel = settings.channel("inventory")?;
/// let (address, server) = settings.server("orders")?;
/// server.add_service(service).serve(address).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Settings {
    shared: Arc<Shared>,
    rdma: Rdma,
}

impl Settings {
    /// Reads a file, and the variables of the environment that begin with `FARCALL__`.
    ///
    /// # Errors
    ///
    /// Returns [`SettingsError`] if the file cannot be read, or has, or the environment has, a
    /// setting that is unknown, out of its range, or in conflict with another.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, SettingsError> {
        let path = path.as_ref();
        let loaded = reload::read(path)?;
        Self::of(loaded, Some(path))
    }

    /// Reads a text as [`Settings::load`] reads a file, and no environment. `origin` is its name in
    /// messages.
    ///
    /// # Errors
    ///
    /// Returns [`SettingsError`] for the text as [`Settings::load`] does for a file.
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
        Self::of(Loaded::read(origin, text, environment)?, None)
    }

    fn of(loaded: Loaded, path: Option<&Path>) -> Result<Self, SettingsError> {
        // What values of several keys say together is checked here, and not at the first call.
        loaded.build()?;
        let rdma = loaded.rdma();
        Ok(Self { shared: Arc::new(Shared::new(loaded, path)), rdma })
    }

    /// Watches the file. Channels and servers made after this call follow its changes. The
    /// [`Reloader`] reads it: [`Reloader::run`] after a change of the file, [`Reloader::reload`] at
    /// once.
    ///
    /// [`Settings::reference`] marks the keys that change while the program runs: addresses of
    /// targets, rules of calls and of servers, files of TLS. A reload reports every other changed
    /// key as taking effect at the next start.
    ///
    /// A channel to a watched target counts as one to many servers, even if its address names one:
    /// see [`Channel::endpoints`].
    ///
    /// # Errors
    ///
    /// Returns an error if there is no file, as after [`Settings::parse`]; if a channel or server
    /// was made before, since it would not change; and if the settings are watched already, since
    /// each watch would miss what the other has read.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::error::Error;
    /// # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn Error>> {
    /// let settings = farcall::Settings::load("farcall.toml")?;
    /// tokio::spawn(settings.watch()?.with_hangup()?.run());
    /// let channel = settings.channel("inventory")?;
    /// let (address, server) = settings.server("orders")?;
    /// server.add_service(service).serve(address).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch(&self) -> Result<Reloader, SettingsError> {
        Reloader::new(Arc::clone(&self.shared))
    }

    /// Returns the log filter of the table `log`, if the file sets one.
    #[must_use]
    pub fn log_filter(&self) -> Option<String> {
        self.shared.loaded().root.log.filter.clone()
    }

    /// The same settings with a scheme that the addresses of targets may have, in the place of
    /// another one of its name: `with_scheme(farcall_etcd::scheme())` for `etcd://`. It holds for
    /// all clones, and for the channels that are made later, also when the file is reloaded.
    ///
    /// # Examples
    ///
    /// With the crate `farcall-etcd`:
    ///
    /// ```ignore
    /// let settings = farcall::Settings::load("farcall.toml")?.with_scheme(farcall_etcd::scheme());
    /// let channel = settings.channel("inventory")?;
    /// ```
    #[must_use]
    pub fn with_scheme(self, scheme: CustomScheme) -> Self {
        self.shared.register(scheme);
        self
    }

    /// The same settings with the RDMA devices of another handle, in the place of those that the
    /// table `rdma` describes: one that the program shares with others, or a simulated one.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    #[must_use]
    pub fn with_rdma(mut self, rdma: &Rdma) -> Self {
        self.rdma = rdma.clone();
        self
    }

    /// The handle to the RDMA devices of all channels and servers of these settings.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    #[must_use]
    pub fn rdma(&self) -> &Rdma {
        &self.rdma
    }

    /// A channel to the target of that name, which connects at its first call.
    ///
    /// # Errors
    ///
    /// Returns [`SettingsError`] if there is no such target, or if no scheme like that of its
    /// address is registered.
    pub fn channel(&self, name: &str) -> Result<Channel, SettingsError> {
        self.channel_builder(name).map(ChannelBuilder::connect_lazy)
    }

    /// A builder of a channel to the target of that name, for settings in code and to connect at
    /// once.
    ///
    /// # Errors
    ///
    /// Returns [`SettingsError`] if there is no such target, or if no scheme like that of its
    /// address is registered.
    pub fn channel_builder(&self, name: &str) -> Result<ChannelBuilder, SettingsError> {
        Ok(self.shared.target(name)?.set_rdma(&self.rdma))
    }

    /// Returns the address of the server of that name, and a builder for its services and for
    /// settings in code.
    ///
    /// # Errors
    ///
    /// Returns [`SettingsError`] if there is no such server.
    pub fn server(&self, name: &str) -> Result<(Address, ServerBuilder), SettingsError> {
        let (address, builder, registration) = self.shared.server(name)?;
        Ok((address, builder.made_by(&self.rdma, registration)))
    }

    /// The names of the targets.
    pub fn targets(&self) -> impl Iterator<Item = String> {
        let loaded = self.shared.loaded();
        loaded.root.targets.0.keys().cloned().collect::<Vec<_>>().into_iter()
    }

    /// The names of the servers.
    pub fn servers(&self) -> impl Iterator<Item = String> {
        let loaded = self.shared.loaded();
        loaded.root.servers.0.keys().cloned().collect::<Vec<_>>().into_iter()
    }

    /// A file with every key, its documentation and its default or an example, all commented out.
    #[must_use]
    pub fn reference() -> String {
        let mut text = String::from(
            "# Every setting of a program that uses farcall, with its default, or with an example\n\
             # where it is not set by default.\n\
             # A variable of the environment replaces a value: targets.inventory.timeout is\n\
             # FARCALL__TARGETS__INVENTORY__TIMEOUT. The file has to have the table of its target\n\
             # or server, which may be empty. What the program sets in code replaces both.\n\
             # [defaults.target] and [defaults.server] have the same keys, for all of a kind.\n\
             # A program that watches the file takes new values of keys with the mark `live`\n\
             # while it runs, and of the others when it starts again.\n",
        );
        table::describe("", &Root::describe(), Effect::Live, &mut text);
        text
    }
}

#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
