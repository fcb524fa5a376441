//! A proven path as a transport; the out-of-band byte stream beside it is in `oob`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rpc_core::BufferSource;
use rpc_core::byte_budget::ByteBudget;
use rpc_core::connect::Bootstrap;
use rpc_core::transport::{CloseReason, Handler, Transport, TransportError, TransportStats};
use rpc_core::wire::{FrameHeader, HEADER_LEN};
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};

use crate::connection::Connection;
use crate::connection::buffers::{Outgoing, State};
use crate::connection::rndv_payload::{LentTail, RndvPayload};
use crate::link::oob::watch;
use crate::memory::{LargeBuffer, PoolError, Slot};
use crate::proto::wire::{MESSAGE_HEADER_LEN, RTS_EXTRA_LEN};
use crate::worker::{Worker, WorkerShared};

/// An RDMA path as a transport. It keeps its worker alive.
pub(crate) struct RdmaTransport {
    connection: Arc<Connection>,
    bootstrap: Mutex<Option<Box<dyn Bootstrap>>>,
    /// What the peer receives at a time. A frame has its share until the peer has released it.
    large_budget: ByteBudget,
    _worker: Arc<Worker>,
}

impl RdmaTransport {
    pub(crate) fn new(
        connection: Arc<Connection>,
        bootstrap: Box<dyn Bootstrap>,
        worker: Arc<Worker>,
    ) -> Self {
        Self {
            connection,
            bootstrap: Mutex::new(Some(bootstrap)),
            large_budget: ByteBudget::new(u64::MAX),
            _worker: worker,
        }
    }

    fn is_small(&self, len: usize) -> bool {
        len <= self.connection.frame_len_max
    }
}

fn pool_error(len: usize, error: PoolError) -> TransportError {
    match error {
        PoolError::TooLarge { len, bytes_max } | PoolError::Exhausted { len, bytes_max } => {
            TransportError::OverPool {
                len: len as u64,
                pool: "memory for large frames being sent",
                max: bytes_max,
                setting: "rdma.max_source_bytes",
            }
        }
        PoolError::OverShare { len, bytes_max, .. } => TransportError::OverPool {
            len: len as u64,
            pool: "this peer's share of the memory for large frames being sent",
            max: bytes_max,
            setting: "rdma.max_source_bytes",
        },
        error @ PoolError::Register(_) => {
            TransportError::Memory { len: len as u64, detail: error.to_string() }
        }
    }
}

/// Memory for one frame.
#[derive(Debug)]
pub(crate) struct RdmaBuffer {
    memory: Memory,
    slot: Slot,
    permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Memory {
    /// In the slot itself, behind room for the message's header.
    Slot { len: usize },
    /// Apart, to be offered by a message in the slot, and its share of what the peer receives.
    Large(LargeBuffer, OwnedSemaphorePermit),
}

impl AsMut<[u8]> for RdmaBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Slot { len } => &mut self.slot[MESSAGE_HEADER_LEN..MESSAGE_HEADER_LEN + *len],
            Memory::Large(buffer, _) => buffer,
        }
    }
}

impl Transport for RdmaTransport {
    type Buffer = RdmaBuffer;
    type Tail = LentTail;

    fn name(&self) -> &'static str {
        "rdma"
    }

    fn start(&self, handler: Arc<dyn Handler>) {
        let bootstrap = self.bootstrap.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(bootstrap) = bootstrap {
            self.connection.start(handler);
            tokio::spawn(watch(bootstrap, Arc::clone(&self.connection)));
        }
    }

    fn try_reserve(&self, len: usize) -> Result<Option<RdmaBuffer>, TransportError> {
        let permit = match Arc::clone(&self.connection.frames).try_acquire_owned() {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits) => return Ok(None),
            Err(TryAcquireError::Closed) => return Err(self.connection.closed()),
        };
        let Some(slot) = self.connection.worker.send_slots.try_take() else { return Ok(None) };
        let memory = if self.is_small(len) {
            Memory::Slot { len }
        } else {
            // This semaphore is never closed.
            let Ok(share) = self.large_budget.try_take(len) else { return Ok(None) };
            match self.connection.sources.try_take_at_once(len) {
                Ok(buffer) => Memory::Large(buffer, share),
                Err(PoolError::Exhausted { .. }) => return Ok(None),
                Err(error) => return Err(pool_error(len, error)),
            }
        };
        Ok(Some(RdmaBuffer { memory, slot, permit }))
    }

    async fn reserve(&self, len: usize) -> Result<RdmaBuffer, TransportError> {
        let connection = &self.connection;
        let reserved = async {
            // Acquire in order of contention: this connection's byte budget, then pool memory, then
            // the send slot, so that no slot is held while waiting.
            let memory = if self.is_small(len) {
                Memory::Slot { len }
            } else {
                let share = self.large_budget.take(len).await.map_err(|_| connection.closed())?;
                let buffer = connection.sources.take(len).await;
                Memory::Large(buffer.map_err(|error| pool_error(len, error))?, share)
            };
            let permit = Arc::clone(&connection.frames).acquire_owned().await;
            let permit = permit.map_err(|_| connection.closed())?;
            let slot = connection.worker.send_slots.take().await;
            Ok(RdmaBuffer { memory, slot, permit })
        };
        tokio::select! {
            reserved = reserved => reserved,
            () = connection.ending.cancelled() => Err(connection.closed()),
        }
    }

    fn send(&self, frame: RdmaBuffer) -> Result<(), TransportError> {
        let RdmaBuffer { memory, slot, permit } = frame;
        self.connection.send(match memory {
            Memory::Slot { len } => Outgoing::Frame { slot, len, permit },
            Memory::Large(buffer, share) => {
                let call = FrameHeader::parse(&buffer).map_or(0, |header| header.call);
                let payload = RndvPayload::Own { buffer, _share: share };
                Outgoing::Rts { payload, slot, permit, call, is_given_up: false }
            }
        })
    }

    fn claim_tail(&self, head_len: usize, tail: &Bytes) -> Option<LentTail> {
        // The head travels in the offer, or everything is copied behind each other.
        if head_len.saturating_add(RTS_EXTRA_LEN) > self.connection.frame_len_max {
            return None;
        }
        let (lent, charge) = self.connection.sources.claim_lent(tail)?;
        let share = self.large_budget.try_take(head_len + tail.len()).ok()?;
        Some(LentTail::new(tail.clone(), lent, share, charge))
    }

    fn send_with_tail(&self, head: RdmaBuffer, tail: LentTail) -> Result<(), TransportError> {
        let RdmaBuffer { memory, slot, permit } = head;
        let Memory::Slot { len: head_len } = memory else {
            let detail = "the head of a frame does not fit a slot".to_owned();
            return Err(TransportError::Memory { len: slot.len() as u64, detail });
        };
        let header = FrameHeader::parse(&slot[MESSAGE_HEADER_LEN..MESSAGE_HEADER_LEN + head_len]);
        let call = header.map_or(0, |header| header.call);
        let payload = RndvPayload::Lent { tail, head_len };
        self.connection.send(Outgoing::Rts { payload, slot, permit, call, is_given_up: false })
    }

    fn send_control(&self, header: [u8; HEADER_LEN]) -> Result<(), TransportError> {
        self.connection.send_control(header)
    }

    fn limit_large(&self, bytes_max: u64) {
        self.large_budget.lower(bytes_max);
    }

    fn abandon(&self, call: u64) {
        self.connection.abandon(call);
    }

    fn is_flushed(&self) -> bool {
        // A path that has ended has nothing left.
        self.connection.look(State::is_flushed).unwrap_or(true)
    }

    fn close(&self) {
        self.connection.close();
    }

    fn abort(&self, reason: CloseReason) {
        self.connection.fail(reason);
    }

    fn has_unread(&self) -> bool {
        self.connection.worker.has_unread()
    }

    fn buffers(&self) -> Option<Arc<dyn BufferSource>> {
        Some(Arc::<WorkerShared>::clone(&self.connection.worker))
    }

    fn stats(&self) -> TransportStats {
        self.connection.counters.snapshot()
    }
}

impl Drop for RdmaTransport {
    fn drop(&mut self) {
        let unused = self.bootstrap.get_mut().unwrap_or_else(PoisonError::into_inner).is_some();
        if unused {
            self.connection.fail(CloseReason::Local);
        }
    }
}

impl fmt::Debug for RdmaTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaTransport")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
