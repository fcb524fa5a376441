//! Cheap, safe handles to an open device and to its ports, with the GID under which peers reach
//! one.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::sys::provider::commands::{Commands, FirmwareCommand, StuckCommand};
use crate::sys::provider::{
    AsyncEvent, DeviceAttributes, Gid, GidEntry, LinkLayer, LockedMemory, Partition,
    PortAttributes, Provider, RawDevice, ReceiveDrain, VerbsError,
};

/// An open device. Clones share it; it closes when everything made from it is gone.
#[derive(Debug, Clone)]
pub struct Device {
    /// Dropped before the device: the threads end first, except one whose command drops the last
    /// handle.
    commands: Arc<Commands>,
    raw: Arc<dyn RawDevice>,
}

impl Device {
    /// Opens the device of this name.
    ///
    /// # Errors
    ///
    /// [`VerbsError::NoSuchDevice`], or what the system said.
    pub fn open(provider: &dyn Provider, name: &str) -> Result<Self, VerbsError> {
        let raw = provider.open(name)?;
        let commands = Arc::new(Commands::new(name, raw.command_clock().as_ref()));
        Ok(Self { commands, raw })
    }

    /// The name it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        self.raw.name()
    }

    /// Its limits.
    #[must_use]
    pub fn attributes(&self) -> DeviceAttributes {
        self.raw.attributes()
    }

    /// Returns true if its windows are known to work, so that no check at run time is needed.
    #[must_use]
    pub fn has_known_windows(&self) -> bool {
        self.raw.quirks().has_known_windows
    }

    /// A reason not to let peers take keys of windows away although that works, if there is one.
    #[must_use]
    pub fn window_defect(&self) -> Option<&'static str> {
        self.raw.quirks().window_defect
    }

    /// A reason not to trust that a READ which is reported as complete is whole, if there is one.
    #[must_use]
    pub fn read_defect(&self) -> Option<&str> {
        self.raw.quirks().read_defect.as_deref()
    }

    /// Returns the fate of the receive slots of a queue pair that dies.
    #[must_use]
    pub fn receive_drain(&self) -> ReceiveDrain {
        self.raw.quirks().receive_drain
    }

    /// Memory that the process has locked, and may lock.
    pub(crate) fn lockable_memory(&self) -> LockedMemory {
        self.raw.lockable_memory()
    }

    /// The same if queues of the device count toward the limit.
    pub(crate) fn lockable_queue_memory(&self) -> Option<LockedMemory> {
        self.raw.quirks().queues_are_locked.then(|| self.raw.lockable_memory())
    }

    /// Asks for the attributes of a port; ports count from 1.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn port(&self, number: u8) -> Result<PortAttributes, VerbsError> {
        let _awaited = self.commands.await_firmware(FirmwareCommand::Query);
        self.raw.port(number)
    }

    /// Reads the valid entries of the GID tables of all ports.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn gid_table(&self) -> Result<Vec<GidEntry>, VerbsError> {
        let _awaited = self.commands.await_firmware(FirmwareCommand::Query);
        self.raw.gid_table()
    }

    /// Takes the next asynchronous event; if there is none, arranges for a wake-up when one
    /// arrives. One task waits at a time.
    ///
    /// # Errors
    ///
    /// [`VerbsError::NoRuntime`] outside a tokio runtime, or what the system said.
    pub fn poll_async_event(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Result<AsyncEvent, VerbsError>> {
        self.raw.poll_async_event(context)
    }

    /// The firmware commands of this opening.
    pub(crate) fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Checks that the firmware answers, as far as its commands show.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Stuck`] names the command that it has not answered for long.
    pub(crate) fn check_firmware(&self) -> Result<(), VerbsError> {
        match self.commands.stuck() {
            None => Ok(()),
            Some(StuckCommand { command, age }) => {
                Err(VerbsError::Stuck { device: self.name().to_owned(), command, age })
            }
        }
    }

    pub(crate) fn raw(&self) -> &Arc<dyn RawDevice> {
        &self.raw
    }

    /// Returns true if both handles are to the same opening of a device.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.raw, &other.raw)
    }
}

/// A chosen port. `crate::device` chooses it.
#[derive(Debug, Clone)]
pub struct Port {
    /// The device.
    pub device: Device,
    /// Number of the port; ports count from 1.
    pub number: u8,
    /// Position of the GID in the port's table.
    pub gid_index: u8,
    /// The GID.
    pub gid: Gid,
    /// Attributes as they were when the port was chosen.
    pub attributes: PortAttributes,
}

/// The address of a port as a connected queue pair uses it, which never changes with the port's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalAddress {
    /// Number of the port.
    pub(crate) port: u8,
    pub(crate) gid_index: u8,
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    pub(crate) link_layer: LinkLayer,
    pub(crate) partition: Partition,
}

impl LocalAddress {
    /// The address that connections made through `port` have.
    pub(crate) fn of(port: &Port) -> Self {
        Self {
            port: port.number,
            gid_index: port.gid_index,
            gid: port.gid,
            lid: port.attributes.lid,
            link_layer: port.attributes.link_layer,
            partition: port.attributes.partition,
        }
    }
}
