//! A proven path as a transport; the bootstrap that lives beside it is `bootstrap`'s business.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rpc_core::connect::Bootstrap;
use rpc_core::transport::{CloseReason, Handler, Transport, TransportError, TransportStats};
use rpc_core::wire::{FrameHeader, HEADER_LEN};
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};

use crate::bootstrap::watch;
use crate::connection::Connection;
use crate::lane::Lane;
use crate::memory::{LargeBuffer, PoolError, Slot};
use crate::message::MESSAGE_HEADER_LEN;
use crate::path::Outgoing;

/// An RDMA path as a transport. It keeps its lane alive.
pub(crate) struct RdmaTransport {
    connection: Arc<Connection>,
    bootstrap: Mutex<Option<Box<dyn Bootstrap>>>,
    _lane: Arc<Lane>,
}

impl RdmaTransport {
    pub(crate) fn new(
        connection: Arc<Connection>,
        bootstrap: Box<dyn Bootstrap>,
        lane: Arc<Lane>,
    ) -> Self {
        Self { connection, bootstrap: Mutex::new(Some(bootstrap)), _lane: lane }
    }

    fn is_small(&self, len: usize) -> bool {
        len <= self.connection.frame_len_max
    }

    fn pool_error(&self, error: PoolError) -> TransportError {
        match error {
            PoolError::TooLarge { len, bytes_max } | PoolError::Exhausted { len, bytes_max } => {
                TransportError::OverPool {
                    len: len as u64,
                    pool: "memory for large frames being sent",
                    max: bytes_max,
                    knob: "rdma.source_bytes_max",
                }
            }
            error @ PoolError::Register(_) => {
                TransportError::Memory { len: 0, detail: error.to_string() }
            }
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
    /// Apart, to be offered by a message in the slot.
    Large(LargeBuffer),
}

impl AsMut<[u8]> for RdmaBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Slot { len } => &mut self.slot[MESSAGE_HEADER_LEN..MESSAGE_HEADER_LEN + *len],
            Memory::Large(buffer) => buffer,
        }
    }
}

impl Transport for RdmaTransport {
    type Buffer = RdmaBuffer;

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
        let Some(slot) = self.connection.lane.send_slots.try_take() else { return Ok(None) };
        let memory = if self.is_small(len) {
            Memory::Slot { len }
        } else {
            match self.connection.lane.sources.try_take(len) {
                Ok(buffer) => Memory::Large(buffer),
                Err(PoolError::Exhausted { .. }) => return Ok(None),
                Err(error) => return Err(self.pool_error(error)),
            }
        };
        Ok(Some(RdmaBuffer { memory, slot, permit }))
    }

    async fn reserve(&self, len: usize) -> Result<RdmaBuffer, TransportError> {
        let connection = &self.connection;
        let reserved = async {
            // Large memory first: it is waited for longest, and a slot is not held meanwhile.
            let memory = if self.is_small(len) {
                Memory::Slot { len }
            } else {
                let buffer = connection.lane.sources.take(len).await;
                Memory::Large(buffer.map_err(|error| self.pool_error(error))?)
            };
            let permit = Arc::clone(&connection.frames).acquire_owned().await;
            let permit = permit.map_err(|_| connection.closed())?;
            let slot = connection.lane.send_slots.take().await;
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
            Memory::Large(buffer) => {
                let call = FrameHeader::parse(&buffer).map_or(0, |header| header.call);
                Outgoing::Offer { buffer, slot, permit, call, is_given_up: false }
            }
        })
    }

    fn send_control(&self, header: [u8; HEADER_LEN]) -> Result<(), TransportError> {
        self.connection.send_control(header)
    }

    fn abandon(&self, call: u64) {
        self.connection.abandon(call);
    }

    fn close(&self) {
        self.connection.close();
    }

    fn abort(&self, reason: CloseReason) {
        self.connection.fail(reason);
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
