//! A name server of a test's own, on a port of loopback.
//!
//! It answers over UDP what its zone has at the moment of the query, and nothing else: a name that
//! the zone does not have gets an empty answer.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::op::{Message, OpCode};
pub use hickory_resolver::proto::rr::Record;
use hickory_resolver::proto::rr::rdata::{A, SRV};
use hickory_resolver::proto::rr::{Name, RData};
use tokio::net::UdpSocket;

/// The records of one name server. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Zone(Arc<Mutex<Vec<Record>>>);

impl Zone {
    /// Replaces all records. Queries from now on see these.
    pub fn set(&self, records: Vec<Record>) {
        *self.records() = records;
    }

    /// Answers queries in a task, for as long as the current tokio runtime lives, and gives a
    /// resolver that asks there.
    ///
    /// # Errors
    ///
    /// When loopback has no port left, or the resolver cannot be made.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn serve(&self) -> io::Result<TokioResolver> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let mut connection = ConnectionConfig::udp();
        connection.port = socket.local_addr()?.port();
        let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
        let server = NameServerConfig::new(ip, true, vec![connection]);
        let config = ResolverConfig::from_name_servers(vec![server]);
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let resolver = builder.build().map_err(io::Error::other)?;
        tokio::spawn(answer(socket, self.clone()));
        Ok(resolver)
    }

    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        // A list is replaced whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address of `name`, which ends with a dot. The answer holds for `ttl` seconds.
///
/// # Errors
///
/// When `name` is none.
pub fn address(name: &str, ip: Ipv4Addr, ttl: u32) -> Result<Record, ProtoError> {
    Ok(Record::from_rdata(Name::from_ascii(name)?, ttl, RData::A(A(ip))))
}

/// A service of `name` at `target`, both of which end with a dot. The answer holds for `ttl`
/// seconds.
///
/// # Errors
///
/// When one of the names is none.
pub fn service(name: &str, target: ServiceTarget<'_>, ttl: u32) -> Result<Record, ProtoError> {
    let ServiceTarget { host, port, priority, weight } = target;
    let data = SRV::new(priority, weight, port, Name::from_ascii(host)?);
    Ok(Record::from_rdata(Name::from_ascii(name)?, ttl, RData::SRV(data)))
}

/// Where a service is to be found, as RFC 2782 has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceTarget<'a> {
    /// The name of the host.
    pub host: &'a str,
    /// Its port.
    pub port: u16,
    /// Targets of the least priority are taken.
    pub priority: u16,
    /// The share of calls among targets of one priority.
    pub weight: u16,
}

async fn answer(socket: UdpSocket, zone: Zone) {
    let mut bytes = [0; 4096];
    while let Ok((len, client)) = socket.recv_from(&mut bytes).await {
        let Ok(asked) = Message::from_vec(&bytes[..len]) else { continue };
        let mut reply = Message::response(asked.metadata.id, OpCode::Query);
        reply.add_queries(asked.queries.clone());
        let records = zone.records().clone();
        for query in &asked.queries {
            let is_asked = |record: &&Record| {
                record.name == *query.name() && record.record_type() == query.query_type()
            };
            reply.add_answers(records.iter().filter(is_asked).cloned());
        }
        let Ok(reply) = reply.to_vec() else { continue };
        // A client that is gone needs no answer.
        let _ = socket.send_to(&reply, client).await;
    }
}
