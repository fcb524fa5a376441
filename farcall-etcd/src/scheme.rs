//! `etcd://`: addresses of servers that have registered with etcd.

use std::time::Duration;

use farcall::resolve::{CustomAddress, CustomScheme};
use farcall::{Address, AddressError, Backoff, Channel};

use crate::resolver::Etcd;

/// The host and port of etcd if an address names none.
const ENDPOINT: &str = "127.0.0.1:2379";

/// Returns the scheme `etcd://host:port/prefix`, for servers that have registered under a prefix
/// with the etcd at `host:port`, without TLS. `etcd:///prefix` uses the etcd at port 2379 of this
/// host.
///
/// [`Etcd`] takes a channel to etcd with its own settings, such as TLS.
#[must_use]
pub fn scheme() -> CustomScheme {
    CustomScheme::new("etcd", resolver)
}

fn resolver(address: &CustomAddress) -> Result<Etcd, AddressError> {
    let error = |reason: String| AddressError::new(address.to_string(), reason);
    let (endpoint, prefix) = address.rest.split_once('/').unwrap_or((&address.rest, ""));
    let prefix = prefix.trim_end_matches('/');
    if prefix.is_empty() {
        let example = "etcd:// needs a key prefix, such as etcd://10.0.0.9:2379/services/shop";
        return Err(error(example.to_owned()));
    }
    let endpoint = if endpoint.is_empty() { ENDPOINT } else { endpoint };
    let channel = match Channel::builder(format!("grpc://{endpoint}")) {
        Ok(builder) if matches!(builder.address(), Address::Grpc(_)) => {
            // Short, because the resolver's own delays come on top: servers are known within
            // seconds of etcd's return.
            let backoff = Backoff::default().with_max_delay(Duration::from_secs(5));
            builder.connect_backoff(backoff).connect_lazy()
        }
        Ok(_) => return Err(error("etcd:// takes one host and port".to_owned())),
        Err(wrong) => return Err(error(format!("the host and port of etcd: {wrong}"))),
    };
    let resolver = Etcd::new(channel, format!("/{prefix}"), address.scheme);
    Ok(resolver.named(address.to_string()))
}

#[cfg(test)]
mod tests {
    use farcall::resolve::Resolve as _;

    use super::*;

    fn resolve(text: &str) -> Result<Etcd, AddressError> {
        let Ok(Address::Custom(address)) = text.parse() else { panic!("{text} is custom") };
        resolver(&address)
    }

    #[test]
    fn addresses_name_etcd_and_a_prefix() {
        for (text, prefix) in [
            ("etcd://10.0.0.9:2379/services/shop", "/services/shop/"),
            ("etcd+tcp://[::1]:2379/shop/", "/shop/"),
            ("ETCD:///services/shop//", "/services/shop/"),
        ] {
            let resolver = resolve(text).unwrap();
            assert_eq!(resolver.prefix, prefix);
            assert_eq!(resolver.name(), text.replace("ETCD", "etcd"));
        }
    }

    #[test]
    fn invalid_addresses_are_refused_with_a_reason() {
        for (text, reason) in [
            ("etcd://10.0.0.9:2379", "needs a key prefix, such as etcd://10.0.0.9:2379/services/"),
            ("etcd://10.0.0.9:2379//", "needs a key prefix"),
            ("etcd://10.0.0.9/shop", "`grpc://10.0.0.9` is not an address: the port is missing"),
            ("etcd://a:1,b:1/shop", "etcd:// takes one host and port"),
        ] {
            let error = resolve(text).unwrap_err().to_string();
            let expected = format!("`{text}` is not an address: ");
            assert!(error.starts_with(&expected) && error.contains(reason), "{error}");
        }
    }
}
