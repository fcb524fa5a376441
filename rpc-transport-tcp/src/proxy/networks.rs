//! The networks whose connections begin with a PROXY header.

use std::net::IpAddr;
use std::str::FromStr as _;

use ipnet::{IpNet, Ipv4Net};
use rpc_core::InvalidSetting;

const SETTING: &str = "proxy_protocol.from";
const RULE: &str = "a network such as \"10.0.0.0/8\" or \"2001:db8::/32\", or an address";

/// Bits before the IPv4 address in an IPv4-mapped IPv6 address.
const MAPPED_BITS: u8 = 96;

/// The networks whose connections begin with a PROXY header. None by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyNetworks {
    networks: Vec<IpNet>,
    /// The networks as the program wrote them.
    texts: Vec<String>,
}

impl ProxyNetworks {
    /// Creates a list of networks: each `address/bits`, or a single address.
    ///
    /// # Errors
    ///
    /// Returns an error if a text is neither.
    pub fn new<T: Into<String>>(
        networks: impl IntoIterator<Item = T>,
    ) -> Result<Self, InvalidSetting> {
        let texts: Vec<String> = networks.into_iter().map(Into::into).collect();
        let parse = |text: &String| {
            network(text).ok_or_else(|| InvalidSetting::new(SETTING, text.clone(), RULE))
        };
        let networks = texts.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { networks, texts })
    }

    /// Returns the networks as the program wrote them.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        &self.texts
    }

    /// Returns true if the address is in one of the networks.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        // A dual-stack socket reports IPv4 peers as IPv4-mapped IPv6 addresses.
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }
}

fn network(text: &str) -> Option<IpNet> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => IpNet::from_str(text).ok()?,
    };
    let IpNet::V6(mapped) = network else { return Some(network) };
    let (address, bits) = (mapped.addr().to_ipv4_mapped(), mapped.prefix_len());
    match (address, bits.checked_sub(MAPPED_BITS)) {
        (Some(address), Some(bits)) => Ipv4Net::new(address, bits).ok().map(IpNet::V4),
        _ => Some(network),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        ProxyNetworks::new([network]).unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_holds_its_addresses_in_either_family() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.1.2.3/8", "::ffff:10.255.0.1", "::ffff:11.0.0.1"),
            ("::ffff:10.0.0.0/104", "10.255.0.1", "11.0.0.1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
            ("::1", "::1", "127.0.0.1"),
            ("0.0.0.0/0", "192.0.2.7", "::1"),
        ] {
            assert!(contains(network, inside), "{network} has {inside}");
            assert!(!contains(network, outside), "{network} has no {outside}");
        }
        assert!(!ProxyNetworks::default().contains(IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn an_invalid_network_is_refused_by_name() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "host", "10.0.0.1:80", "2001:db8::/129"] {
            let error = ProxyNetworks::new([text]).unwrap_err().to_string();
            let expected = format!("proxy_protocol.from is {text:?}: {RULE}");
            assert_eq!(error, expected);
        }
    }
}
