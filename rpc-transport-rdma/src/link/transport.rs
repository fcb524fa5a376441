//! A proven path as a transport; the out-of-band byte stream beside it is in `oob`.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use rpc_core::BufferSource;
use rpc_core::byte_budget::ByteBudget;
use rpc_core::connect::Bootstrap;
use rpc_core::transport::{
    CloseReason, FrameProtocol, Handler, OutFrame, Outbound, PathInfo, Transport, TransportError,
    TransportStats, Withdrawn,
};
use rpc_core::wire::HEADER_LEN;
use tokio::sync::TryAcquireError;

use crate::connection::Connection;
use crate::connection::buffers::{FramePermit, FrameShare, Outgoing, RndvPayload, State};
use crate::link::oob::watch;
use crate::memory::{PoolError, Slot};
use crate::proto::wire::{MESSAGE_HEADER_LEN, RTS_EXTRA_LEN};
use crate::worker::{Worker, WorkerShared};

/// An RDMA path as a transport. It keeps its worker alive.
pub(crate) struct RdmaTransport {
    connection: Arc<Connection>,
    bootstrap: Mutex<Option<Box<dyn Bootstrap>>>,
    /// Bytes that the peer receives at a time. A frame holds its share until the peer has released
    /// it.
    large_budget: ByteBudget,
    _worker: Arc<Worker>,
    info: PathInfo,
}

impl RdmaTransport {
    pub(crate) fn new(
        connection: Arc<Connection>,
        bootstrap: Box<dyn Bootstrap>,
        worker: Arc<Worker>,
        info: PathInfo,
    ) -> Self {
        Self {
            connection,
            bootstrap: Mutex::new(Some(bootstrap)),
            large_budget: ByteBudget::new(u64::MAX),
            _worker: worker,
            info,
        }
    }

    fn is_small(&self, len: usize) -> bool {
        len <= self.connection.frame_len_max
    }

    /// Memory for a frame, if it is there at once.
    fn try_memory(&self, frame: &OutFrame<'_>) -> Result<Option<FrameMemory>, TransportError> {
        let lent = self.try_lend(frame);
        let permit = match Arc::clone(&self.connection.frames).try_acquire_owned() {
            Ok(permit) => FramePermit::new(permit, frame.marks()),
            Err(TryAcquireError::NoPermits) => return Ok(None),
            Err(TryAcquireError::Closed) => return Err(self.connection.closed()),
        };
        let Some(slot) = self.connection.worker.send_slots.try_take() else { return Ok(None) };
        let place = match lent {
            Some(lent) => lent,
            None => match self.try_place(frame)? {
                Some(place) => place,
                None => return Ok(None),
            },
        };
        Ok(Some(FrameMemory { place, slot, permit }))
    }

    fn try_place(&self, frame: &OutFrame<'_>) -> Result<Option<Place>, TransportError> {
        let len = frame.len();
        if self.is_small(len) {
            return Ok(Some(Place::Slot { len }));
        }
        // This semaphore is never closed.
        let Ok(share) = self.large_budget.try_take(len) else { return Ok(None) };
        let share = FrameShare::new(share, frame.marks());
        match self.connection.sources.try_take_at_once(len) {
            Ok(buffer) => Ok(Some(Place::Offered(RndvPayload::own(buffer, share)))),
            Err(PoolError::Exhausted { .. }) => Ok(None),
            Err(error) => Err(pool_error(len, error)),
        }
    }

    /// Memory for a frame, once it is there.
    async fn memory(&self, frame: &OutFrame<'_>) -> Result<FrameMemory, TransportError> {
        let connection = &self.connection;
        // Acquire in order of contention: this connection's byte budget, then pool memory, then the
        // send slot, so that no slot is held while waiting.
        let place = match self.try_lend(frame) {
            Some(lent) => lent,
            None => self.place(frame).await?,
        };
        let permit = Arc::clone(&connection.frames).acquire_owned().await;
        let permit = permit.map_err(|_| connection.closed())?;
        let permit = FramePermit::new(permit, frame.marks());
        let slot = connection.worker.send_slots.take().await;
        Ok(FrameMemory { place, slot, permit })
    }

    async fn place(&self, frame: &OutFrame<'_>) -> Result<Place, TransportError> {
        let len = frame.len();
        if self.is_small(len) {
            return Ok(Place::Slot { len });
        }
        let share = self.large_budget.take(len).await.map_err(|_| self.connection.closed())?;
        let share = FrameShare::new(share, frame.marks());
        let buffer = self.connection.sources.take(len).await;
        let buffer = buffer.map_err(|error| pool_error(len, error))?;
        Ok(Place::Offered(RndvPayload::own(buffer, share)))
    }

    /// The tail of a large frame as memory that is lent for the peer to read, if it can be.
    fn try_lend(&self, frame: &OutFrame<'_>) -> Option<Place> {
        // A frame that fits a slot is sent, wherever its tail is: an offer costs a round trip.
        if self.is_small(frame.len()) {
            return None;
        }
        let (head_len, tail) = (frame.head_len(), frame.tail()?);
        // The head travels in the offer, or everything is copied behind each other.
        if head_len.saturating_add(RTS_EXTRA_LEN) > self.connection.frame_len_max {
            return None;
        }
        let lent = self.connection.sources.claim_lent(tail)?;
        let share = self.large_budget.try_take(head_len + tail.len()).ok()?;
        let share = FrameShare::new(share, frame.marks());
        Some(Place::Offered(RndvPayload::lent(head_len, tail, lent, share)))
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

/// Memory for one frame, and what is needed to send it.
#[derive(Debug)]
struct FrameMemory {
    place: Place,
    slot: Slot,
    permit: FramePermit,
}

/// The location of a frame.
#[derive(Debug)]
enum Place {
    /// In the slot itself, behind room for the message's header.
    Slot { len: usize },
    /// Apart, to be offered by a message in the slot.
    Offered(RndvPayload),
}

impl FrameMemory {
    /// Lets `frame` write itself into it.
    fn fill(self, frame: OutFrame<'_>) -> Result<Outgoing, Withdrawn> {
        let Self { place, mut slot, permit } = self;
        Ok(match place {
            Place::Slot { len } => {
                frame.write(&mut slot[MESSAGE_HEADER_LEN..][..len])?;
                Outgoing::Frame { slot, len, permit }
            }
            Place::Offered(mut payload) => {
                let call = payload.fill(frame, &mut slot)?;
                Outgoing::Rts { payload, slot, permit, call, is_given_up: false }
            }
        })
    }
}

impl Transport for RdmaTransport {
    fn name(&self) -> &'static str {
        "rdma"
    }

    fn start(&self, handler: Arc<dyn Handler>) {
        let bootstrap = self.bootstrap.lock().take();
        if let Some(bootstrap) = bootstrap {
            self.connection.start(handler);
            tokio::spawn(watch(bootstrap, Arc::clone(&self.connection)));
        }
    }

    fn try_send(&self, frame: OutFrame<'_>) -> Result<bool, TransportError> {
        let Some(memory) = self.try_memory(&frame)? else { return Ok(false) };
        self.connection.send(memory.fill(frame)?).map(|()| true)
    }

    fn send<'a>(&'a self, frame: OutFrame<'a>) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let connection = &self.connection;
            let memory = tokio::select! {
                memory = self.memory(&frame) => memory?,
                () = connection.ending.cancelled() => return Err(connection.closed()),
            };
            connection.send(memory.fill(frame)?)
        })
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

    fn outbound(&self) -> Outbound {
        let state = self.connection.look(|state| (state.credits(), state.waiting_bytes()));
        Outbound {
            credits: state.map(|(credits, _)| credits),
            // A large frame's share is taken until the peer has read the frame.
            queued_bytes: state.map(|(_, bytes)| bytes + self.large_budget.taken()),
            window_bytes: None,
        }
    }

    fn frame_protocol(&self) -> FrameProtocol {
        let small_len_max = self.connection.frame_len_max as u64;
        FrameProtocol::new("SEND", "READ", small_len_max).with_marked_posts()
    }

    fn path(&self) -> Option<PathInfo> {
        Some(self.info)
    }

    fn stats(&self) -> TransportStats {
        self.connection.counters.snapshot()
    }
}

impl Drop for RdmaTransport {
    fn drop(&mut self) {
        let unused = self.bootstrap.get_mut().is_some();
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
