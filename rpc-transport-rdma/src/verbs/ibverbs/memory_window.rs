//! A memory window of type 2.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::ProtectionDomain;
use crate::sys::abi::{IBV_MW_TYPE_2, ibv_mw};
use crate::sys::{check_errno, check_pointer};
use crate::verbs::{ObjectHandle, RawMemoryWindow, RemoteKey, VerbsError};

#[derive(Debug)]
pub(super) struct IbvMemoryWindow {
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
    pub(super) fn new(domain: &Arc<ProtectionDomain>) -> Result<Self, VerbsError> {
        let verbs = domain.context().verbs();
        // SAFETY: V1: the domain is allocated, and its context is open.
        let pointer = unsafe { verbs.ibv_alloc_mw(domain.pointer().as_ptr(), IBV_MW_TYPE_2) };
        let pointer = check_pointer(pointer)
            .map_err(|error| VerbsError::system("allocate a memory window", error))?;
        // SAFETY: V1: just allocated.
        let key = RemoteKey(unsafe { pointer.as_ref() }.rkey);
        Ok(Self { pointer, key, domain: ManuallyDrop::new(Arc::clone(domain)) })
    }
}

// SAFETY: V1: the pointer names this window until it is deallocated, by `drop` only. Requests to
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
}

impl Drop for IbvMemoryWindow {
    fn drop(&mut self) {
        let verbs = self.domain.context().verbs();
        // SAFETY: V1: the one place that deallocates.
        let freed = check_errno(unsafe { verbs.ibv_dealloc_mw(self.pointer.as_ptr()) });
        match self.domain.context().destroyed("deallocate a memory window", freed) {
            // SAFETY: V1: this child of the domain is gone, and `drop` runs once.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.domain) },
            Err(error) => {
                tracing::error!(
                    target: "farcall::rdma",
                    %error, "cannot deallocate a memory window; it is leaked"
                );
            }
        }
    }
}
