//! What senders and the connection's task share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rpc_core::byte_budget::ByteBudget;
use rpc_core::memory::MemoryShare;
use rpc_core::policy::progress::Flow;
use rpc_core::pool::Pool;
use rpc_core::transport::{CloseReason, Counters};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::codec::decoder::Decoder;
use crate::send::frame::LARGE_BYTES_MAX;
use crate::send::queue::SendQueue;
use crate::send::scheduler::WriteScheduler;

/// What senders and the connection's task share.
pub(crate) struct Shared<S> {
    pub(crate) socket: S,
    pub(crate) pool: Pool,
    pub(crate) counters: Counters,
    pub(crate) chunks_received: ChunksReceived,
    queue: Mutex<SendQueue>,
    /// Locked while writing, never while waiting, and only by `try_lock`, so that `queue` may be
    /// locked before or after it. Unlocked before `queue`.
    pub(crate) scheduler: Mutex<WriteScheduler>,
    /// Tells the connection's task that it is its turn to write, or that all is drained.
    pub(crate) driver_wakeup: Notify,
    /// Set by a sender of a short record that has filled the queue. The next sender looks whether
    /// there is room, under the queue's lock, and resets it.
    pub(crate) is_full: AtomicBool,
    /// Tells senders that there is room for small frames.
    pub(crate) room: Notify,
    pub(crate) large_budget: ByteBudget,
    /// Where the memory of large frames is counted, once that is known.
    pub(crate) memory: OnceLock<MemoryShare>,
    pub(crate) close: CancellationToken,
}

impl<S> Shared<S> {
    pub(crate) fn new(socket: S, pool: Pool) -> Self {
        Self {
            socket,
            pool,
            counters: Counters::default(),
            chunks_received: ChunksReceived::default(),
            queue: Mutex::default(),
            scheduler: Mutex::default(),
            driver_wakeup: Notify::new(),
            is_full: AtomicBool::new(false),
            room: Notify::new(),
            large_budget: ByteBudget::new(LARGE_BYTES_MAX as u64),
            memory: OnceLock::new(),
            close: CancellationToken::new(),
        }
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, SendQueue> {
        // No code between lock and unlock can leave the queue half-changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing more is taken.
    pub(crate) fn close_reason(&self) -> CloseReason {
        self.queue().close_reason().cloned().unwrap_or(CloseReason::Local)
    }
}

/// How far the peer's large frames had come after the last read, for other tasks than the reading
/// one.
///
/// The reading task tells after each read, which costs it two stores. A frame that comes in one
/// record is left out: its peer can send nothing else before the rest of it, so that one that
/// stops there is silent, which keepalive finds.
#[derive(Debug, Default)]
pub(crate) struct ChunksReceived {
    are_missing: AtomicBool,
    bytes: AtomicU64,
}

impl ChunksReceived {
    /// Records what `decoder` has.
    pub(crate) fn update(&self, decoder: &Decoder) {
        // The two are looked at together but need not agree: a look that is a read late only
        // makes the peer's time longer.
        self.bytes.store(decoder.acks.read_bytes(), Ordering::Relaxed);
        self.are_missing.store(decoder.has_transfers(), Ordering::Relaxed);
    }

    /// Whether chunks are missing, and the bytes of all that have come.
    pub(crate) fn flow(&self) -> Flow {
        Flow {
            is_waiting: self.are_missing.load(Ordering::Relaxed),
            moved_bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}
