//! Schemes of addresses that the program registers.

use super::ChannelBuilder;
use crate::resolve::CustomScheme;
#[cfg(feature = "settings")]
use crate::resolve::CustomSchemes;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Channel;
    use crate::resolve::StaticEndpoints;

    #[tokio::test]
    async fn an_unregistered_scheme_is_named_with_its_crate() {
        for (address, reason) in [
            ("etcd+tcp://127.0.0.1:2379/shop", "etcd:// needs the crate farcall-etcd: "),
            ("xds:///inventory", "xds:// needs the crate farcall-xds: "),
            ("tpc://host:1", "unknown scheme: use auto, rdma, tcp, unix, inproc, grpc, "),
        ] {
            let error = Channel::connect(address).await.unwrap_err().to_string();
            let expected = format!("cannot connect to {address}: ");
            assert!(error.starts_with(&expected) && error.contains(reason), "{error}");
        }
    }

    #[tokio::test]
    async fn an_endpoint_of_a_resolver_is_a_server() {
        let scheme = CustomScheme::new("rack", |_| {
            Ok(StaticEndpoints::new([crate::balance::Endpoint::new("rack://7")]))
        });
        let builder = Channel::builder("rack://7").unwrap().scheme(scheme);
        let error = builder.connect().await.unwrap_err().to_string();
        assert!(error.contains("unknown scheme: use auto, rdma, tcp, unix, "), "{error}");
    }
}
