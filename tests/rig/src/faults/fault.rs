//! The faults, and their repair.

use std::time::Duration;

use super::device::queue_pairs;
use super::lab::Lab;
use super::newcomer;
use crate::RigError;
use crate::conductor::process::Process;
use crate::conductor::wait::until;

/// Maximum time to remove a device. The kernel waits for its users, and Soft-RoCE up to 50 s for a
/// queue pair with a packet in flight.
const REMOVE_LIMIT: Duration = Duration::from_secs(120);

/// Maximum time for the server to notice a killed client, and for the kernel to clean up.
const FORGET_LIMIT: Duration = Duration::from_secs(20);

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// None, for comparison.
    Nothing,
    /// The server is killed; mended, another one listens in its place.
    KillServer,
    /// The server goes in order; mended, another one listens in its place.
    RestartServer,
    /// The server is stopped; mended, it goes on.
    StopServer,
    /// Another client is killed amid its calls.
    KillClient,
    /// The cable is pulled, and both ends know it.
    LinkDown,
    /// Every packet, both ways, is treated as netem's arguments say.
    Netem(&'static str),
    /// Packets of RDMA disappear, both ways, and nothing else does.
    RdmaBlackhole,
    /// The server's RDMA device is removed; mended, it is added again.
    RemoveDevice,
    /// The other machine's end of the link is cut, which nothing tells this one.
    FarLinkDown,
    /// The same, with the server killed. After the repair the machine is back with another server,
    /// as after a crash.
    FarHostReborn,
}

/// A fault that is there.
#[derive(Debug)]
pub(super) enum Broken {
    Nothing,
    NoServer,
    StoppedServer,
    DeadClient { pairs: usize },
    LinkDown,
    Netem,
    RdmaBlackhole,
    NoDevice,
    FarLinkDown,
    FarHostDead,
}

impl Fault {
    /// Prepares the machine for the fault.
    pub(super) fn prepare(self, lab: &mut Lab) -> Result<(), RigError> {
        if self == Self::KillClient {
            let authority = lab.authority.clone();
            let (process, _calling) = Process::start("client", &["call", &authority])?;
            lab.neighbour = Some(process);
        }
        Ok(())
    }

    /// Breaks it.
    pub(super) fn make(self, lab: &mut Lab) -> Result<Broken, RigError> {
        Ok(match self {
            Self::Nothing => Broken::Nothing,
            Self::KillServer => {
                lab.take_server()?.kill()?;
                Broken::NoServer
            }
            Self::RestartServer => {
                lab.end_server()?;
                Broken::NoServer
            }
            Self::StopServer => {
                lab.server()?.stop()?;
                Broken::StoppedServer
            }
            Self::KillClient => {
                let pairs = queue_pairs()?.len();
                lab.take_neighbour()?.kill()?;
                Broken::DeadClient { pairs }
            }
            Self::LinkDown => {
                lab.cable()?.near.down()?;
                Broken::LinkDown
            }
            Self::Netem(text) => {
                let cable = lab.cable()?;
                cable.near.emulate(text)?;
                cable.far.emulate(text)?;
                Broken::Netem
            }
            Self::RdmaBlackhole => {
                let cable = lab.cable()?;
                cable.near.drop_rdma()?;
                cable.far.drop_rdma()?;
                Broken::RdmaBlackhole
            }
            Self::RemoveDevice => {
                let removal = lab.cable()?.device.remove()?;
                newcomer::check(lab)?;
                removal.wait(REMOVE_LIMIT)?;
                Broken::NoDevice
            }
            Self::FarLinkDown => {
                lab.far_host()?.ask("down")?;
                Broken::FarLinkDown
            }
            Self::FarHostReborn => {
                lab.far_host()?.ask("down")?;
                lab.far_host()?.ask("kill")?;
                Broken::FarHostDead
            }
        })
    }
}

impl Broken {
    /// Mends it, and says what was found in passing.
    pub(super) fn mend(self, lab: &mut Lab) -> Result<Vec<String>, RigError> {
        let mut remarks = Vec::new();
        match self {
            Self::Nothing => {}
            Self::NoServer => lab.start_server()?,
            Self::StoppedServer => lab.server()?.go_on()?,
            Self::DeadClient { pairs } => {
                // A queue pair on each side.
                let gone = until("the end of the dead client's queue pairs", FORGET_LIMIT, || {
                    Ok(queue_pairs()?.len() + 2 <= pairs)
                })?;
                remarks.push(format!("the dead client's queue pairs were gone after {gone:.1?}"));
            }
            Self::LinkDown => lab.cable()?.near.up()?,
            Self::Netem => {
                let cable = lab.cable()?;
                cable.near.emulate_nothing()?;
                cable.far.emulate_nothing()?;
            }
            Self::RdmaBlackhole => {
                let cable = lab.cable()?;
                cable.near.let_rdma_in()?;
                cable.far.let_rdma_in()?;
            }
            Self::NoDevice => lab.cable()?.device.add()?,
            Self::FarLinkDown => lab.far_host()?.ask("up").map(drop)?,
            Self::FarHostDead => {
                lab.start_server()?;
                lab.far_host()?.ask("up")?;
            }
        }
        Ok(remarks)
    }
}
