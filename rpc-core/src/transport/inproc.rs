//! Frames between two sessions of one process, by ownership.
//!
//! A queued link has a task at each end. The queues need no bound of their own: a client has at
//! most the server's `max_calls` requests and as many cancels under way, the server at most as many
//! responses.
//!
//! A direct link delivers a frame in the task that sends it. So a unary call whose handler does not
//! wait begins and ends in one poll of its caller, and no task is woken for it. A handler that
//! blocks holds up its caller's task and nothing else. Tasks deliver at the same time, which
//! sessions allow: they send without a lock held, and frames of one call that need an order are
//! sent by one task, or carry their sequence numbers.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use crate::handoff::{Handoff, Resume};
use crate::payload::pool::Pool;
use crate::transport::{
    Admission, CloseReason, Counters, Delivery, FrameProtocol, Handler, OutFrame, Transport,
    TransportError, TransportStats,
};
use crate::wire::HEADER_LEN;

/// Frames from this length on are announced before they are delivered, as on any transport.
const LARGE_LEN: usize = 64 << 10;

/// The most unused memory that one connection keeps: one frame of the largest class in use by
/// the examples, each way.
const KEPT_BYTES_MAX: usize = 128 << 20;

/// The frame that ends a direction: no frame is that short.
const END: Bytes = Bytes::new();

/// One end of an in-process link.
pub(crate) struct InprocTransport {
    name: &'static str,
    outgoing: UnboundedSender<Bytes>,
    incoming: Mutex<Option<UnboundedReceiver<Bytes>>>,
    pool: Pool,
    way: Way,
    shared: Arc<Shared>,
    /// The other end's.
    peer: Arc<Shared>,
}

/// A frame's way to the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By a queue, which a task of the other end reads.
    Queued,
    /// In the task that sends it. The queue has the link's end alone.
    Direct,
}

/// The state that the receiving task shares with the transport.
#[derive(Default)]
struct Shared {
    counters: Counters,
    close: CancellationToken,
    /// Why the link was ended at once, where it was.
    aborted: OnceLock<CloseReason>,
    /// Handler of a direct link. The receiving task keeps it alive until the link has ended.
    handler: OnceLock<Weak<dyn Handler>>,
}

impl InprocTransport {
    /// Two joined ends of a queued link that calls itself `name`.
    pub(crate) fn pair(name: &'static str) -> (Self, Self) {
        Self::joined(name, Way::Queued)
    }

    /// Two joined ends of a direct link that calls itself `name`. Each end is started before the
    /// other sends.
    pub(crate) fn direct_pair(name: &'static str) -> (Self, Self) {
        Self::joined(name, Way::Direct)
    }

    fn joined(name: &'static str, way: Way) -> (Self, Self) {
        let (to_right, from_left) = mpsc::unbounded_channel();
        let (to_left, from_right) = mpsc::unbounded_channel();
        let pool = Pool::new(KEPT_BYTES_MAX);
        let [left, right] = [(); 2].map(|()| Arc::<Shared>::default());
        let end = |outgoing, incoming, shared: &Arc<_>, peer: &Arc<_>| Self {
            name,
            outgoing,
            incoming: Mutex::new(Some(incoming)),
            pool: pool.clone(),
            way,
            shared: Arc::clone(shared),
            peer: Arc::clone(peer),
        };
        (end(to_right, from_right, &left, &right), end(to_left, from_left, &right, &left))
    }

    fn push(&self, frame: Bytes) -> Result<(), TransportError> {
        let closed = |reason| TransportError::Closed { reason };
        if self.shared.close.is_cancelled() {
            return Err(closed(CloseReason::Local));
        }
        let counters = &self.shared.counters;
        let counter =
            if frame.len() < LARGE_LEN { &counters.small_sent } else { &counters.large_sent };
        counter.add(1);
        counters.sent_count.add(1);
        counters.written_bytes.add(frame.len() as u64);
        match self.way {
            Way::Queued => self.outgoing.send(frame).map_err(|_| closed(CloseReason::Peer)),
            Way::Direct => self.peer.deliver(frame).ok_or_else(|| closed(CloseReason::Peer)),
        }
    }
}

impl Shared {
    /// Ends the link at once.
    fn abort(&self, reason: CloseReason) {
        // The side that ended the link first has said why.
        let _ = self.aborted.set(reason);
        self.close.cancel();
    }

    /// Delivers a frame of a direct link to this end; `None` when the end is closed.
    fn deliver(&self, frame: Bytes) -> Option<()> {
        if self.close.is_cancelled() {
            return None;
        }
        let handler = self.handler.get()?.upgrade()?;
        if let Err(error) = deliver(frame, &*handler, &mut Handoff::callers_own(), &self.counters) {
            self.abort(error.into());
        }
        Some(())
    }
}

impl Transport for InprocTransport {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&self, handler: Arc<dyn Handler>) {
        let incoming = self.incoming.lock().take();
        if let Some(incoming) = incoming {
            // Set once: `incoming` is taken once.
            let _ = self.shared.handler.set(Arc::downgrade(&handler));
            let (outgoing, shared) = (self.outgoing.clone(), Arc::clone(&self.shared));
            let runtime = Handle::current();
            tokio::spawn(Box::new(Driver { incoming, outgoing, handler, shared, runtime }).run());
        }
    }

    fn try_send(&self, frame: OutFrame<'_>) -> Result<bool, TransportError> {
        let mut memory = self.pool.take(frame.len());
        frame.write(&mut memory)?;
        self.push(memory.freeze()).map(|()| true)
    }

    fn send<'a>(&'a self, frame: OutFrame<'a>) -> BoxFuture<'a, Result<(), TransportError>> {
        // There always is memory.
        Box::pin(async move { self.try_send(frame).map(drop) })
    }

    fn send_control(&self, header: [u8; HEADER_LEN]) -> Result<(), TransportError> {
        self.push(Bytes::copy_from_slice(&header))
    }

    fn frame_protocol(&self) -> FrameProtocol {
        FrameProtocol::new("whole", "announced", LARGE_LEN as u64 - 1)
    }

    fn close(&self) {
        self.shared.close.cancel();
    }

    fn abort(&self, reason: CloseReason) {
        self.shared.abort(reason);
    }

    fn has_unread(&self) -> bool {
        let received = self.shared.counters.snapshot();
        let received_count = received.small_received + received.large_received;
        self.peer.counters.sent_count.value() > received_count
    }

    fn stats(&self) -> TransportStats {
        self.shared.counters.snapshot()
    }
}

impl fmt::Debug for InprocTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InprocTransport").finish_non_exhaustive()
    }
}

/// The state that the receiving task owns, and that another task continues with when a handler
/// blocks this one.
struct Driver {
    incoming: UnboundedReceiver<Bytes>,
    outgoing: UnboundedSender<Bytes>,
    handler: Arc<dyn Handler>,
    shared: Arc<Shared>,
    runtime: Handle,
}

/// Ends this end of the link if its task is dropped, as a runtime that ends drops its tasks. The
/// other end, and callers on other runtimes, would otherwise wait for ever.
struct Ending {
    outgoing: UnboundedSender<Bytes>,
    shared: Arc<Shared>,
    /// Absent once the end was reported, or another task reports it.
    handler: Option<Arc<dyn Handler>>,
}

impl Ending {
    fn new(driver: &Driver) -> Self {
        let Driver { outgoing, shared, handler, .. } = driver;
        let (outgoing, shared) = (outgoing.clone(), Arc::clone(shared));
        Self { outgoing, shared, handler: Some(Arc::clone(handler)) }
    }

    /// Ends the link and tells the handler, once.
    fn end(&mut self, reason: CloseReason) {
        let Some(handler) = self.handler.take() else { return };
        // The peer's sends fail from here on, and this side's too.
        self.shared.close.cancel();
        // Behind all that was sent. This side's transport may live on for long, unused.
        let _ = self.outgoing.send(END);
        handler.handle_closed(reason);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.end(super::task_dropped());
    }
}

impl Driver {
    fn run(self: Box<Self>) -> impl Future<Output = ()> + Send {
        // Here and not in the future: a runtime that has ended drops the future unpolled.
        let ending = Ending::new(&self);
        self.run_to_end(ending)
    }

    async fn run_to_end(mut self: Box<Self>, mut ending: Ending) {
        let (shared, handler) = (Arc::clone(&self.shared), Arc::clone(&self.handler));
        let mut has_woken = false;
        let reason = loop {
            let frame = tokio::select! {
                // Closing comes first: frames that are still queued are not delivered after it.
                biased;
                () = shared.close.cancelled() => {
                    break shared.aborted.get().cloned().unwrap_or(CloseReason::Local);
                }
                frame = self.incoming.recv() => frame,
            };
            let Some(frame) = frame.filter(|frame| *frame != END) else { break CloseReason::Peer };
            let mut handoff = Handoff::new(self, has_woken);
            let delivered = deliver(frame, &*handler, &mut handoff, &shared.counters);
            has_woken = handoff.has_woken();
            // The handler has blocked, and another task goes on.
            // `delivered` is no error then: a handler returns none after it has released the
            // driver.
            let Some(driver) = handoff.into_driver() else {
                ending.handler = None;
                return;
            };
            self = driver;
            if let Err(error) = delivered {
                break error.into();
            }
        };
        // With its queue: what is still in there is not delivered.
        drop(self);
        ending.end(reason);
    }
}

impl Resume for Driver {
    fn runtime(&self) -> &Handle {
        &self.runtime
    }

    fn resume(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.run().boxed()
    }
}

fn deliver(
    frame: Bytes,
    handler: &dyn Handler,
    handoff: &mut Handoff,
    counters: &Counters,
) -> Result<(), crate::wire::ProtocolError> {
    counters.received_bytes.add(frame.len() as u64);
    if frame.len() < LARGE_LEN {
        counters.small_received.add(1);
        return handler.handle_frame(frame, Delivery::Whole, handoff);
    }
    counters.large_received.add(1);
    let Some(prefix) = frame.first_chunk() else {
        return handler.handle_frame(frame, Delivery::Whole, handoff);
    };
    match handler.handle_announced(prefix, frame.len() as u64)? {
        Admission::Accept { .. } => handler.handle_frame(frame, Delivery::Announced, handoff),
        Admission::Refuse => Ok(()),
    }
}

#[cfg(test)]
#[path = "inproc_tests.rs"]
mod tests;
