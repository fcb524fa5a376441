//! The provider of verbs: the seam under which an implementation of them stands, and the one over
//! libibverbs.
//!
//! [`Provider`] and the `Raw*` traits are the seam. [`Ibverbs`] is the implementation over
//! libibverbs, `sim` has one over a simulated network. What both share is here too: memory as a
//! device knows it ([`Mapping`]), what devices and ports say of themselves, completions, and the
//! path of a queue pair. The numbered claims are those of [`verbs`](crate::verbs) and
//! [`memory`](crate::memory), which stand on this.
//!
//! Deliberately not here: ownership of what is posted, and any accounting.

#[cfg(feature = "sim")]
pub(crate) mod access;
#[forbid(unsafe_code)]
mod attributes;
#[forbid(unsafe_code)]
pub(crate) mod commands;
#[forbid(unsafe_code)]
mod completion;
#[forbid(unsafe_code)]
mod deferred_drop;
#[forbid(unsafe_code)]
mod device;
#[forbid(unsafe_code)]
mod error;
#[cfg(feature = "ibverbs")]
mod ibverbs;
#[forbid(unsafe_code)]
mod locked_memory;
mod mapping;
mod memory_policy;
mod pages;
#[forbid(unsafe_code)]
mod path;
#[forbid(unsafe_code)]
pub(crate) mod queue_memory;
#[forbid(unsafe_code)]
mod quirks;
mod raw;
#[forbid(unsafe_code)]
mod work_id;

pub use attributes::{
    DeviceAttributes, DeviceInfo, GidEntry, GidKind, Partition, PortAttributes, PortState,
};
pub use commands::{CommandClock, FirmwareCommand};
pub use completion::{Completion, CompletionError, RawCompletion, WorkStatus};
pub(crate) use deferred_drop::DeferredDrop;
pub(crate) use device::LocalAddress;
pub use device::{Device, Port};
pub(crate) use error::RAISE_LOCK_LIMIT;
pub use error::VerbsError;
#[cfg(feature = "sim")]
pub(crate) use error::is_gone;
#[cfg(feature = "ibverbs")]
pub use ibverbs::Ibverbs;
pub use locked_memory::LockedMemory;
pub use mapping::{Access, Mapping};
pub(crate) use memory_policy::PreferredNode;
pub use pages::PageKind;
pub(crate) use pages::page_len;
pub(crate) use path::NUMBER_24_MAX;
pub use path::{Agreement, ConnectError, PathAttributes};
pub use quirks::{LastReceive, Leftover, Quirks, ReceiveDrain, ReceiveOrder};
pub use raw::{
    AsyncEvent, LocalKey, ObjectHandle, PartialPost, Provider, QueuePairRequest, RawBind,
    RawCompletionQueue, RawDevice, RawMemoryRegion, RawMemoryWindow, RawOperation, RawQueuePair,
    RawReceive, RawSegment, RawSend, RawSharedReceiveQueue,
};
pub(crate) use work_id::QueueIdentity;
pub use work_id::{WorkId, WorkKind};

pub use crate::proto::endpoint::{Endpoint, Gid, LinkLayer, Mtu, ReadDepths};
pub use crate::proto::remote_memory::{RemoteKey, RemoteMemory};
