//! Registered mappings, and memory windows of type 2.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sys::abi::{IBV_MW_TYPE_2, ibv_mr, ibv_mw};
use crate::sys::provider::ibverbs::context::ProtectionDomain;
use crate::sys::provider::{
    Access, LocalKey, Mapping, ObjectHandle, RawMemoryRegion, RawMemoryWindow, RemoteKey,
    VerbsError,
};
use crate::sys::{abi, check_errno, check_pointer};

#[derive(Debug)]
pub(crate) struct IbvMemoryRegion {
    pointer: NonNull<ibv_mr>,
    local_key: LocalKey,
    remote_key: RemoteKey,
    /// Dropped only after deregistration.
    mapping: ManuallyDrop<Mapping>,
    domain: ManuallyDrop<Arc<ProtectionDomain>>,
}

// SAFETY: S4; what was registered never changes, and the pointer is used by `drop` only.
unsafe impl Send for IbvMemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for IbvMemoryRegion {}

impl IbvMemoryRegion {
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        mapping: Mapping,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let flags = match access {
            Access::Source => abi::IBV_ACCESS_REMOTE_READ,
            Access::Windowed => abi::IBV_ACCESS_MW_BIND,
            Access::Sink | Access::Eager => abi::IBV_ACCESS_LOCAL_WRITE,
            Access::RelaxedSink => abi::IBV_ACCESS_LOCAL_WRITE | abi::IBV_ACCESS_RELAXED_ORDERING,
        };
        let len = mapping.len();
        let base = mapping.base().as_ptr().cast();
        // It leaves out optional flags that the kernel does not know.
        // SAFETY: V1: the domain is allocated. M1: the range is the mapping, which stays until
        // the region is deregistered.
        let pointer = unsafe {
            let verbs = domain.context().verbs();
            verbs.ibv_reg_mr_iova2(domain.pointer().as_ptr(), base, len, base as u64, flags)
        };
        let pointer = check_pointer(pointer)
            .map_err(|error| VerbsError::locking("register memory", error, len as u64, None))?;
        // SAFETY: V1: just registered.
        let region = unsafe { pointer.as_ref() };
        Ok(Self {
            local_key: LocalKey(region.lkey),
            remote_key: RemoteKey(region.rkey),
            pointer,
            mapping: ManuallyDrop::new(mapping),
            domain: ManuallyDrop::new(Arc::clone(domain)),
        })
    }
}

// SAFETY: M5: the mapping is in the value and dropped only after deregistration succeeded.
unsafe impl RawMemoryRegion for IbvMemoryRegion {
    fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    fn local_key(&self) -> LocalKey {
        self.local_key
    }

    fn remote_key(&self) -> RemoteKey {
        self.remote_key
    }

    fn handle(&self) -> ObjectHandle {
        ObjectHandle(self.pointer.cast())
    }
}

impl Drop for IbvMemoryRegion {
    fn drop(&mut self) {
        let verbs = self.domain.context().verbs();
        // SAFETY: V1: the one place that deregisters.
        let freed = check_errno(unsafe { verbs.ibv_dereg_mr(self.pointer.as_ptr()) });
        if let Err(error) = self.domain.context().destroyed("deregister memory", freed) {
            let len = self.mapping.len();
            tracing::error!(
                target: "farcall::rdma", %error, len, "cannot deregister memory; it is leaked"
            );
            return;
        }
        // SAFETY: M5: the device has forgotten the memory, and `drop` runs once.
        unsafe { ManuallyDrop::drop(&mut self.mapping) };
        // SAFETY: V1: this child of the domain is gone, and `drop` runs once.
        unsafe { ManuallyDrop::drop(&mut self.domain) };
    }
}

#[derive(Debug)]
pub(crate) struct IbvMemoryWindow {
    pointer: NonNull<ibv_mw>,
    key: RemoteKey,
    /// Dropped only after deallocation.
    domain: ManuallyDrop<Arc<ProtectionDomain>>,
}

// SAFETY: S4; the structure behind the pointer is written by `set_key` only, which has `&mut`.
unsafe impl Send for IbvMemoryWindow {}
// SAFETY: as above.
unsafe impl Sync for IbvMemoryWindow {}

impl IbvMemoryWindow {
    pub(crate) fn new(domain: &Arc<ProtectionDomain>) -> Result<Self, VerbsError> {
        let verbs = domain.context().verbs();
        // SAFETY: V1: the domain is allocated, and its context is open.
        let pointer = unsafe { verbs.ibv_alloc_mw(domain.pointer().as_ptr(), IBV_MW_TYPE_2) };
        let pointer = check_pointer(pointer)
            .map_err(|error| VerbsError::locking("allocate a memory window", error, 0, None))?;
        // SAFETY: V1: just allocated.
        let key = RemoteKey(unsafe { pointer.as_ref() }.rkey);
        Ok(Self { pointer, key, domain: ManuallyDrop::new(Arc::clone(domain)) })
    }

    /// Deallocates the window, or leaks it if the device fails to.
    ///
    /// # Safety
    ///
    /// It is called once, and the window is not used afterwards.
    unsafe fn free(&mut self) -> Result<(), VerbsError> {
        let verbs = self.domain.context().verbs();
        // SAFETY: V1: the caller's promise.
        let freed = check_errno(unsafe { verbs.ibv_dealloc_mw(self.pointer.as_ptr()) });
        self.domain.context().destroyed("deallocate a memory window", freed)?;
        // SAFETY: V1: this child of the domain is gone, and the caller's promise.
        unsafe { ManuallyDrop::drop(&mut self.domain) };
        Ok(())
    }
}

// SAFETY: V1: the pointer names this window until it is deallocated, by `free` only. Requests to
// bind grant reading and nothing else (`queue_pair.rs`).
unsafe impl RawMemoryWindow for IbvMemoryWindow {
    fn handle(&self) -> ObjectHandle {
        ObjectHandle(self.pointer.cast())
    }

    fn key(&self) -> RemoteKey {
        self.key
    }

    fn set_key(&mut self, key: RemoteKey) {
        self.key = key;
        // Providers take the key that a bind starts from out of the structure. SAFETY: V1: the
        // window exists; `&mut self` and V8 say that nothing reads it meanwhile.
        unsafe { (*self.pointer.as_ptr()).rkey = key.0 };
    }

    fn deallocate(self: Box<Self>) -> Result<(), VerbsError> {
        let mut this = ManuallyDrop::new(*self);
        // SAFETY: V1: the value is consumed, and not dropped.
        unsafe { this.free() }
    }
}

impl Drop for IbvMemoryWindow {
    fn drop(&mut self) {
        // SAFETY: V1: `drop` runs once, and not for a window that `deallocate` took.
        if let Err(error) = unsafe { self.free() } {
            tracing::error!(
                target: "farcall::rdma",
                %error, "cannot deallocate a memory window; it is leaked"
            );
        }
    }
}
