//! An etcd of the scenario's own, in which servers register.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use farcall_testkit::process;
use tempfile::TempDir;

use crate::RigError;

/// Names etcd's program.
const PROGRAM_VARIABLE: &str = "FARCALL_ETCD";

/// The prefix under which servers register.
pub(super) const PREFIX: &str = "/farcall/scenario/";

/// Time for which an entry outlives a killed server, in seconds.
pub(super) const TTL_SECONDS: u64 = 3;

/// The running etcd, and its data. Dropped, both are gone.
pub(super) struct Registry {
    // Ends before its data goes.
    _process: process::Process,
    _folder: TempDir,
    address: String,
}

impl Registry {
    /// Starts the program that [`PROGRAM_VARIABLE`] names, on ports that were free just now; `None`
    /// where it names none.
    pub(super) fn start() -> Result<Option<Self>, RigError> {
        let Some(program) = std::env::var_os(PROGRAM_VARIABLE) else { return Ok(None) };
        let folder = TempDir::with_prefix("farcall-scenario-etcd-")?;
        let [clients, peers] = free_ports()?.map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new(program);
        command.args(["--name", "scenario", "--data-dir"]).arg(folder.path());
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.arg("--initial-cluster").arg(format!("scenario={peers}"));
        command.stderr(Stdio::null());
        let process = process::Process::start("etcd", &mut command)?;
        let address = clients.replacen("http", "grpc", 1);
        Ok(Some(Self { _process: process, _folder: folder, address }))
    }

    /// Its address, for a channel.
    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

/// Two ports of loopback that nothing listens at.
fn free_ports() -> Result<[u16; 2], RigError> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let [one, other] = [listen()?, listen()?];
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}
