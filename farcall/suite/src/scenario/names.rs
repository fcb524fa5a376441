//! A name server on loopback with one name, and a resolver that asks it.

use std::net::{IpAddr, Ipv4Addr};

use farcall::resolve::{Dns, DnsName, Scheme};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::{Message, OpCode};
use hickory_resolver::proto::rr::rdata::A;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;

use super::ScenarioError;
use super::cluster::{NETWORK, SERVERS};

/// The name of all servers.
const NAME: &str = "ledger.test.";

/// For how many seconds an answer holds: a channel asks again while a scenario goes on.
const TTL: u32 = 1;

/// The servers by name, at `port`. The name server lives as long as its runtime.
pub(super) async fn servers_by_name(port: u16) -> Result<Dns, ScenarioError> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let mut connection = ConnectionConfig::udp();
    connection.port = socket.local_addr()?.port();
    tokio::spawn(answer(socket));
    let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
    let server = NameServerConfig::new(ip, true, vec![connection]);
    let config = ResolverConfig::from_name_servers(vec![server]);
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let resolver = builder.build().map_err(std::io::Error::other)?;
    Ok(Dns::with_resolver(resolver, DnsName::new(NAME, Some(port), Scheme::Tcp)))
}

async fn answer(socket: UdpSocket) {
    let mut bytes = [0; 4096];
    while let Ok((len, client)) = socket.recv_from(&mut bytes).await {
        let Ok(asked) = Message::from_vec(&bytes[..len]) else { continue };
        let mut reply = Message::response(asked.metadata.id, OpCode::Query);
        reply.add_queries(asked.queries.clone());
        let of_hosts = asked.queries.iter().filter(|it| it.query_type() == RecordType::A);
        for query in of_hosts {
            reply.add_answers(
                hosts().map(|ip| Record::from_rdata(query.name().clone(), TTL, RData::A(A(ip)))),
            );
        }
        let Ok(reply) = reply.to_vec() else { continue };
        // A client that is gone needs no answer.
        let _ = socket.send_to(&reply, client).await;
    }
}

fn hosts() -> impl Iterator<Item = Ipv4Addr> {
    let [one, two, three] = NETWORK;
    (1..=SERVERS)
        .filter_map(move |last| Some(Ipv4Addr::new(one, two, three, u8::try_from(last).ok()?)))
}
