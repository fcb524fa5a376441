//! Schemes of addresses that crates and programs add, such as `etcd://` and `xds://`.

use std::fmt;
use std::sync::Arc;

use rpc_core::InvalidSetting;
use rpc_core::client::endpoints::Resolve;
use rpc_core::settings::expect_valid;

use crate::address::{CustomAddress, UNKNOWN_SCHEME, is_own, is_scheme_name};
use crate::{Address, AddressError};

/// A scheme of addresses that a channel finds servers by, and the factory of its resolvers.
///
/// [`ChannelBuilder::scheme`](crate::ChannelBuilder::scheme) registers it for a channel, and
/// `Settings::with_scheme` for all targets of a settings file. The crates `farcall-etcd` and
/// `farcall-xds` have one each, `scheme()`.
///
/// # Examples
///
/// ```
/// use farcall::balance::Endpoint;
/// use farcall::resolve::{CustomAddress, CustomScheme, StaticEndpoints};
/// use farcall::{AddressError, Channel};
///
/// /// `rack://7` is the two servers of a rack.
/// fn servers(address: &CustomAddress) -> Result<StaticEndpoints, AddressError> {
///     let rack: u8 = address.rest.parse().map_err(|_| {
///         AddressError::new(address.to_string(), "what follows rack:// is not a number")
///     })?;
///     let scheme = address.scheme.as_str();
///     let endpoint = |host| Endpoint::new(format!("{scheme}://10.0.{rack}.{host}:7000"));
///     Ok(StaticEndpoints::new([1, 2].map(endpoint)))
/// }
///
/// # fn example() -> Result<(), AddressError> {
/// let rack = CustomScheme::new("rack", servers);
/// let channel = Channel::builder("rack+tcp://7")?.scheme(rack).connect_lazy();
/// # drop(channel);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CustomScheme {
    name: Arc<str>,
    factory: Arc<Factory>,
    service_name: fn(&CustomAddress) -> Option<String>,
}

type Factory = dyn Fn(&CustomAddress) -> Result<Box<dyn Resolve>, AddressError> + Send + Sync;

impl CustomScheme {
    /// A scheme whose addresses `factory` makes resolvers of. The factory runs when a channel is
    /// made, and when a reload of the settings gives a target another address. It does not block,
    /// and does not wait for servers: the resolver does.
    ///
    /// Its error says why the address is wrong. The channel does not connect then, and says so.
    ///
    /// # Panics
    ///
    /// Panics unless `name` is a scheme in lower case that farcall does not have itself: letters,
    /// digits, `-` and `.`, with a letter first.
    #[must_use]
    #[track_caller]
    pub fn new<F, R>(name: &str, factory: F) -> Self
    where
        F: Fn(&CustomAddress) -> Result<R, AddressError> + Send + Sync + 'static,
        R: Resolve,
    {
        expect_valid(check_name(name));
        let factory = move |address: &CustomAddress| -> Result<Box<dyn Resolve>, AddressError> {
            Ok(Box::new(factory(address)?))
        };
        Self { name: name.into(), factory: Arc::new(factory), service_name: |_| None }
    }

    /// Sets how the name of the service at an address is found, as `inventory.shop:7000`; there is
    /// none by default. The certificates of all its servers have to be for the host of the name,
    /// and requests over HTTP/2 have it as their `:authority`. Without a name both are the host
    /// and port of each server.
    #[must_use]
    pub fn with_service_name(mut self, find: fn(&CustomAddress) -> Option<String>) -> Self {
        self.service_name = find;
        self
    }
}

impl fmt::Debug for CustomScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomScheme").field("name", &self.name).finish_non_exhaustive()
    }
}

fn check_name(name: &str) -> Result<(), InvalidSetting> {
    let rule = match (is_own(name), is_scheme_name(name)) {
        (true, _) => "a scheme that farcall does not define",
        (_, false) => "lower case letters, digits, `-` and `.`, with a letter first",
        (false, true) => return Ok(()),
    };
    Err(InvalidSetting::new("scheme", format_args!("`{name}`"), rule))
}

/// The schemes that are registered for a channel.
#[derive(Debug, Clone, Default)]
pub(crate) struct CustomSchemes(Vec<CustomScheme>);

impl CustomSchemes {
    /// Registers a scheme in the place of another one of its name.
    pub(crate) fn register(&mut self, scheme: CustomScheme) {
        self.0.retain(|it| it.name != scheme.name);
        self.0.push(scheme);
    }

    fn find(&self, address: &CustomAddress) -> Option<&CustomScheme> {
        self.0.iter().find(|scheme| *scheme.name == *address.name)
    }

    /// Makes the resolver of an address.
    pub(crate) fn resolver(
        &self,
        address: &CustomAddress,
    ) -> Result<Box<dyn Resolve>, AddressError> {
        match self.find(address) {
            Some(scheme) => (scheme.factory)(address),
            None => Err(AddressError::new(address.to_string(), unregistered(&address.name))),
        }
    }

    /// Returns the reason why a channel cannot have `address`, if there is one.
    #[cfg(feature = "settings")]
    pub(crate) fn refusal(&self, address: &Address) -> Option<String> {
        let Address::Custom(address) = address else { return None };
        self.resolver(address).err().map(|error| error.reason().to_owned())
    }

    /// The name of the service at `address`, if it has one.
    pub(crate) fn service_name(&self, address: &Address) -> Option<String> {
        let Address::Custom(address) = address else { return None };
        self.find(address).and_then(|scheme| (scheme.service_name)(address))
    }
}

/// The reason of an address whose scheme is not registered.
fn unregistered(name: &str) -> String {
    // Schemes of crates beside farcall.
    match name {
        "etcd" | "xds" => format!(
            "{name}:// needs the crate farcall-{name}: register farcall_{name}::scheme() with \
             ChannelBuilder::scheme or Settings::with_scheme"
        ),
        _ => format!("{UNKNOWN_SCHEME}, or register `{name}` (ChannelBuilder::scheme)"),
    }
}

#[cfg(test)]
mod tests {
    use rpc_core::client::endpoints::StaticEndpoints;

    use super::*;

    fn none(_: &CustomAddress) -> Result<StaticEndpoints, AddressError> {
        Ok(StaticEndpoints::new([]))
    }

    #[test]
    fn names_of_schemes_are_checked() {
        for name in ["etcd", "xds", "consul", "a", "k8s", "my-registry.v2"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["auto", "rdma", "tcp", "unix", "inproc", "grpc", "grpcs", "dns", "https"] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.ends_with("farcall does not define"), "{error}");
        }
        for name in ["", "Consul", "7a", "a+tcp", "a://", "a b", "ä"] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.ends_with("with a letter first"), "{error}");
        }
    }

    #[test]
    #[should_panic(expected = "scheme is `tcp`: a scheme that farcall does not define")]
    fn a_scheme_of_farcalls_own_panics_where_it_is_made() {
        let _ = CustomScheme::new("tcp", none);
    }

    #[test]
    fn a_later_scheme_replaces_one_of_its_name() {
        let refuse = |address: &CustomAddress| -> Result<StaticEndpoints, _> {
            Err(AddressError::new(address.to_string(), "refused"))
        };
        let mut schemes = CustomSchemes::default();
        let Ok(Address::Custom(address)) = "rack://7".parse() else { panic!("it is custom") };
        schemes.register(CustomScheme::new("rack", refuse));
        assert_eq!(schemes.resolver(&address).err().unwrap().reason(), "refused");
        schemes.register(CustomScheme::new("rack", none));
        assert!(schemes.resolver(&address).is_ok());
        assert_eq!(schemes.0.len(), 1);
    }
}
