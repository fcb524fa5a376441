//! Hostile name servers.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use farcall_testkit::name_server::{Record, ServiceTarget, Zone, address, service};

use super::peer::Record as Deeds;
use crate::attack::exposure::{NAME, SERVICE_NAME};

/// Number of targets that fit into an answer of 64 KiB.
const TARGETS: u32 = 1100;
const ADDRESSES: u32 = 2500;

/// No server listens at these addresses of loopback.
const NETWORK: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 0);

/// Between two looks at the count of queries.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The answers for a name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answers {
    /// SRV records of 1,100 targets.
    Targets,
    /// 2,500 addresses.
    Addresses,
}

/// Serves names on loopback. Each query counts as a connection.
pub(super) async fn listen(answers: Answers, deeds: &Arc<Deeds>) -> io::Result<SocketAddr> {
    let zone = Zone::default();
    let records = match answers {
        Answers::Targets => targets(),
        Answers::Addresses => (0..ADDRESSES).map(|number| host(NAME, number)).collect(),
    };
    zone.set(records?);
    let listening = zone.listen().await?;
    tokio::spawn(count(zone, Arc::clone(deeds)));
    Ok(listening)
}

fn host(name: &str, number: u32) -> io::Result<Record> {
    address(name, Ipv4Addr::from_bits(NETWORK.to_bits() + number), 0).map_err(io::Error::other)
}

fn targets() -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    for number in 0..TARGETS {
        let name = format!("t{number}.test.");
        let target = ServiceTarget { host: &name, port: 9, priority: 0, weight: 1 };
        records.push(service(SERVICE_NAME, target, 0).map_err(io::Error::other)?);
        records.push(host(&name, number)?);
    }
    Ok(records)
}

async fn count(zone: Zone, deeds: Arc<Deeds>) {
    let mut counted = 0;
    loop {
        let queries = zone.query_count();
        (counted..queries).for_each(|_| deeds.count_opened());
        counted = queries;
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
