//! Verbs objects that own what their device uses.
//!
//! [`Provider`] and the `Raw*` traits are the seam below; `Ibverbs` is the implementation over
//! libibverbs, `sim` has one over a simulated network. Here stand [`CompletionQueue`],
//! [`SharedReceiveQueue`] and [`QueuePair`], which are safe: buffers are moved into them and come
//! back with completions.
//!
//! Deliberately not here: tasks, credits, message formats, and the choice of a device.
//!
//! # Claims
//!
//! - **V1 (objects).** A raw object's pointers are valid until it is destroyed, which its owner
//!   does once, and it keeps its parents by `Arc`: queue pair, shared receive queue, completion
//!   queue, channel, memory region, protection domain, context, in that order. An object that
//!   cannot be destroyed is leaked together with its parents.
//! - **V2 (posted memory has one owner).** What is posted was moved into the queue before the
//!   device hears of it, and the queue has no way to its bytes. It names memory only by segments
//!   that were checked against the slot or sink that goes with it.
//! - **V3 (send queues complete in order).** A completion of a request means that the device is
//!   done with it and everything posted before it to that queue. Successful READs have landed.
//! - **V4 (partial posts).** After a post that ended early, requests before the refused one are in
//!   flight. If the device does not say which it refused, all are taken to be.
//! - **V5 (destruction).** Moving a queue pair to the error state is no barrier. Its memory is free
//!   after the completion of the last request, or after `destroy` succeeded: then the device has
//!   forgotten the queue pair and with it every request, and completions that were queued before
//!   match nothing, because they carry no pointer but a serial that is never used again. If
//!   `destroy` failed, the memory is leaked, unless the kernel has taken the device away
//!   (`is_gone`): then it has destroyed the queue pair itself.
//! - **V6 (receive slots).** The receive memory is kept by the raw shared receive queue until that
//!   is destroyed. A slot is read only between its completion and its next post, and both need
//!   `&mut` of the queue that owns the slot table. A slot that has not completed is posted again
//!   only when the device cannot have it (`lost_receives`): the provider promises that receives
//!   are taken in the order of posting, a later one has completed, and every queue pair that could
//!   have taken it is destroyed (V5) or has completed a later one, which a reliable connection does
//!   in order. It then has another serial, so that no completion of the first post reads it.
//! - **V7 (completions are permissions).** A [`Completion`] is made only from what a provider
//!   reported, is never copied and is consumed by handling it. One that names no work in flight of
//!   this very queue (by serial, position and queue pair number) is an error and frees nothing.
//! - **V8 (windows).** A window grants reading and nothing else, of memory that M4 lets a peer read
//!   at any time: what it decides is who sees which bytes, never whether memory is valid. Its
//!   structure is looked at while a request that names it is being posted, by the queue pair that
//!   owns both, and at no other time. A binding keeps its region registered, and a queue pair's
//!   windows are deallocated before it is destroyed.
//! - **V9 (simulated devices).** What a simulated device knows of memory is a pointer in its
//!   network's table. It is there only while the region is registered, and followed only under the
//!   network's lock: to gather what a posted message names, to write to a posted receive or READ
//!   before its completion has been polled, and to read what a key opens to the peer. A region
//!   that something in flight names does not leave the table, and is leaked. Handles of objects
//!   are numbers. A peer that reads what its owner is writing is a data race here, as it is not on
//!   hardware: tests of such peers run on one thread.

#[forbid(unsafe_code)]
mod attachment;
#[forbid(unsafe_code)]
mod completion_budget;
#[forbid(unsafe_code)]
mod completion_queue;
#[forbid(unsafe_code)]
mod in_flight;
#[forbid(unsafe_code)]
mod lost_receives;
mod queue_pair;
#[forbid(unsafe_code)]
mod queue_pair_config;
mod shared_receive_queue;
#[cfg(feature = "sim")]
mod simulated;
#[forbid(unsafe_code)]
mod slot_table;
#[forbid(unsafe_code)]
mod spare_queue_pair;
#[forbid(unsafe_code)]
mod work;

pub use attachment::Attachment;
pub use completion_queue::{CompletionQueue, SweepMark};
pub(crate) use queue_pair::HaltingQueuePair;
pub use queue_pair::QueuePair;
pub use queue_pair_config::QueuePairConfig;
pub use shared_receive_queue::{
    ReceiveError, Settled, SharedReceiveQueue, SharedReceiveQueueConfig,
};
#[cfg(feature = "sim")]
pub use simulated::SimProvider;
pub(crate) use spare_queue_pair::SpareQueuePair;
pub use work::{Done, PostError, UnknownCompletion, Work};

pub use crate::memory::{Binding, Window};
#[cfg(feature = "ibverbs")]
pub use crate::sys::provider::Ibverbs;
pub use crate::sys::provider::{
    Agreement, AsyncEvent, CommandClock, Completion, CompletionError, ConnectError, Device,
    DeviceAttributes, DeviceInfo, Endpoint, FirmwareCommand, Gid, GidEntry, GidKind, LastReceive,
    Leftover, LinkLayer, LocalKey, LockedMemory, Mtu, ObjectHandle, PartialPost, Partition,
    PathAttributes, Port, PortAttributes, PortState, Provider, QueuePairRequest, Quirks, RawBind,
    RawCompletion, RawCompletionQueue, RawDevice, RawMemoryRegion, RawMemoryWindow, RawOperation,
    RawQueuePair, RawReceive, RawSegment, RawSend, RawSharedReceiveQueue, ReadDepths, ReceiveDrain,
    ReceiveOrder, RemoteKey, RemoteMemory, VerbsError, WorkId, WorkKind, WorkStatus,
};
pub(crate) use crate::sys::provider::{LocalAddress, RAISE_LOCK_LIMIT, queue_memory};
pub use crate::{AsyncEventKind, ConnectOptions};
