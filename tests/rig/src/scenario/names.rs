//! A name server on loopback with one name, and a resolver that asks it.

use std::net::Ipv4Addr;

use farcall::resolve::{Dns, DnsName, Scheme};
use farcall_testkit::name_server::{Zone, address};

use super::cluster::{NETWORK, SERVERS};
use crate::RigError;

/// The name of all servers.
const NAME: &str = "ledger.test.";

/// For how many seconds an answer holds: a channel asks again while a scenario goes on.
const TTL: u32 = 1;

/// The servers by name, at `port`. The name server lives as long as its runtime.
pub(super) async fn servers_by_name(port: u16) -> Result<Dns, RigError> {
    let zone = Zone::default();
    let records = hosts().map(|ip| address(NAME, ip, TTL)).collect::<Result<_, _>>();
    zone.set(records.map_err(std::io::Error::other)?);
    let resolver = zone.serve().await?;
    Ok(Dns::with_resolver(resolver, DnsName::new(NAME, Some(port), Scheme::Tcp)))
}

fn hosts() -> impl Iterator<Item = Ipv4Addr> {
    let [one, two, three] = NETWORK;
    (1..=SERVERS)
        .filter_map(move |last| Some(Ipv4Addr::new(one, two, three, u8::try_from(last).ok()?)))
}
