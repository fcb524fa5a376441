//! Four servers of one service, each a process, at four addresses of loopback.

use std::path::Path;

use super::ScenarioError;
use crate::conductor::process::Process;

/// How many servers there are.
pub(super) const SERVERS: usize = 4;

/// The first three numbers of their addresses; the last are 1 to [`SERVERS`]. All of 127/8 is
/// loopback on Linux.
pub(super) const NETWORK: [u8; 3] = [127, 0, 23];

/// The servers.
#[derive(Debug)]
pub(super) struct Cluster {
    port: u16,
    ledger: String,
    /// The etcd in which they register, with a port of their own each time.
    etcd: Option<String>,
    servers: Vec<Option<Process>>,
}

impl Cluster {
    /// Starts the servers, whose calls take so many milliseconds.
    pub(super) fn start(
        ledger: &Path,
        delays_ms: [u64; SERVERS],
        etcd: Option<&str>,
    ) -> Result<Self, ScenarioError> {
        let ledger = ledger.display().to_string();
        let servers = Vec::from([const { None }; SERVERS]);
        let etcd = etcd.map(str::to_owned);
        let mut cluster = Self { port: 0, ledger, etcd, servers };
        for (index, delay_ms) in delays_ms.into_iter().enumerate() {
            cluster.start_one(index, delay_ms)?;
        }
        Ok(cluster)
    }

    /// Starts a server that is not there. The first one takes a port, and the
    /// others that one; servers that register need none in common.
    pub(super) fn start_one(&mut self, index: usize, delay_ms: u64) -> Result<(), ScenarioError> {
        let address = format!("tcp://{}:{}", host(index), self.port);
        let delay = delay_ms.to_string();
        let mut arguments = vec!["serve", &address, &self.ledger, "--delay-ms", &delay];
        if let Some(etcd) = &self.etcd {
            arguments.extend(["--etcd", etcd]);
        }
        let (process, line) = Process::start("server", &arguments)?;
        let port = line.rsplit(':').next().and_then(|port| port.parse().ok());
        if self.etcd.is_none() {
            self.port = port.unwrap_or(self.port);
        }
        self.servers[index] = Some(process);
        Ok(())
    }

    /// Lets a server end in order, as a deployment does.
    pub(super) fn shut_down(&mut self, index: usize) -> Result<(), ScenarioError> {
        Ok(self.servers[index].take().map_or(Ok(()), Process::end)?)
    }

    /// Kills a server in the middle of its work.
    pub(super) fn kill(&mut self, index: usize) -> Result<(), ScenarioError> {
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
