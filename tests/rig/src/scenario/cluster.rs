//! Four servers of one service, each a process, at four addresses of loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crate::RigError;
use crate::conductor::process::Process;
use farcall_suite::control_plane::{ControlPlane, Health, Service, ServiceEndpoint};

/// Number of servers.
pub(super) const SERVERS: usize = 4;

/// The first three numbers of their addresses; the last are 1 to [`SERVERS`]. All of 127/8 is
/// loopback on Linux.
pub(super) const NETWORK: [u8; 3] = [127, 0, 23];

/// A control plane's name for the servers.
pub(super) const SERVICE: &str = "ledger.test:7000";

/// A directory of the servers. A server in a directory has a new port each time.
#[derive(Debug, Clone)]
pub(super) enum Directory {
    /// Nothing does: they keep the port of the first one.
    Nowhere,
    /// etcd at this address, in which they register.
    Etcd(String),
    /// A control plane, which is told what happens to them.
    ControlPlane(Arc<ControlPlane>),
}

/// The servers.
#[derive(Debug)]
pub(super) struct Cluster {
    port: u16,
    ledger: String,
    directory: Directory,
    servers: Vec<Option<Process>>,
    /// A control plane's entry for each server.
    known: [Option<ServiceEndpoint>; SERVERS],
}

impl Cluster {
    /// Starts the servers, whose calls take so many milliseconds.
    pub(super) fn start(
        ledger: &Path,
        delays_ms: [u64; SERVERS],
        directory: Directory,
    ) -> Result<Self, RigError> {
        let ledger = ledger.display().to_string();
        let servers = Vec::from([const { None }; SERVERS]);
        let known = [None; SERVERS];
        let mut cluster = Self { port: 0, ledger, directory, servers, known };
        for (index, delay_ms) in delays_ms.into_iter().enumerate() {
            cluster.start_one(index, delay_ms)?;
        }
        Ok(cluster)
    }

    /// Starts a server that is not there. The first one takes a port, and the
    /// others that one; servers that register need none in common.
    pub(super) fn start_one(&mut self, index: usize, delay_ms: u64) -> Result<(), RigError> {
        let address = format!("tcp://{}:{}", host(index), self.port);
        let delay = delay_ms.to_string();
        let mut arguments = vec!["serve", &address, &self.ledger, "--delay-ms", &delay];
        if let Directory::Etcd(etcd) = &self.directory {
            arguments.extend(["--etcd", etcd]);
        }
        let (process, line) = Process::start("server", &arguments)?;
        let port = line.rsplit(':').next().and_then(|port| port.parse().ok());
        if matches!(self.directory, Directory::Nowhere) {
            self.port = port.unwrap_or(self.port);
        }
        self.servers[index] = Some(process);
        let address: Option<SocketAddr> =
            line.rsplit('/').next().and_then(|address| address.parse().ok());
        self.known[index] =
            address.map(|address| ServiceEndpoint { address, health: Health::Healthy });
        self.tell();
        Ok(())
    }

    /// Tells a control plane what is known.
    fn tell(&self) {
        if let Directory::ControlPlane(control_plane) = &self.directory {
            let endpoints = self.known.iter().flatten().copied().collect();
            control_plane.set(&[Service { name: SERVICE.to_owned(), endpoints }]);
        }
    }

    /// Lets a server end in order, as a deployment does.
    pub(super) fn shut_down(&mut self, index: usize) -> Result<(), RigError> {
        if let Some(known) = &mut self.known[index] {
            known.health = Health::Draining;
        }
        self.tell();
        self.servers[index].take().map_or(Ok(()), Process::end)?;
        self.known[index] = None;
        self.tell();
        Ok(())
    }

    /// Kills a server in the middle of its work. A control plane knows nothing of it.
    pub(super) fn kill(&mut self, index: usize) -> Result<(), RigError> {
        Ok(self.servers[index].take().map_or(Ok(()), Process::kill)?)
    }

    /// The port of all of them.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The address of all of them, for a channel.
    pub(super) fn addresses(&self) -> String {
        let each = (0..SERVERS).map(|index| format!("{}:{}", host(index), self.port));
        format!("tcp://{}", each.collect::<Vec<_>>().join(","))
    }
}

/// The address of a server's host.
fn host(index: usize) -> String {
    let [one, two, three] = NETWORK;
    format!("{one}.{two}.{three}.{}", index + 1)
}
