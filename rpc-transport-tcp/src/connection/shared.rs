//! The state shared by senders and the connection's task.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rpc_core::byte_budget::ByteBudget;
use rpc_core::memory::MemoryShare;
use rpc_core::policy::progress::Flow;
use rpc_core::pool::Pool;
use rpc_core::transport::{CloseReason, Counters};
use tokio::sync::Notify;

use crate::codec::decoder::Decoder;
use crate::connection::wakeup::Wakeup;
use crate::send::frame::LARGE_BYTES_MAX;
use crate::send::queue::SendQueue;
use crate::send::scheduler::WriteScheduler;

/// The state shared by senders and the connection's task.
pub(crate) struct ConnectionShared<S> {
    pub(crate) socket: S,
    pub(crate) pool: Pool,
    pub(crate) counters: Counters,
    pub(crate) chunks_received: ChunksReceived,
    queue: Mutex<SendQueue>,
    /// Held while writing, never while waiting. Only ever taken by `try_lock`, so `queue` may be
    /// locked before or after it. Released before `queue`.
    pub(crate) scheduler: Mutex<WriteScheduler>,
    /// Tells the connection's task that it must write, or that everything is drained.
    pub(crate) driver_wakeup: Wakeup,
    /// Set by a sender whose short record has filled the queue. The next sender checks for room
    /// under the queue's lock and resets it.
    pub(crate) is_full: AtomicBool,
    /// Wakes senders that wait for room for small frames.
    pub(crate) room: Notify,
    pub(crate) large_budget: ByteBudget,
    /// The budget that large frames count against, once it is known.
    pub(crate) memory: OnceLock<MemoryShare>,
    /// Tells the connection's task that the connection ends.
    pub(crate) close: Wakeup,
}

impl<S> ConnectionShared<S> {
    pub(crate) fn new(socket: S, pool: Pool) -> Self {
        Self {
            socket,
            pool,
            counters: Counters::default(),
            chunks_received: ChunksReceived::default(),
            queue: Mutex::default(),
            scheduler: Mutex::default(),
            driver_wakeup: Wakeup::default(),
            is_full: AtomicBool::new(false),
            room: Notify::new(),
            large_budget: ByteBudget::new(LARGE_BYTES_MAX as u64),
            memory: OnceLock::new(),
            close: Wakeup::default(),
        }
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, SendQueue> {
        self.queue.lock()
    }

    /// Returns the reason why the queue takes no more frames.
    pub(crate) fn close_reason(&self) -> CloseReason {
        self.queue().close_reason().cloned().unwrap_or(CloseReason::Local)
    }
}

/// The progress of the peer's large frames as of the last read, for tasks other than the reading
/// one.
///
/// The reading task updates it after each read, at the cost of two stores. It ignores a frame that
/// arrives in one record. The peer can send nothing else before the rest of such a frame, so a peer
/// that stops there is silent, and keepalive detects it.
#[derive(Debug, Default)]
pub(crate) struct ChunksReceived {
    are_missing: AtomicBool,
    bytes: AtomicU64,
}

impl ChunksReceived {
    /// Records the state of `decoder`.
    pub(crate) fn update(&self, decoder: &Decoder) {
        // The two stores need not be atomic together. A reader that is one read behind only gives
        // the peer more time.
        self.bytes.store(decoder.acks.read_bytes(), Ordering::Relaxed);
        self.are_missing.store(decoder.has_transfers(), Ordering::Relaxed);
    }

    /// Returns the flow: waiting if chunks are missing, with the bytes of all chunks so far.
    pub(crate) fn flow(&self) -> Flow {
        Flow {
            is_waiting: self.are_missing.load(Ordering::Relaxed),
            moved_bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}
