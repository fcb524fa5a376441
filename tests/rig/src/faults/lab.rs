//! The place of a row: the machine's devices and links, and the server process.

use std::net::IpAddr;

use tokio::runtime::Runtime;

use super::config::FAR_SERVER;
use super::device::Device;
use super::far_host::{FarHost, obey};
use super::link::Link;
use super::serve::Report;
use crate::RigError;
use crate::conductor::message::{self, REPORT};
use crate::conductor::process::Process;

/// The addresses of the two devices of one machine.
const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "10.0.1.1";

/// The variable that the virtual machine sets.
const MACHINE_VARIABLE: &str = "FARCALL_VM_HOST";

/// Everything that faults act on.
#[derive(Debug)]
pub(super) struct Lab {
    pub(super) runtime: Runtime,
    /// Address of the server and of its successors.
    pub(super) authority: String,
    place: Place,
    server: Option<Process>,
    pub(super) neighbour: Option<Process>,
}

#[derive(Debug)]
enum Place {
    Cable(Cable),
    TwoHosts(FarHost),
}

/// Both ends of a cable, and the device at the server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cable {
    /// The client's end.
    pub(super) near: Link,
    /// The server's end.
    pub(super) far: Link,
    /// The server's device.
    pub(super) device: Device,
}

impl Lab {
    /// The devices of this machine, which has to be the virtual one. Nothing is started yet.
    pub(super) fn on_one_host() -> Result<Self, RigError> {
        check_machine()?;
        let far = Link::of(address(SERVER)?)?;
        let device = Device::on(far.interface())?;
        let cable = Cable { near: Link::of(address(CLIENT)?)?, far, device };
        Self::new(SERVER, Place::Cable(cable))
    }

    /// This machine and another one, where the server is.
    pub(super) fn on_two_hosts() -> Result<Self, RigError> {
        check_machine()?;
        Self::new(FAR_SERVER, Place::TwoHosts(FarHost::find()?))
    }

    fn new(server: &str, place: Place) -> Result<Self, RigError> {
        let authority = format!("{server}:0");
        Ok(Self { runtime: runtime()?, authority, place, server: None, neighbour: None })
    }

    pub(super) fn cable(&self) -> Result<&Cable, RigError> {
        match &self.place {
            Place::Cable(cable) => Ok(cable),
            Place::TwoHosts(_) => Err(RigError::Missing("cable with both ends".to_owned())),
        }
    }

    pub(super) fn far_host(&mut self) -> Result<&mut FarHost, RigError> {
        match &mut self.place {
            Place::TwoHosts(far) => Ok(far),
            Place::Cable(_) => Err(RigError::Missing("second machine beside it".to_owned())),
        }
    }

    /// Starts a server: the first one on any port, the next one where that was.
    pub(super) fn start_server(&mut self) -> Result<(), RigError> {
        if let Place::TwoHosts(far) = &mut self.place {
            self.authority = far.ask("start")?;
            return Ok(());
        }
        let (process, authority) = Process::start("server", &["serve", &self.authority])?;
        (self.server, self.authority) = (Some(process), authority);
        Ok(())
    }

    /// The server, where it is on this machine.
    pub(super) fn server(&mut self) -> Result<&mut Process, RigError> {
        self.server.as_mut().ok_or(RigError::Ended { role: "server" })
    }

    pub(super) fn take_server(&mut self) -> Result<Process, RigError> {
        self.server.take().ok_or(RigError::Ended { role: "server" })
    }

    pub(super) fn take_neighbour(&mut self) -> Result<Process, RigError> {
        self.neighbour.take().ok_or(RigError::Ended { role: "client" })
    }

    /// Returns the server's report.
    pub(super) fn report(&mut self) -> Result<Report, RigError> {
        let line = match &mut self.place {
            Place::TwoHosts(far) => far.ask(REPORT)?,
            Place::Cable(_) => self.server()?.ask(REPORT)?,
        };
        message::read("server", &line)
    }

    /// Ends the server in order.
    pub(super) fn end_server(&mut self) -> Result<(), RigError> {
        match &mut self.place {
            Place::TwoHosts(far) => far.ask("end").map(drop),
            Place::Cable(_) => Ok(self.take_server()?.end()?),
        }
    }
}

/// The role of the first of two machines: has a server when it is told to, and a link.
pub(super) fn be_far_host() -> Result<(), RigError> {
    check_machine()?;
    obey(&format!("{FAR_SERVER}:0"), &Link::of(address(FAR_SERVER)?)?)
}

/// Refuses to break anything outside of the virtual machine.
fn check_machine() -> Result<(), RigError> {
    match std::env::var_os(MACHINE_VARIABLE) {
        Some(_) => Ok(()),
        None => Err(RigError::NotInMachine),
    }
}

fn address(text: &str) -> Result<IpAddr, RigError> {
    text.parse().map_err(|_| RigError::Missing(format!("address {text}")))
}

/// A runtime of two threads, as many as the machine has processors.
fn runtime() -> Result<Runtime, RigError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}
