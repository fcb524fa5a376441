//! The driver: joins the queue of what goes out and the frames in the making with a socket.
//!
//! Whoever sends writes, if nobody else is writing; so a call on an idle connection reaches the
//! socket in its caller's task, and calls that arrive meanwhile go out with the next write. When
//! the socket is full, one task waits for it. Reading has a task of its own.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use bytes::Bytes;
use rpc_core::pool::Pool;
use rpc_core::transport::{
    CloseReason, Counters, Handler, Transport, TransportError, TransportStats,
};
use rpc_core::wire::{HEADER_LEN, ProtocolError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::incoming::{Event, Incoming};
use crate::outgoing::{FrameBuffer, Outgoing};
use crate::record::WHOLE_LEN_MAX;
use crate::socket::Socket;
use crate::spare::Spare;

/// The bytes of small frames that may wait to be written: 64 of the longest.
const SMALL_QUEUE_BYTES_MAX: usize = 64 * WHOLE_LEN_MAX;

/// The bytes of large frames that may wait to be written. A longer frame waits to be alone.
const LARGE_QUEUE_BYTES_MAX: usize = 128 << 20;

/// How long a closing connection may take to write what it was given.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a closing connection waits for the peer to close too.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// What is read at a time only to be thrown away.
const SINK_LEN: usize = 16 << 10;

/// A connected socket as a transport.
pub(crate) struct SocketTransport<S> {
    shared: Arc<Shared<S>>,
}

struct Shared<S> {
    socket: S,
    pool: Pool,
    counters: Counters,
    queue: Mutex<Queue>,
    /// Held while writing, never while waiting. Locked before `queue` when both are.
    outgoing: Mutex<Outgoing>,
    socket_full: Notify,
    written: Notify,
    small_budget: Arc<Semaphore>,
    large_budget: Arc<Semaphore>,
    close: CancellationToken,
}

/// What senders touch; locked for a few instructions at a time.
struct Queue {
    /// What the writer has not taken up yet.
    inbox: Vec<Item>,
    /// Memory for small frames.
    spare: Spare,
    /// Whether everything ever queued is written.
    is_idle: bool,
    /// Set while the socket takes no more; then only the waiting task writes.
    is_full: bool,
    closed: Option<CloseReason>,
}

/// Something to be written.
enum Item {
    Frame(FrameBuffer),
    Control([u8; HEADER_LEN]),
}

/// How far a write got.
#[derive(PartialEq, Eq)]
enum Flushed {
    All,
    SocketFull,
}

impl<S> SocketTransport<S> {
    pub(crate) fn new(socket: S, pool: Pool) -> Self {
        let shared = Shared {
            socket,
            pool,
            counters: Counters::default(),
            queue: Mutex::new(Queue {
                inbox: Vec::new(),
                spare: Spare::default(),
                is_idle: true,
                is_full: false,
                closed: None,
            }),
            outgoing: Mutex::default(),
            socket_full: Notify::new(),
            written: Notify::new(),
            small_budget: Arc::new(Semaphore::new(SMALL_QUEUE_BYTES_MAX)),
            large_budget: Arc::new(Semaphore::new(LARGE_QUEUE_BYTES_MAX)),
            close: CancellationToken::new(),
        };
        Self { shared: Arc::new(shared) }
    }
}

impl<S: Socket> Shared<S> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code between lock and unlock can leave the queue half-changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The budget that a frame counts against, and how much of it the frame takes.
    fn budget(&self, len: usize) -> (&Arc<Semaphore>, u32) {
        let (budget, max) = if len > WHOLE_LEN_MAX {
            (&self.large_budget, LARGE_QUEUE_BYTES_MAX)
        } else {
            (&self.small_budget, SMALL_QUEUE_BYTES_MAX)
        };
        // Both budgets fit 32 bits.
        (budget, u32::try_from(len.min(max)).unwrap_or(u32::MAX))
    }

    fn buffer(&self, len: usize, permit: OwnedSemaphorePermit) -> FrameBuffer {
        let memory_len = FrameBuffer::memory_len(len);
        let spare = self.queue().spare.take(memory_len);
        let memory = spare.unwrap_or_else(|| Spare::allocate(&self.pool, memory_len));
        FrameBuffer::new(memory, permit)
    }

    fn closed(&self) -> TransportError {
        let reason = self.queue().closed.clone().unwrap_or(CloseReason::Local);
        TransportError::Closed { reason }
    }

    fn push(&self, item: Item) -> Result<(), TransportError> {
        {
            let mut queue = self.queue();
            if let Some(reason) = &queue.closed {
                return Err(TransportError::Closed { reason: reason.clone() });
            }
            queue.inbox.push(item);
            queue.is_idle = false;
            if queue.is_full {
                return Ok(());
            }
        }
        self.flush();
        Ok(())
    }

    /// Writes what is queued, unless somebody else is at it and will see it.
    fn flush(&self) {
        loop {
            let mut outgoing = match self.outgoing.try_lock() {
                Ok(outgoing) => outgoing,
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            let flushed = self.write(&mut outgoing);
            drop(outgoing);
            match flushed {
                // Somebody may have queued more while the lock was still held.
                Ok(Flushed::All) if !self.queue().is_idle => {}
                Ok(Flushed::All) => return,
                Ok(Flushed::SocketFull) => return self.socket_full.notify_one(),
                Err(error) => return self.fail(CloseReason::Failed(error.to_string())),
            }
        }
    }

    fn write(&self, outgoing: &mut Outgoing) -> io::Result<Flushed> {
        loop {
            {
                let mut queue = self.queue();
                queue.spare.append(&mut outgoing.spare);
                for item in queue.inbox.drain(..) {
                    self.take_up(outgoing, item);
                }
                if outgoing.is_empty() {
                    queue.is_idle = true;
                    self.written.notify_waiters();
                    return Ok(Flushed::All);
                }
            }
            let written = self.socket.try_write_vectored(&outgoing.slices());
            match written {
                Ok(len) => outgoing.advance(len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.queue().is_full = true;
                    return Ok(Flushed::SocketFull);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn take_up(&self, outgoing: &mut Outgoing, item: Item) {
        let is_large = match item {
            Item::Frame(frame) => {
                self.counters.written_bytes.add(frame.frame_len() as u64);
                outgoing.push(frame)
            }
            Item::Control(header) => {
                outgoing.push_control(header);
                false
            }
        };
        let counters = &self.counters;
        if is_large { &counters.large_sent } else { &counters.small_sent }.add(1);
        counters.sent_count.add(1);
    }

    /// Ends the connection at once: nothing is sent any more, and the reading task is told.
    fn fail(&self, reason: CloseReason) {
        {
            let mut queue = self.queue();
            queue.closed.get_or_insert(reason);
            queue.inbox.clear();
            queue.is_idle = true;
        }
        self.small_budget.close();
        self.large_budget.close();
        self.written.notify_waiters();
        self.close.cancel();
    }

    /// Waits for the socket whenever it is full, so that senders need not.
    ///
    /// # Cancel safety
    ///
    /// Begun anew, it goes on where it was: what it looks at first is the socket, not the news.
    async fn write_when_full(&self) {
        loop {
            while self.queue().is_full {
                if self.socket.writable().await.is_err() {
                    return;
                }
                self.queue().is_full = false;
                self.flush();
            }
            self.socket_full.notified().await;
        }
    }

    /// Waits until all that is queued is written, within bounds.
    async fn flushed(&self) {
        let flushed = async {
            loop {
                let written = self.written.notified();
                if self.queue().is_idle {
                    return;
                }
                written.await;
            }
        };
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, flushed).await;
    }

    /// Says that nothing more will come, and throws away what the peer still sends until it has
    /// closed too, within bounds. A socket that is closed with bytes unread resets the connection,
    /// which takes from the peer what it has not read yet.
    async fn linger(&self) {
        if socket2::SockRef::from(&self.socket).shutdown(Shutdown::Write).is_err() {
            return;
        }
        let closed_by_peer = async {
            let mut sink = self.pool.take(SINK_LEN);
            while self.socket.readable().await.is_ok() {
                match self.socket.try_read(&mut sink) {
                    Ok(0) => return,
                    Ok(_) => tokio::task::consume_budget().await,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        let _ = tokio::time::timeout(LINGER_TIMEOUT, closed_by_peer).await;
    }

    /// Reads until the connection ends, and says why it did.
    async fn read(&self, handler: &dyn Handler) -> CloseReason {
        let mut incoming = Incoming::new(self.pool.clone());
        loop {
            incoming.rest();
            if let Err(error) = self.socket.readable().await {
                return CloseReason::Failed(error.to_string());
            }
            match self.read_available(&mut incoming, handler).await {
                Ok(()) => {}
                Err(reason) => return reason,
            }
        }
    }

    async fn read_available(
        &self,
        incoming: &mut Incoming,
        handler: &dyn Handler,
    ) -> Result<(), CloseReason> {
        loop {
            let [direct, buffer] = incoming.spare();
            let mut spare = [IoSliceMut::new(direct), IoSliceMut::new(buffer)];
            match self.socket.try_read_vectored(&mut spare) {
                Ok(0) if incoming.is_between_frames() => return Err(CloseReason::Peer),
                Ok(0) => {
                    let words = "the peer closed the connection inside a frame";
                    return Err(CloseReason::Failed(words.into()));
                }
                Ok(len) => {
                    incoming.filled(len);
                    self.counters.received_bytes.add(len as u64);
                    self.deliver(incoming, handler)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(CloseReason::Failed(error.to_string())),
            }
            // A peer that never pauses must not keep this thread from other connections.
            tokio::task::consume_budget().await;
        }
    }

    fn deliver(&self, incoming: &mut Incoming, handler: &dyn Handler) -> Result<(), ProtocolError> {
        while let Some(event) = incoming.next()? {
            match event {
                Event::Announced { prefix, len } => {
                    incoming.admit(handler.handle_announced(&prefix, len)?);
                }
                Event::Frame { frame, large } => {
                    let counters = &self.counters;
                    if large { &counters.large_received } else { &counters.small_received }.add(1);
                    handler.handle_frame(frame)?;
                }
            }
        }
        self.counters.copied_bytes.add(incoming.take_copied_bytes());
        Ok(())
    }

    /// The life of the connection.
    async fn run(self: Arc<Self>, handler: Arc<dyn Handler>) {
        let reason = tokio::select! {
            biased;
            () = self.close.cancelled() => CloseReason::Local,
            reason = self.read(&*handler) => reason,
            () = self.write_when_full() => CloseReason::Failed("cannot write".into()),
        };
        if reason == CloseReason::Local {
            // What was sent before closing still goes out, while nothing more is taken.
            tokio::select! {
                () = self.flushed() => {}
                () = self.write_when_full() => {}
            }
            // Nobody waits for a peer to which nothing can be written.
            if self.queue().closed == Some(CloseReason::Local) {
                self.linger().await;
            }
        }
        self.fail(reason);
        // The socket may be dead already.
        let _ = socket2::SockRef::from(&self.socket).shutdown(Shutdown::Both);
        let reason = self.queue().closed.clone().unwrap_or(CloseReason::Local);
        handler.handle_closed(reason);
    }
}

impl<S: Socket> Transport for SocketTransport<S> {
    type Buffer = FrameBuffer;
    type Tail = Infallible;

    fn name(&self) -> &'static str {
        S::NAME
    }

    fn start(&self, handler: Arc<dyn Handler>) {
        tokio::spawn(Arc::clone(&self.shared).run(handler));
    }

    fn try_reserve(&self, len: usize) -> Result<Option<FrameBuffer>, TransportError> {
        let (budget, share) = self.shared.budget(len);
        match Arc::clone(budget).try_acquire_many_owned(share) {
            Ok(permit) => Ok(Some(self.shared.buffer(len, permit))),
            Err(tokio::sync::TryAcquireError::NoPermits) => Ok(None),
            Err(tokio::sync::TryAcquireError::Closed) => Err(self.shared.closed()),
        }
    }

    async fn reserve(&self, len: usize) -> Result<FrameBuffer, TransportError> {
        let (budget, share) = self.shared.budget(len);
        match Arc::clone(budget).acquire_many_owned(share).await {
            Ok(permit) => Ok(self.shared.buffer(len, permit)),
            Err(_) => Err(self.shared.closed()),
        }
    }

    fn send(&self, frame: FrameBuffer) -> Result<(), TransportError> {
        self.shared.push(Item::Frame(frame))
    }

    fn claim_tail(&self, _: usize, _: &Bytes) -> Option<Infallible> {
        None
    }

    fn send_with_tail(&self, _: FrameBuffer, tail: Infallible) -> Result<(), TransportError> {
        match tail {}
    }

    fn send_control(&self, header: [u8; HEADER_LEN]) -> Result<(), TransportError> {
        self.shared.push(Item::Control(header))
    }

    fn close(&self) {
        self.shared.queue().closed.get_or_insert(CloseReason::Local);
        self.shared.close.cancel();
    }

    fn abort(&self, reason: CloseReason) {
        self.shared.fail(reason);
    }

    fn stats(&self) -> TransportStats {
        self.shared.counters.snapshot()
    }
}

impl<S: Socket> fmt::Debug for SocketTransport<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketTransport")
            .field("socket", &self.shared.socket)
            .finish_non_exhaustive()
    }
}
