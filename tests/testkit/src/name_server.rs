//! A name server of a test's own, on a port of loopback.
//!
//! It answers what its zone has at the moment of the query, and nothing else: a name that the zone
//! does not have gets an empty answer. Over UDP, an answer that is too long is an empty one with
//! the mark of a truncated one, so that resolvers ask again over TCP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::op::{Message, OpCode};
pub use hickory_resolver::proto::rr::Record;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Longest answer over UDP, in bytes: what resolvers have room for.
const UDP_LEN_MAX: usize = 1232;

/// Attempts to find a port that is free for TCP and UDP.
const PORT_ATTEMPTS: usize = 16;

/// The records of one name server. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Zone {
    records: Arc<Mutex<Vec<Record>>>,
    query_count: Arc<AtomicU64>,
}

impl Zone {
    /// Replaces all records. Queries from now on see these.
    pub fn set(&self, records: Vec<Record>) {
        *self.records() = records;
    }

    /// Returns the number of queries so far.
    #[must_use]
    pub fn query_count(&self) -> u64 {
        self.query_count.load(Ordering::Relaxed)
    }

    /// Answers queries as [`listen`](Self::listen) does, and gives a resolver that asks there.
    ///
    /// # Errors
    ///
    /// Returns an error if loopback has no port left, or the resolver cannot be made.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn serve(&self) -> io::Result<TokioResolver> {
        resolver_at(self.listen().await?)
    }

    /// Answers queries in tasks, for as long as the current tokio runtime lives, and gives the
    /// address.
    ///
    /// # Errors
    ///
    /// Returns an error if loopback has no port left.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn listen(&self) -> io::Result<SocketAddr> {
        let mut attempts = 0;
        let (listener, socket) = loop {
            attempts += 1;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            // Another program may have the port for UDP.
            match UdpSocket::bind(listener.local_addr()?).await {
                Ok(socket) => break (listener, socket),
                Err(error) if attempts == PORT_ATTEMPTS => return Err(error),
                Err(_) => {}
            }
        };
        let address = listener.local_addr()?;
        tokio::spawn(answer_datagrams(socket, self.clone()));
        tokio::spawn(accept(listener, self.clone()));
        Ok(address)
    }

    /// Makes the answer to a query; `None` where that is none.
    fn answer(&self, query: &[u8]) -> Option<Message> {
        let request = Message::from_vec(query).ok()?;
        let mut reply = Message::response(request.metadata.id, OpCode::Query);
        reply.add_queries(request.queries.clone());
        for query in &request.queries {
            self.query_count.fetch_add(1, Ordering::Relaxed);
            let is_asked = |record: &&Record| {
                record.name == *query.name() && record.record_type() == query.query_type()
            };
            let records = self.records();
            let found: Vec<_> = records.iter().filter(is_asked).cloned().collect();
            drop(records);
            reply.add_answers(found);
        }
        Some(reply)
    }

    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock()
    }
}

/// An address of `name`, which ends with a dot. The answer holds for `ttl` seconds.
///
/// # Errors
///
/// Returns an error if `name` is none.
pub fn address(name: &str, ip: impl Into<IpAddr>, ttl: u32) -> Result<Record, ProtoError> {
    Ok(Record::from_rdata(Name::from_ascii(name)?, ttl, RData::from(ip.into())))
}

/// A service of `name` at `target`, both of which end with a dot. The answer holds for `ttl`
/// seconds.
///
/// # Errors
///
/// Returns an error if one of the names is none.
pub fn service(name: &str, target: ServiceTarget<'_>, ttl: u32) -> Result<Record, ProtoError> {
    let ServiceTarget { host, port, priority, weight } = target;
    let data = SRV::new(priority, weight, port, Name::from_ascii(host)?);
    Ok(Record::from_rdata(Name::from_ascii(name)?, ttl, RData::SRV(data)))
}

/// A host and port that offer a service, by RFC 2782.
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

/// A resolver that asks the name server at `address`.
///
/// # Errors
///
/// Returns an error if the resolver cannot be made.
pub fn resolver_at(address: SocketAddr) -> io::Result<TokioResolver> {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    connections.iter_mut().for_each(|connection| connection.port = address.port());
    let server = NameServerConfig::new(address.ip(), true, connections);
    let config = ResolverConfig::from_name_servers(vec![server]);
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    builder.build().map_err(io::Error::other)
}

async fn answer_datagrams(socket: UdpSocket, zone: Zone) {
    let mut bytes = [0; 4096];
    while let Ok((len, client)) = socket.recv_from(&mut bytes).await {
        let Some(mut reply) = zone.answer(&bytes[..len]) else { continue };
        let Ok(mut answer) = reply.to_vec() else { continue };
        if answer.len() > UDP_LEN_MAX {
            reply.answers.clear();
            reply.metadata.truncation = true;
            answer = reply.to_vec().unwrap_or_default();
        }
        // A client that is gone needs no answer.
        let _ = socket.send_to(&answer, client).await;
    }
}

async fn accept(listener: TcpListener, zone: Zone) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer_stream(stream, zone.clone()));
    }
}

/// Answers queries until the client closes, each behind its length.
async fn answer_stream(mut stream: TcpStream, zone: Zone) -> io::Result<()> {
    loop {
        let mut query = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut query).await?;
        let Some(Ok(reply)) = zone.answer(&query).map(|reply| reply.to_vec()) else { continue };
        let len = u16::try_from(reply.len()).map_err(io::Error::other)?;
        stream.write_all(&[&len.to_be_bytes()[..], &reply].concat()).await?;
    }
}
