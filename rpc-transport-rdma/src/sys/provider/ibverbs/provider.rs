//! The list of devices.

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::{Arc, Once};

use crate::sys::abi::{self, Verbs, ibv_device};
use crate::sys::check_errno;
use crate::sys::provider::ibverbs::context::Context;
use crate::sys::provider::ibverbs::device::IbvDevice;
use crate::sys::provider::ibverbs::route::{interface_mtu, interface_to};
use crate::sys::provider::{DeviceInfo, Provider, Quirks, RawDevice, VerbsError};

/// The system's RDMA devices, through libibverbs.
#[derive(Debug, Clone, Copy)]
pub struct Ibverbs {
    /// The quirks of a vendor's driver on this host.
    quirks_of: fn(u32) -> Quirks,
}

impl Ibverbs {
    /// The provider with a table of quirks by vendor, whose orders of receives are promises as
    /// [`RawDevice::quirks`] says.
    pub(crate) fn with_quirks(quirks_of: fn(u32) -> Quirks) -> Self {
        Self { quirks_of }
    }
}

/// Opens libibverbs, and tells it once that the process may fork, which must happen before
/// anything registers memory.
fn verbs() -> Result<Verbs, VerbsError> {
    static FORK_INIT: Once = Once::new();
    let verbs = abi::load().map_err(|error| VerbsError::Library {
        reason: error.to_string(),
        is_missing: abi::is_missing(&error),
    })?;
    FORK_INIT.call_once(|| {
        // SAFETY: S4: it takes no arguments and may be called at any time.
        if let Err(error) = check_errno(unsafe { verbs.ibv_fork_init() }) {
            tracing::warn!(
                target: "farcall::rdma", %error, "libibverbs cannot protect its memory from forks"
            );
        }
    });
    Ok(verbs)
}

// SAFETY: V1: the objects are those of the modules beside this one, each with its own argument.
unsafe impl Provider for Ibverbs {
    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError> {
        let list = DeviceList::new(verbs()?)?;
        Ok(list.iter().map(|device| DeviceInfo { name: list.name_of(device) }).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn RawDevice>, VerbsError> {
        let list = DeviceList::new(verbs()?)?;
        let Some(device) = list.iter().find(|device| list.name_of(*device) == name) else {
            let found = list.iter().map(|device| list.name_of(device)).collect();
            return Err(VerbsError::NoSuchDevice { name: name.to_owned(), found });
        };
        // SAFETY: the device is of a list that is not freed yet.
        let context = unsafe { Context::open(list.verbs, device) }?;
        Ok(Arc::new(IbvDevice::new(context, name.to_owned(), self.quirks_of)?))
    }

    fn interface_to(&self, local: IpAddr, peer: IpAddr) -> Option<u32> {
        interface_to(local, peer)
    }

    fn interface_mtu(&self, interface: u32) -> Option<u32> {
        interface_mtu(interface)
    }
}

/// The array that libibverbs lists devices in; freed when dropped.
struct DeviceList {
    verbs: Verbs,
    first: NonNull<*mut ibv_device>,
    count: usize,
}

impl DeviceList {
    fn new(verbs: Verbs) -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: the out parameter is a live integer.
        let first = unsafe { verbs.ibv_get_device_list(&raw mut count) };
        let Some(first) = NonNull::new(first) else {
            let error = io::Error::last_os_error();
            // Without the kernel's modules there is no list; that is no device and no failure.
            if error.raw_os_error() == Some(libc::ENOSYS) {
                return Ok(Self { verbs, first: NonNull::dangling(), count: 0 });
            }
            return Err(VerbsError::system("list RDMA devices", error));
        };
        Ok(Self { verbs, first, count: usize::try_from(count).unwrap_or(0) })
    }

    fn iter(&self) -> impl Iterator<Item = NonNull<ibv_device>> {
        // SAFETY: libibverbs gave an array of this many pointers, freed by `drop` only; a
        // dangling pointer goes with a count of zero.
        let devices = unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) };
        devices.iter().filter_map(|device| NonNull::new(*device))
    }

    fn name_of(&self, device: NonNull<ibv_device>) -> String {
        // SAFETY: `device` comes from this list.
        let name = unsafe { self.verbs.ibv_get_device_name(device.as_ptr()) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: a name is a string with an end, within the device's structure.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        if self.first != NonNull::dangling() {
            // SAFETY: the list came from `ibv_get_device_list` and nothing borrows it any more;
            // opened devices stay valid.
            unsafe { self.verbs.ibv_free_device_list(self.first.as_ptr()) };
        }
    }
}
