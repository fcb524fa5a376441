//! The seam under which a verbs implementation stands (design decision D20).
//!
//! The traits are object safe and `unsafe` to implement: the safe queues above give buffers back
//! because a provider said that it is done with them. One implementation is `ibverbs`; a simulated
//! device can be another, for it hands out keys itself, sees the memory as [`Mapping`]s and wakes
//! the task that waits for events through a plain [`Context`].
//!
//! Deliberately not here: any accounting of what is in flight. A provider may trust that the queues
//! above respect its limits, and the queues trust it only with what the traits' contracts say.

use std::any::Any;
use std::fmt::Debug;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::AsyncEventKind;
use crate::sys::provider::{
    Access, CommandClock, DeviceAttributes, DeviceInfo, GidEntry, LockedMemory, Mapping,
    PathAttributes, PortAttributes, Quirks, RawCompletion, RemoteKey, RemoteMemory, VerbsError,
};

/// A source of RDMA devices.
///
/// # Safety
///
/// Every object that comes from it, directly or not, keeps the contract of its trait.
pub unsafe trait Provider: Debug + Send + Sync {
    /// Lists the devices there are.
    ///
    /// # Errors
    ///
    /// Returns the system's error when they cannot be listed.
    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError>;

    /// Opens the device of this name.
    ///
    /// # Errors
    ///
    /// [`VerbsError::NoSuchDevice`], or what the system said.
    fn open(&self, name: &str) -> Result<Arc<dyn RawDevice>, VerbsError>;

    /// Returns the index of the network interface that packets from one address to another leave
    /// by, or `None` where that is not known.
    fn interface_to(&self, local: IpAddr, peer: IpAddr) -> Option<u32>;

    /// Returns the MTU of a network interface in bytes, or `None` where that is not known.
    fn interface_mtu(&self, interface: u32) -> Option<u32>;
}

/// An open device with one protection domain. Everything made from it keeps it open.
///
/// # Safety
///
/// The implementation's objects keep their traits' contracts. The device writes to memory that was
/// registered through it only as part of a posted receive or READ, and not at all on behalf of a
/// peer: no registration grants remote writes.
pub unsafe trait RawDevice: Any + Debug + Send + Sync {
    /// The name it was opened by.
    fn name(&self) -> &str;

    /// Its limits.
    fn attributes(&self) -> DeviceAttributes;

    /// Its driver's quirks. [`Posted`](crate::verbs::ReceiveOrder::Posted) among them is a promise
    /// that memory safety rests on.
    fn quirks(&self) -> &Quirks;

    /// The keys of a port's table of partitions. None where the system does not say.
    fn partition_keys(&self, port: u8) -> Vec<u16> {
        let _ = port;
        Vec::new()
    }

    /// The node of the machine that the device is at, where there are several and the system knows.
    fn node(&self) -> Option<u32> {
        None
    }

    /// Returns the clock of a simulated device's commands. Commands of hardware block their thread
    /// and need none.
    fn command_clock(&self) -> Option<Arc<dyn CommandClock>> {
        None
    }

    /// Asks for the attributes of a port; ports count from 1.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    fn port(&self, number: u8) -> Result<PortAttributes, VerbsError>;

    /// Memory that the process has locked, and may lock.
    fn lockable_memory(&self) -> LockedMemory;

    /// Reads the valid entries of the GID tables of all ports.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    fn gid_table(&self) -> Result<Vec<GidEntry>, VerbsError>;

    /// Takes the next asynchronous event; if there is none, arranges for a wake-up when one
    /// arrives. One task waits at a time. A device that the system wants to take away has had a
    /// [`DeviceFatal`](crate::verbs::AsyncEventKind::DeviceFatal), and is gone when it is closed.
    ///
    /// # Errors
    ///
    /// [`VerbsError::NoRuntime`] where the implementation needs one, or what the system said.
    fn poll_async_event(&self, context: &mut Context<'_>) -> Poll<Result<AsyncEvent, VerbsError>>;

    /// Registers memory. It stays registered, and mapped, until the returned object is dropped.
    ///
    /// # Errors
    ///
    /// [`VerbsError::MemoryLock`] when it cannot be pinned, or what the system said.
    fn register(
        &self,
        mapping: Mapping,
        access: Access,
    ) -> Result<Box<dyn RawMemoryRegion>, VerbsError>;

    /// Allocates a memory window of type 2, which opens nothing until it is bound. It must be
    /// allocated after the queue pair that will bind it: a device may take long to destroy a queue
    /// pair that is younger than its windows.
    ///
    /// # Errors
    ///
    /// Returns the system's error, for example that the device has none.
    fn allocate_window(&self) -> Result<Box<dyn RawMemoryWindow>, VerbsError>;

    /// Makes a completion queue with at least `capacity` entries and its event channel, whose
    /// events are those of completion vector `vector`.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    fn create_completion_queue(
        &self,
        capacity: u32,
        vector: u32,
    ) -> Result<Arc<dyn RawCompletionQueue>, VerbsError>;

    /// Makes a shared receive queue of `depth` receives that will write into the memory that
    /// `memory` owns, whatever that is. It keeps the owner until it has been destroyed.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    fn create_shared_receive_queue(
        &self,
        depth: u32,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<dyn RawSharedReceiveQueue>, VerbsError>;

    /// Makes a reliable connected queue pair in the INIT state that lets its peer read.
    ///
    /// # Errors
    ///
    /// [`VerbsError::ForeignObject`] when a queue is another device's, or what the system said.
    fn create_queue_pair(
        &self,
        request: &QueuePairRequest<'_>,
    ) -> Result<Box<dyn RawQueuePair>, VerbsError>;
}

/// The parts that a queue pair is made of.
#[derive(Debug, Clone, Copy)]
pub struct QueuePairRequest<'a> {
    /// The port it will use.
    pub port: u8,
    /// Position of its partition in the port's table.
    pub partition_index: u16,
    /// Completion queue of its sends and receives.
    pub completion_queue: &'a Arc<dyn RawCompletionQueue>,
    /// Source of its receives.
    pub shared_receive_queue: &'a Arc<dyn RawSharedReceiveQueue>,
    /// Work requests that its send queue must hold.
    pub send_depth: u32,
    /// Bytes that it should be able to send inline.
    pub inline_max: u32,
}

/// A registered region of memory, registered until it is dropped.
///
/// # Safety
///
/// [`mapping`](Self::mapping) is always the one mapping that was registered, and it is not
/// unmapped before the device has forgotten the registration: if that fails it is leaked.
pub unsafe trait RawMemoryRegion: Debug + Send + Sync {
    /// The memory.
    fn mapping(&self) -> &Mapping;

    /// The key for work requests of this process.
    fn local_key(&self) -> LocalKey;

    /// The key for the peer. It opens nothing unless [`Access::Source`] was asked for.
    fn remote_key(&self) -> RemoteKey;

    /// The region as a request to bind a window names it.
    fn handle(&self) -> ObjectHandle;
}

/// A memory window of type 2, deallocated when it is dropped.
///
/// # Safety
///
/// [`handle`](Self::handle) names this window and no other as long as it lives. A device uses a
/// window on behalf of the peer only to read, because [`RawOperation::Bind`] can grant nothing
/// else.
pub unsafe trait RawMemoryWindow: Debug + Send + Sync {
    /// The window as a request to bind it names it.
    fn handle(&self) -> ObjectHandle;

    /// The key it was bound with last, or the one it was allocated with.
    fn key(&self) -> RemoteKey;

    /// Records the key that a completed [`RawOperation::Bind`] gave it; the next request to bind
    /// starts from there.
    fn set_key(&mut self, key: RemoteKey);

    /// Deallocates the window. Afterwards no peer reads through it any more.
    ///
    /// # Errors
    ///
    /// Returns the device's error. The window is leaked, and a peer may go on reading through it.
    fn deallocate(self: Box<Self>) -> Result<(), VerbsError>;
}

/// A provider's name for one of its objects in a work request. Only the provider can interpret it;
/// for all other code it is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectHandle(pub NonNull<()>);

// SAFETY: only the provider that made it looks behind it, under its own rules.
unsafe impl Send for ObjectHandle {}
// SAFETY: as above.
unsafe impl Sync for ObjectHandle {}

/// A completion queue with its event channel, destroyed when it is dropped.
///
/// # Safety
///
/// Each completion is reported once, and not before the device has stopped touching the memory of
/// its work request and, on its send queue, of everything posted before it. What the device wrote
/// is visible to the thread that polled the completion.
pub unsafe trait RawCompletionQueue: Any + Debug + Send + Sync {
    /// Returns the number of completions that it can hold.
    fn capacity(&self) -> u32;

    /// Takes completions into `out` and returns how many.
    ///
    /// # Errors
    ///
    /// Returns the system's error; the queue is then of no use any more.
    fn poll(&self, out: &mut [RawCompletion]) -> Result<usize, VerbsError>;

    /// Asks for one event when the next completion arrives.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    fn arm(&self) -> Result<(), VerbsError>;

    /// Takes all pending events; if there are none, arranges for a wake-up when one arrives.
    /// One task waits at a time.
    ///
    /// # Errors
    ///
    /// [`VerbsError::NoRuntime`] where the implementation needs one, or what the system said.
    fn poll_event(&self, context: &mut Context<'_>) -> Poll<Result<(), VerbsError>>;

    /// Returns true if an event is pending, and takes none. Any thread may call it, at the cost of
    /// a system call.
    fn has_event(&self) -> bool;
}

/// A shared receive queue, destroyed when its last owner drops it.
///
/// # Safety
///
/// The memory's owner given at creation is kept until the device has forgotten the queue; if
/// destroying it fails, the owner is leaked. Queue pairs made with it keep it.
pub unsafe trait RawSharedReceiveQueue: Any + Debug + Send + Sync {
    /// Posts receives in order with one call into the provider.
    ///
    /// # Safety
    ///
    /// Each segment lies in the memory whose owner was given at creation, and nothing else reads or
    /// writes it until its completion has been polled.
    ///
    /// # Errors
    ///
    /// [`PartialPost`] when the device did not take all of them.
    unsafe fn post_receive(&self, requests: &[RawReceive]) -> Result<(), PartialPost>;

    /// Asks for one [`ReceiveLimit`](crate::AsyncEventKind::ReceiveLimit) when
    /// fewer than `limit` receives are posted. The event disarms it; zero disarms it too. The
    /// depth of the queue never changes.
    ///
    /// # Errors
    ///
    /// Returns the system's error, for example that the device does not know limits.
    fn arm_limit(&self, limit: u32) -> Result<(), VerbsError>;
}

/// A reliable connected queue pair.
///
/// # Safety
///
/// The send queue works, completes and reports its requests in the order of posting. The queues
/// it was made with are kept until the device has forgotten it.
pub unsafe trait RawQueuePair: Debug + Send {
    /// Its number.
    fn number(&self) -> u32;

    /// Returns the maximum number of bytes that it can send inline.
    fn inline_max(&self) -> u32;

    /// Moves it from INIT through RTR to RTS.
    ///
    /// # Errors
    ///
    /// Returns the system's error; the queue pair is then fit for nothing but destruction.
    fn connect(&mut self, path: &PathAttributes) -> Result<(), VerbsError>;

    /// Moves it to the error state, from any state. What is in flight is flushed, later.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    fn set_error(&mut self) -> Result<(), VerbsError>;

    /// Posts requests in order with one call into the device.
    ///
    /// # Safety
    ///
    /// Each segment lies in a live registration of the same device. Until the request's completion
    /// or a later one of this queue has been polled, or [`destroy`](Self::destroy) has succeeded,
    /// the memory stays mapped and registered, nothing writes to it, and nothing reads it either
    /// if the request is a READ. A request to bind names a live window and a live region of the
    /// same device; both are looked at during the call only.
    ///
    /// # Errors
    ///
    /// [`PartialPost`] when the device did not take all of them.
    unsafe fn post_send(&mut self, requests: &[RawSend]) -> Result<(), PartialPost>;

    /// Destroys it. Once this has succeeded the device touches none of its posted memory again,
    /// even where no completion was polled.
    ///
    /// # Errors
    ///
    /// Returns the system's error. The device may then still use everything that was posted, and
    /// the implementation has leaked the queue pair with the queues that it was made with.
    fn destroy(self: Box<Self>) -> Result<(), VerbsError>;
}

/// Bytes of registered memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawSegment {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub len: u32,
    /// Key of the region.
    pub key: LocalKey,
}

/// The operation of a send request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawOperation {
    /// Sends the segment as a message.
    Send,
    /// Sends the segment as a message that also takes away a key of the receiver
    /// (`SEND_WITH_INV`). A key that is not valid there fails the receiver's queue pair.
    SendInvalidate(RemoteKey),
    /// Reads the peer's memory into the segment.
    Read(RemoteMemory),
    /// Opens a span of a region to the peer, to be read and nothing else.
    Bind(RawBind),
    /// Takes away the key of a window of our own. A key that is not valid fails the queue pair.
    Invalidate(RemoteKey),
}

/// The memory that a window is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawBind {
    /// The window, which is not bound now.
    pub window: ObjectHandle,
    /// The key it will have: its last one with another low byte.
    pub key: RemoteKey,
    /// The region, registered as [`Access::Windowed`].
    pub region: ObjectHandle,
    /// The region's key for this process.
    pub region_key: LocalKey,
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub len: u64,
}

/// A request for a send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawSend {
    /// Identity for the completion.
    pub work_id: u64,
    /// Operation of the request.
    pub operation: RawOperation,
    /// The local bytes; `None` for a message without any.
    pub segment: Option<RawSegment>,
    /// Set if its success is reported. Failure always is.
    pub signaled: bool,
    /// Set if the bytes are copied when posting.
    pub inline: bool,
}

/// A request for a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawReceive {
    /// Identity for the completion.
    pub work_id: u64,
    /// Memory for the message.
    pub segment: RawSegment,
}

/// A post of several requests that ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialPost {
    /// Number of requests, from the front, that are or may be in flight. If the device does not
    /// say, it is all.
    pub accepted: usize,
    /// Why the next was not taken, as a system error number.
    pub errno: i32,
}

/// The lkey of a memory region: lets this process's own work requests use it.
///
/// A type of its own, since an rkey ([`RemoteKey`]) is a `u32` in verbs too, and a mix-up would
/// compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalKey(pub u32);

/// An asynchronous event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Kind of the event.
    pub kind: AsyncEventKind,
    /// The port it happened to, if it was one.
    pub port: Option<u8>,
    /// The number of the queue pair it happened to, if it was one.
    pub queue_pair_number: Option<u32>,
}

impl AsyncEventKind {
    /// The numbers of `enum ibv_event_type`, which are part of the kernel's ABI.
    #[cfg(any(test, feature = "ibverbs"))]
    pub(crate) fn from_number(number: i32) -> Self {
        match number {
            0 => Self::CompletionQueueError,
            1 => Self::QueuePairFatal,
            2 => Self::QueuePairRequestError,
            3 => Self::QueuePairAccessError,
            8 => Self::DeviceFatal,
            9 => Self::PortActive,
            10 => Self::PortError,
            11 => Self::LidChange,
            14 => Self::SharedReceiveQueueError,
            15 => Self::ReceiveLimit,
            16 => Self::LastReceiveReached,
            18 => Self::GidChange,
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_event_is_kept_as_its_number() {
        assert_eq!(AsyncEventKind::from_number(10), AsyncEventKind::PortError);
        assert_eq!(AsyncEventKind::from_number(99), AsyncEventKind::Other(99));
    }
}
