//! An open device context and its protection domain.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::sys::abi::{IBV_EVENT_DEVICE_FATAL, Verbs, ibv_context, ibv_device, ibv_pd};
use crate::sys::provider::VerbsError;
use crate::sys::provider::error::is_gone;
use crate::sys::provider::ibverbs::readiness::{Readiness, Taken};
use crate::sys::provider::ibverbs::removal::Removal;
use crate::sys::{self, EventSubject, RawAsyncEvent, check_errno, check_pointer};

/// An open device; closed when dropped.
#[derive(Debug)]
pub(crate) struct Context {
    verbs: Verbs,
    pointer: NonNull<ibv_context>,
    readiness: Readiness,
    removal: Removal,
}

// SAFETY: S4: libibverbs locks its objects itself, and the pointer never changes.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens a device and makes its async event descriptor non-blocking.
    ///
    /// # Safety
    ///
    /// The device is of a device list that is not freed yet.
    pub(crate) unsafe fn open(
        verbs: Verbs,
        device: NonNull<ibv_device>,
    ) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the caller's promise.
        let pointer = check_pointer(unsafe { verbs.ibv_open_device(device.as_ptr()) });
        let pointer = pointer.map_err(|error| VerbsError::system("open the device", error))?;
        // SAFETY: the caller's promise.
        let node = unsafe { &(*device.as_ptr()).dev_name };
        let node = node.map(|byte| byte.to_ne_bytes()[0]).into_iter();
        let node: String = node.take_while(|byte| *byte != 0).map(char::from).collect();
        let removal = Removal::new(node);
        let context = Self { verbs, pointer, readiness: Readiness::default(), removal };
        set_non_blocking(context.descriptor())?;
        Ok(Arc::new(context))
    }

    /// The descriptor that says whether there are async events.
    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: V1: the context is open as long as `self`.
        let descriptor = unsafe { self.pointer.as_ref() }.async_fd;
        // SAFETY: the descriptor is the context's own and open as long as the context is.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    /// Takes the next async event, or waits for one. A device that the system takes away has had
    /// its last.
    pub(crate) fn poll_async_event(
        &self,
        context: &mut TaskContext<'_>,
    ) -> Poll<Result<RawAsyncEvent, VerbsError>> {
        if let Poll::Ready(removed) = self.removal.poll(context) {
            let event_type = IBV_EVENT_DEVICE_FATAL;
            let event = RawAsyncEvent { event_type, subject: EventSubject::Other };
            return Poll::Ready(removed.map(|()| event));
        }
        self.readiness.poll(self.descriptor(), context, || {
            // SAFETY: V1: the context is open, and `open` made its descriptor non-blocking.
            let event = unsafe { sys::next_async_event(self.verbs, self.pointer) }
                .map_err(|error| VerbsError::system("read an async event", error))?;
            Ok(event.map_or(Taken::Nothing, Taken::Part))
        })
    }

    pub(crate) fn verbs(&self) -> Verbs {
        self.verbs
    }

    pub(crate) fn pointer(&self) -> NonNull<ibv_context> {
        self.pointer
    }

    /// Interprets the result of a call that destroys an object of this device. The object is also
    /// gone if the kernel has removed the device and refuses every call.
    pub(crate) fn destroyed(
        &self,
        operation: &'static str,
        freed: io::Result<()>,
    ) -> Result<(), VerbsError> {
        let freed = freed.map_err(|error| VerbsError::system(operation, error));
        freed.or_else(|error| {
            let ask = || {
                // SAFETY: V1: the context is open.
                let port = unsafe { sys::query_port(self.verbs, self.pointer, 1) };
                port.map_err(|error| VerbsError::system("query a port", error))
            };
            if is_gone(&error, ask) { Ok(()) } else { Err(error) }
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.readiness.release();
        // SAFETY: V1: everything made from the context held an `Arc` of it and is gone.
        let closed = check_errno(unsafe { self.verbs.ibv_close_device(self.pointer.as_ptr()) });
        if let Err(error) = closed {
            tracing::error!(target: "farcall::rdma", %error, "cannot close an RDMA device");
        }
    }
}

/// A protection domain; deallocated when dropped.
#[derive(Debug)]
pub(crate) struct ProtectionDomain {
    pointer: NonNull<ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: S4, as for the context.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(crate) fn new(context: Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: V1: the context is open.
        let pointer = unsafe { context.verbs.ibv_alloc_pd(context.pointer().as_ptr()) };
        let pointer = check_pointer(pointer)
            .map_err(|error| VerbsError::system("allocate a protection domain", error))?;
        Ok(Arc::new(Self { pointer, context }))
    }

    pub(crate) fn pointer(&self) -> NonNull<ibv_pd> {
        self.pointer
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: V1: everything made from the domain held an `Arc` of it and is gone.
        let freed =
            check_errno(unsafe { self.context.verbs.ibv_dealloc_pd(self.pointer.as_ptr()) });
        if let Err(error) = freed {
            tracing::error!(
                target: "farcall::rdma", %error, "cannot deallocate a protection domain"
            );
        }
    }
}

/// Makes reads of a descriptor return at once when there is nothing to read.
pub(crate) fn set_non_blocking(descriptor: BorrowedFd<'_>) -> Result<(), VerbsError> {
    let failed = |errno: nix::Error| {
        VerbsError::system("make an event descriptor non-blocking", errno.into())
    };
    let flags = fcntl(descriptor, FcntlArg::F_GETFL).map_err(failed)?;
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
    fcntl(descriptor, FcntlArg::F_SETFL(flags)).map_err(failed)?;
    Ok(())
}
