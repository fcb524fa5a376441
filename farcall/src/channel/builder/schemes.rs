//! Schemes of addresses that the program registers.

use super::ChannelBuilder;
use crate::resolve::{CustomScheme, CustomSchemes};

impl ChannelBuilder {
    /// Registers a scheme of addresses, in the place of another one of its name: the channel's
    /// address may have it then. Without it the channel does not connect, and says so.
    ///
    /// For the targets of a settings file, `Settings::with_scheme` does it.
    ///
    /// # Examples
    ///
    /// With the crate `farcall-etcd`:
    ///
    /// ```ignore
    /// let channel = farcall::Channel::builder("etcd://10.0.0.9:2379/services/inventory")?
    ///     .scheme(farcall_etcd::scheme())
    ///     .connect_lazy();
    /// ```
    pub fn scheme(mut self, scheme: CustomScheme) -> Self {
        self.schemes.register(scheme);
        self
    }

    /// The schemes that are registered.
    #[cfg(feature = "settings")]
    pub(super) fn schemes(&self) -> &CustomSchemes {
        &self.schemes
    }

    /// The same builder with the schemes of its settings.
    #[cfg(feature = "settings")]
    pub(crate) fn set_schemes(mut self, schemes: CustomSchemes) -> Self {
        self.schemes = schemes;
        self
    }
}
