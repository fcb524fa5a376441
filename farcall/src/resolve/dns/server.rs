//! The servers that addresses of one name stand for.

use std::net::IpAddr;

/// A server, by the address that is tried first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) address: IpAddr,
    /// An address of the other family: of the same server, as far as DNS can tell.
    pub(super) alternative: Option<IpAddr>,
}

/// Returns the servers that addresses of one name stand for, in the order of the addresses.
///
/// DNS does not say which A and AAAA records belong to one server. As many of one kind as of the
/// other are taken for servers with one of each. Which two are put together is arbitrary, and the
/// same from lookup to lookup: all are used in either case. Otherwise each address is a server, so
/// that none with addresses of one kind is left out.
pub(super) fn servers(addresses: impl IntoIterator<Item = IpAddr>) -> Vec<Server> {
    let (ipv6, ipv4): (Vec<_>, Vec<_>) = addresses.into_iter().partition(IpAddr::is_ipv6);
    let (ranked_ipv6, ranked_ipv4) = (ranked(&ipv6), ranked(&ipv4));
    let paired = |own: &[IpAddr], ranked: &[IpAddr], others: &[IpAddr]| -> Vec<_> {
        let alternative = |address: &IpAddr| {
            let rank = ranked.binary_search(address).unwrap_or_default();
            others.get(rank % others.len().max(1)).copied()
        };
        let server = |it: &IpAddr| Server { address: *it, alternative: alternative(it) };
        own.iter().map(server).collect()
    };
    let mut servers = paired(&ipv6, &ranked_ipv6, &ranked_ipv4);
    if ranked_ipv6.len() != ranked_ipv4.len() {
        servers.extend(paired(&ipv4, &ranked_ipv4, &ranked_ipv6));
    }
    servers
}

fn ranked(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut ranked = addresses.to_vec();
    ranked.sort_unstable();
    ranked.dedup();
    ranked
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pairs(addresses: &[&str]) -> Vec<(String, Option<String>)> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap());
        let text = |ip: IpAddr| ip.to_string();
        servers(addresses)
            .into_iter()
            .map(|it| (text(it.address), it.alternative.map(text)))
            .collect()
    }

    fn pair(address: &str, alternative: &str) -> (String, Option<String>) {
        (address.to_owned(), (!alternative.is_empty()).then(|| alternative.to_owned()))
    }

    #[test]
    fn one_address_of_each_kind_is_one_server() {
        assert_eq!(pairs(&["10.0.0.1", "fd00::1"]), [pair("fd00::1", "10.0.0.1")]);
        assert_eq!(pairs(&["10.0.0.1"]), [pair("10.0.0.1", "")]);
        assert_eq!(pairs(&[]), []);
    }

    #[test]
    fn as_many_of_each_kind_are_paired_whatever_their_order() {
        let (one, two) = (pair("fd00::1", "10.0.0.1"), pair("fd00::2", "10.0.0.2"));
        let rotated = pairs(&["10.0.0.2", "10.0.0.1", "fd00::2", "fd00::1"]);
        assert_eq!(rotated, [two.clone(), one.clone()]);
        assert_eq!(pairs(&["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"]), [one, two]);
    }

    #[test]
    fn more_of_one_kind_are_servers_with_stand_ins() {
        let servers = pairs(&["10.0.0.1", "10.0.0.2", "fd00::1"]);
        let ipv4 = [pair("10.0.0.1", "fd00::1"), pair("10.0.0.2", "fd00::1")];
        assert_eq!(servers, [&[pair("fd00::1", "10.0.0.1")], &ipv4[..]].concat());
    }

    proptest! {
        /// No address is lost, and while both kinds are there, each server has both.
        #[test]
        fn every_address_is_used(ipv4 in vec(0..9_u32, 0..6), ipv6 in vec(0..9_u128, 0..6)) {
            let (is_ipv4, is_ipv6) = (!ipv4.is_empty(), !ipv6.is_empty());
            let ipv4 = ipv4.into_iter().map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits)));
            let ipv6 = ipv6.into_iter().map(|bits| IpAddr::from(Ipv6Addr::from_bits(bits)));
            let given: Vec<_> = ipv4.chain(ipv6).collect();
            let servers = servers(given.clone());
            let both = |it: &Server| [Some(it.address), it.alternative];
            let used: BTreeSet<_> = servers.iter().flat_map(both).flatten().collect();
            prop_assert_eq!(used, given.into_iter().collect());
            for server in servers {
                prop_assert_eq!(server.alternative.is_some(), is_ipv4 && is_ipv6);
                let other = server.alternative;
                prop_assert!(other.is_none_or(|it| it.is_ipv4() != server.address.is_ipv4()));
            }
        }
    }
}
