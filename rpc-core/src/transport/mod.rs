//! The seam between the runtime and what moves bytes.
//!
//! A transport moves opaque *frames* of any size to one peer and back. It is given a frame that
//! writes itself ([`OutFrame`]), finds memory for it in its own pool, and lets it write itself
//! there: a message is encoded in place, in the caller's task, where the device can read it.
//! Back-pressure acts there, in two places: the pool (memory) and readiness (credits, or room in
//! the queue).
//!
//! What arrives is pushed into a [`Handler`] from the transport's own task, so that no second
//! task has to be woken to look at it. A small frame comes whole. A large one is announced first,
//! by its header alone, so that the runtime can refuse it before memory or bandwidth is spent.
//!
//! How a frame travels (whole or in pieces, sent or pulled) is the transport's business and is
//! deliberately not visible here.

mod addresses;
pub mod byte_budget;
mod close_reason;
pub(crate) mod frames;
pub(crate) mod inproc;
pub(crate) mod received;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use thiserror::Error;

use crate::handoff::Handoff;
use crate::limits::memory::MemoryShare;
use crate::payload::tail_field::Detacher;
use crate::policy::progress::Flows;
use crate::wire::{HEADER_LEN, ProtocolError};
use crate::{BufferSource, Deadline};

pub use addresses::{Addresses, Identity, TlsInfo};
pub use close_reason::{CloseReason, task_dropped};
pub use frames::{FrameMarks, FrameProtocol, OutFrame, Withdrawn, WriteHead};
pub use received::Tail;

/// The parameters of an upgraded path that both ends of a network care about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathInfo {
    /// Bytes of payload in a packet.
    pub mtu: u32,
    /// Traffic class of the packets that this side sends. On InfiniBand within a subnet, packets
    /// carry none.
    pub traffic_class: u8,
    /// Traffic class of the peer's packets; `None` if the peer does not say.
    pub peer_traffic_class: Option<u8>,
    /// Service level of the packets that this side sends.
    pub service_level: u8,
}

impl PathInfo {
    /// A path whose peer says nothing of its own class.
    #[doc(hidden)]
    #[must_use]
    pub fn new(mtu: u32, traffic_class: u8) -> Self {
        Self { mtu, traffic_class, peer_traffic_class: None, service_level: 0 }
    }
}

/// One link to one peer, as the runtime sees it. Methods may be called from any task.
///
/// Frames of less than about a slot keep their order; a large frame may be overtaken.
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// The transport's name, as addresses and logs spell it.
    fn name(&self) -> &'static str;

    /// Returns the maximum length of a frame that several ready messages of a stream share.
    ///
    /// Default: 4 KiB less headers, which fits an RDMA slot. At most 32 KiB.
    fn batch_len_max(&self) -> usize {
        4000
    }

    /// Starts receiving into `handler`. Called once, inside a tokio runtime.
    fn start(&self, handler: Arc<dyn Handler>);

    /// Sends a frame if there is memory for it at once, and owns that until the peer and the device
    /// are done with it. False when the caller has to wait with [`Transport::send`]: then the frame
    /// was not written.
    ///
    /// # Errors
    ///
    /// Returns `TransportError` if the transport is closed, can never have that much memory, or the
    /// frame was withdrawn; the frame is not sent.
    fn try_send(&self, frame: OutFrame<'_>) -> Result<bool, TransportError>;

    /// Sends a frame once there is memory for it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Transport::try_send`].
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: dropped before it is ready, it has neither written nor sent the
    /// frame, and only the position in the queue is lost.
    fn send<'a>(&'a self, frame: OutFrame<'a>) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Sends a frame that is a header alone, from memory set aside for that, without waiting.
    ///
    /// # Errors
    ///
    /// Returns `TransportError` if the transport is closed; the frame is not sent.
    fn send_control(&self, header: [u8; HEADER_LEN]) -> Result<(), TransportError>;

    /// Sets the peer's `max_receiving_bytes`, before the transport is started. Large frames beyond
    /// it wait on this side; a single frame above it is sent alone. A transport without large
    /// frames ignores it.
    fn limit_large(&self, _bytes_max: u64) {}

    /// Sets, before the transport is started, the share that is charged for frames that the network
    /// has not taken. The session has admitted these frames, so that charging never fails. By
    /// default nothing is charged, for transports whose memory has its own bound.
    fn charge_memory(&self, _share: &MemoryShare) {}

    /// Gives up the large frames of a call, either way: no call wants them any more. What is being
    /// received stops where it can, what was offered is taken back, and the memory is free once
    /// neither the peer nor a device uses it. Frames that were announced and stop here are
    /// reported by [`Handler::handle_withheld`]. What cannot be stopped goes on as if nothing had
    /// been said, and so does everything in a transport that does not implement this.
    fn abandon(&self, _call: u64) {}

    /// Returns true if this side holds nothing that was sent: the operating system has it, or the
    /// peer.
    fn is_flushed(&self) -> bool {
        true
    }

    /// Ends the link: what was sent is flushed within a bound of time, then the handler hears
    /// [`Handler::handle_closed`]. Closing twice is closing once.
    fn close(&self);

    /// Ends the link at once, because the peer cannot be expected to take anything any more: what
    /// was not sent is dropped, then the handler hears `reason`, unless the link has ended before.
    fn abort(&self, reason: CloseReason);

    /// Returns true if something has arrived that this side has not read yet. Called rarely: before
    /// a silent peer is given up. The default is false.
    fn has_unread(&self) -> bool {
        false
    }

    /// Returns the source of memory that this transport can send from, if it has any.
    fn buffers(&self) -> Option<Arc<dyn BufferSource>> {
        None
    }

    /// Returns the bytes that wait on this side, and the room that the peer has. By default neither
    /// is known.
    fn outbound(&self) -> Outbound {
        Outbound::default()
    }

    /// Describes how small and large frames travel, for accounts of calls.
    fn frame_protocol(&self) -> FrameProtocol {
        FrameProtocol::DEFAULT
    }

    /// Returns the parameters of its path. By default there are none.
    fn path(&self) -> Option<PathInfo> {
        None
    }

    /// Returns the transport's counts so far.
    fn stats(&self) -> TransportStats;

    /// Returns the bytes that wait for the peer and from the peer, and the bytes that have moved. A
    /// peer that stops is judged by them. Called a few times a minute.
    ///
    /// By default nothing ever waits, for transports that watch their peers' progress themselves
    /// and for those whose peer is in this process.
    fn flows(&self) -> Flows {
        Flows::default()
    }
}

/// The receiver of a transport's deliveries.
///
/// Calls for one transport come one after the other, with two exceptions. While
/// [`Handler::handle_frame`] runs user code, for which it has released the [`Handoff`], other calls
/// may come from another task. So the handler must finish its bookkeeping first: before that user
/// code returns, its call may have been ended and the link closed. And a direct link inside the
/// process delivers in the sending tasks, concurrently, even after [`Handler::handle_closed`].
/// Frames of one direction of one call still come in order.
pub trait Handler: fmt::Debug + Send + Sync + 'static {
    /// Looks at the first bytes of a large frame of `len` bytes before it is received.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if the peer violates the protocol: the transport closes the link.
    fn handle_announced(
        &self,
        prefix: &[u8; HEADER_LEN],
        len: u64,
    ) -> Result<Admission, ProtocolError>;

    /// Takes a frame that has arrived; `delivery` says whether it was announced before, and has
    /// the frame's tail if that is apart.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if the peer violates the protocol: the transport closes the link.
    /// Never after `handoff` was released.
    fn handle_frame(
        &self,
        frame: Bytes,
        delivery: Delivery,
        handoff: &mut Handoff,
    ) -> Result<(), ProtocolError>;

    /// Returns true if [`handle_frame`](Self::handle_frame) may run user code, for which it
    /// releases the handoff. A transport may keep its driver from handlers that never do.
    fn runs_user_code(&self) -> bool {
        true
    }

    /// Records that an admitted frame, of which `prefix` are the first bytes, will not come.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if the peer violates the protocol: the transport closes the link.
    fn handle_withheld(
        &self,
        prefix: &[u8; HEADER_LEN],
        reason: Withheld,
    ) -> Result<(), ProtocolError>;

    /// Records that the link has ended. Called once, and last but for user code that still runs.
    fn handle_closed(&self, reason: CloseReason);
}

/// The way a frame arrived. The transport knows, and the peer cannot pass one for the other.
#[derive(Debug)]
pub enum Delivery {
    /// At once.
    Whole,
    /// After it was announced and admitted.
    Announced,
    /// After it was announced and admitted, with the end of its message apart: the frame that is
    /// delivered ends before it. Only where its admission said how to find the tail.
    Split(Box<Tail>),
}

impl Delivery {
    /// Returns true if the frame was announced before.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        !matches!(self, Self::Whole)
    }

    /// Returns the tail of the frame's message, if that is apart.
    pub(crate) fn into_tail(self) -> Option<Box<Tail>> {
        match self {
            Self::Whole | Self::Announced => None,
            Self::Split(tail) => Some(tail),
        }
    }
}

/// The treatment of an announced frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Receive it, unless the deadline passes before the transport begins: then
    /// [`Handler::handle_withheld`] is called instead of [`Handler::handle_frame`].
    Accept {
        /// Time after which receiving is pointless.
        deadline: Option<Deadline>,
        /// Accessors of the message's fields, for [`Tail::find`]. A transport may read the tail
        /// into the vector that becomes the field, and deliver the frame as
        /// [`Delivery::Split`].
        detacher: Option<Detacher>,
    },
    /// Tell the sender that it will not be received; it is not delivered.
    Refuse,
}

/// Why an admitted frame was not received. The link lives on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Withheld {
    /// Its deadline had passed when the transport was to begin with it.
    Expired,
    /// Its call was given up, on this side or by the peer.
    GivenUp,
    /// There can be no memory for it; the words name the limit and how to raise it.
    NoMemory(String),
}

/// Why a frame cannot be sent.
#[derive(Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportError {
    /// The link has ended.
    #[error("the connection is closed: {reason}")]
    Closed {
        /// Why.
        reason: CloseReason,
    },
    /// The frame needs more memory than the pool may ever have.
    #[error("{len} bytes do not fit the {pool} of {max} bytes ({setting})")]
    OverPool {
        /// The frame's length in bytes.
        len: u64,
        /// Name of the pool.
        pool: &'static str,
        /// The pool's limit in bytes.
        max: u64,
        /// The setting that raises the limit.
        setting: &'static str,
    },
    /// The frame withdrew itself while it was written.
    #[error("the frame is not to be sent any more")]
    Withdrawn,
    /// The operating system grants no more memory for the pool.
    #[error("no memory for {len} bytes: {detail}")]
    Memory {
        /// The frame's length in bytes.
        len: u64,
        /// The limit that was met and how to raise it.
        detail: String,
    },
}

crate::readable_debug!(TransportError);

/// The sending side of a transport at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outbound {
    /// Messages that the peer lets this side send. `None` for transports without credits.
    pub credits: Option<u32>,
    /// Bytes of frames that the network or the peer has not taken whole. `None` where the transport
    /// does not know.
    pub queued_bytes: Option<u64>,
    /// Bytes of large frames that may be on their way at a time. `None` for transports without such
    /// a window, and while it is not in use.
    pub window_bytes: Option<u64>,
}

/// A transport's counts since its start. Frames of this side, both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransportStats {
    /// Frames sent whole.
    pub small_sent: u64,
    /// Frames sent in pieces or offered to be pulled.
    pub large_sent: u64,
    /// Frames received whole.
    pub small_received: u64,
    /// Frames received in pieces or pulled.
    pub large_received: u64,
    /// Bytes of frames that this side copied from one buffer to another, encoding not counted.
    pub copied_bytes: u64,
    /// Bytes of frames written into the transport's send memory. What a payload
    /// costs in copies on its way out is in here: encoding it is one, and one that is sent from
    /// where it lies has none.
    pub written_bytes: u64,
    /// Everything given to the network as a unit: frames, and the transport's own messages.
    pub sent_count: u64,
    /// Bytes that the network has taken, those of frames still on their way included. 0 where
    /// frames move without the kernel.
    pub sent_bytes: u64,
    /// Bytes that have come in, those of frames still on their way included.
    pub received_bytes: u64,
    /// Reads and writes that the kernel was asked for, those that failed for want of data or room
    /// included; of a byte stream that the program made, the stream's. 0 where frames move without
    /// either.
    pub kernel_calls: u64,
    /// The writes among these.
    pub kernel_writes: u64,
}

impl TransportStats {
    /// Adds the counts of another transport.
    #[cfg(feature = "metrics")]
    pub(crate) fn add(&mut self, other: Self) {
        self.small_sent += other.small_sent;
        self.large_sent += other.large_sent;
        self.small_received += other.small_received;
        self.large_received += other.large_received;
        self.copied_bytes += other.copied_bytes;
        self.written_bytes += other.written_bytes;
        self.sent_count += other.sent_count;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.kernel_calls += other.kernel_calls;
        self.kernel_writes += other.kernel_writes;
    }
}

/// The live counters behind [`TransportStats`]; an event is one relaxed addition.
#[derive(Debug, Default)]
pub struct Counters {
    /// See [`TransportStats::small_sent`].
    pub small_sent: Counter,
    /// See [`TransportStats::large_sent`].
    pub large_sent: Counter,
    /// See [`TransportStats::small_received`].
    pub small_received: Counter,
    /// See [`TransportStats::large_received`].
    pub large_received: Counter,
    /// See [`TransportStats::copied_bytes`].
    pub copied_bytes: Counter,
    /// See [`TransportStats::written_bytes`].
    pub written_bytes: Counter,
    /// See [`TransportStats::sent_count`].
    pub sent_count: Counter,
    /// See [`TransportStats::sent_bytes`].
    pub sent_bytes: Counter,
    /// See [`TransportStats::received_bytes`].
    pub received_bytes: Counter,
    /// The reads of [`TransportStats::kernel_calls`].
    pub kernel_reads: Counter,
    /// See [`TransportStats::kernel_writes`].
    pub kernel_writes: Counter,
}

impl Counters {
    /// The counts at this moment.
    #[must_use]
    pub fn snapshot(&self) -> TransportStats {
        let kernel_writes = self.kernel_writes.value();
        TransportStats {
            small_sent: self.small_sent.value(),
            large_sent: self.large_sent.value(),
            small_received: self.small_received.value(),
            large_received: self.large_received.value(),
            copied_bytes: self.copied_bytes.value(),
            written_bytes: self.written_bytes.value(),
            sent_count: self.sent_count.value(),
            sent_bytes: self.sent_bytes.value(),
            received_bytes: self.received_bytes.value(),
            kernel_calls: self.kernel_reads.value() + kernel_writes,
            kernel_writes,
        }
    }
}

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
