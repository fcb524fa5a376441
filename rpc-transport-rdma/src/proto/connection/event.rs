//! The events that a connection's state takes, and the actions that it returns.

use std::fmt::Debug;
use std::ops::DerefMut;
use std::time::Duration;

use bytes::Bytes;
use rpc_core::Reason;
use rpc_core::transport::{CloseReason, Withheld};
use rpc_core::wire::HEADER_LEN;
use tokio::time::Instant;

use crate::proto::remote_memory::{RemoteKey, RemoteMemory};
use crate::proto::rndv::get::{Chunk, GetRequest};
use crate::proto::rndv::memory_windows::Bind;
use crate::proto::rndv::throttle::ReadShare;
use crate::proto::wire::Rts;

/// The memory and the objects of verbs that a connection moves and does not look into.
pub(crate) trait Buffers: Debug + 'static {
    /// Registered memory for one message.
    type Slot: DerefMut<Target = [u8]> + Debug;
    /// Token that returns to the connection's sender with the completion of a message.
    type Permit: Debug;
    /// Memory of a frame that the peer READs.
    type Payload: Payload<Binding = Self::Binding> + Debug;
    /// A memory window and the payload that it opens.
    type Binding: Bind + Debug;
    /// A handle to memory that READs fill.
    type Sink: Clone + Debug;
    /// This peer's share of the READ bytes of a device.
    type Share: ReadShare + Debug;
}

/// A memory window that opens nothing.
pub(crate) type MemoryWindowOf<B> = <<B as Buffers>::Binding as Bind>::Window;

/// Room for READs of a device.
pub(crate) type PermitOf<B> = <<B as Buffers>::Share as ReadShare>::Permit;

/// Memory of a frame that the peer READs.
pub(crate) trait Payload {
    type Binding: Bind;

    /// Returns the memory behind the frame's head, as the peer names it without a window.
    fn remote(&self) -> RemoteMemory;

    /// Binds a window to what follows the head and to nothing else.
    fn bind(&self, window: <Self::Binding as Bind>::Window) -> Self::Binding;

    /// The offer of the frame, of which the peer names what follows the head `memory`; `slot` is
    /// where the offer will be written.
    fn describe(&self, slot: &[u8], memory: RemoteMemory) -> Rts;

    /// Bytes of the frame that were written here.
    fn written_len(&self) -> usize;

    /// Returns true if it is no frame's, but this side's part of the path's proof.
    fn is_proof(&self) -> bool {
        false
    }
}

/// The time at which a deadline is checked, and what this side may have missed before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) now: Instant,
    /// Set if something may have arrived that the worker has not read. User code can keep it from
    /// reading.
    pub(crate) has_unread: bool,
    /// Time since the deadline. It is long if the process has stood still.
    pub(crate) late_by: Duration,
}

/// A frame to be sent, in its turn.
#[derive(Debug)]
pub(crate) enum Outgoing<B: Buffers> {
    /// One that lies in its slot, behind room for the header.
    // The permit bounds a connection's part of the lane's slots, and comes back with the slot.
    Frame { slot: B::Slot, len: usize, permit: B::Permit },
    /// One to be offered, and the slot for the offer.
    Rts {
        payload: B::Payload,
        slot: B::Slot,
        permit: B::Permit,
        /// The call that the frame is of.
        call: u64,
        /// Set if the call was cancelled while the offer waited. The offer still goes out, because
        /// what follows may name it, and is taken back at once.
        is_given_up: bool,
    },
    /// One that is a header alone. It waits here for its turn, so that what gives up a call does
    /// not come before the call; its slot is a control slot.
    Control([u8; HEADER_LEN]),
}

/// Something that has happened to a connection.
#[derive(Debug)]
pub(crate) enum Event<'a, B: Buffers> {
    /// The peer is to be asked for an answer, to prove the connection.
    Probe,
    /// There is a handler: what came before is delivered.
    Open,
    /// The application closes: what was sent goes out first, within bounds.
    Close,
    /// The connection has to end at once.
    Fail(CloseReason),
    /// The application gives up what travels for a call, either way.
    Abandon { call: u64 },
    /// The worker needs credits that an idle peer holds.
    Reclaim,
    /// The handler wants what the peer offers.
    Accept { transfer: u32, wanted: GetRequest },
    /// The handler does not.
    Refuse { transfer: u32 },
    /// The peer takes an offer back. Of this it was told by a delivery, in order with the offer.
    Cancelled { transfer: u32 },
    /// There is memory for a transfer, which has the frame's [head](super::ConnectionState::head).
    Memory { transfer: u32, sink: B::Sink },
    /// There is none.
    NoMemory { transfer: u32, why: Withheld },
    /// There is room for READs: the answer to [`Action::TakeTurn`].
    Turn(PermitOf<B>),
    /// The owner has no memory for this side's part of the path's proof.
    NoProof(Reason),
    /// The bytes that were READ for the path's proof were compared with those of its seed.
    ProofChecked { is_good: bool },
    /// A message of the peer, and the key that it took away.
    // Borrowed: the slot is posted again before anything is delivered.
    Message { bytes: &'a [u8], taken_key: Option<RemoteKey> },
    /// The device is done with a message, whose slot is a control slot.
    SentControl(B::Slot),
    /// The peer's device has a message of another slot.
    Sent,
    /// The device gives a message of another slot back, which may or may not have arrived.
    Unsent,
    /// The device is done with a READ. `is_read` says that the bytes are there.
    // The sink comes back with each READ, because the device owns it until then.
    Read { queue: usize, len: u32, sink: B::Sink, is_read: bool },
    /// A READ was given back without having been posted, by an end that is halted.
    Unposted { queue: usize },
    /// The peer may read through a window.
    Bound(B::Binding),
    /// The peer can read no more through a window.
    Invalidated(B::Binding),
    /// One answer to [`Action::AllocateMemoryWindows`].
    MemoryWindow(Result<MemoryWindowOf<B>, Reason>),
    /// The peer can read no more through the window with this key: the answer to
    /// [`Action::Revoke`].
    Revoked(RemoteKey),
    /// The queue pairs are halted, or cannot be: the answer to [`Action::Halt`].
    Halted,
    /// The device took a part of a post, and no completion will say when it takes more.
    PostRefused,
    /// The [deadline](super::ConnectionState::next_deadline) has passed.
    Timeout(Look),
}

/// Something for the device, in the order of posting.
#[derive(Debug)]
pub(crate) enum Transmit<B: Buffers> {
    /// A message; with it goes the key of the peer's that it takes away. A message without a permit
    /// is one in a control slot.
    Message { slot: B::Slot, len: u32, takes_key: Option<RemoteKey>, permit: Option<B::Permit> },
    /// An offer, behind the window that opens its memory.
    Offer { binding: Option<B::Binding>, slot: B::Slot, len: u32, permit: B::Permit },
    /// Takes the key of a window away from the peer.
    Invalidate(B::Binding),
    /// A READ, for one of the queues.
    Read(Chunk<B::Sink>),
}

/// Something that has to be done for a connection, in the order of the queue.
#[derive(Debug)]
pub(crate) enum Action<B: Buffers> {
    /// Stop the queue pairs: what was not posted is given back, what is in flight comes back, and
    /// the device's answer is [`Event::Halted`].
    Halt,
    /// Tell the handler of the end: the device has not halted the queue pairs in time.
    TellEnd,
    /// Allocate windows, and tell of each by [`Event::MemoryWindow`].
    AllocateMemoryWindows { count: usize },
    /// Deallocate a window, and say by [`Event::Revoked`] that its key is dead.
    Revoke(B::Binding),
    /// Wait no longer for the device to say that it takes no more receives.
    GiveUpLastReceives,
    /// Send this side's part of the path's proof.
    OfferProof,
    /// The path is proven.
    Proven,
    /// Drop memory that the peer is done with. That may run code of the application.
    Free(B::Payload),
    /// Wait for room for so many bytes of READs: [`Event::Turn`].
    TakeTurn { len: u32 },
    /// Take memory for the transfers that are due, until
    /// [`next_memory`](super::ConnectionState::next_memory) gives none.
    TakeMemory,
    /// Tell the handler of an announced frame that will not come.
    Withhold { prefix: [u8; HEADER_LEN], reason: Withheld },
    /// Log that something waits for credit.
    LogStall(String),
    /// Log the last work requests. The owner's own, which carries it out with its lock released.
    LogRequests(Box<dyn Debug + Send>),
    /// Destroy the queue pairs although they do not drain.
    Destroy,
}

/// An arrived message.
#[derive(Debug)]
pub(crate) enum Arrival<S> {
    /// A frame that travelled whole.
    Small(Bytes),
    /// A frame that was fetched. No READ fills its memory any more.
    Large(S),
    /// A frame that the peer offers.
    Rts { transfer: u32, offer: Rts },
    /// The peer takes an offer back, which may have come just before and wait to be handed out.
    Cancelled { transfer: u32 },
    /// The peer's part of the path's proof was fetched: a head, and then `count` equal parts.
    Proof { sink: S, head_len: usize, count: usize },
}
