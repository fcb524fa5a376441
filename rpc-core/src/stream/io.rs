//! The I/O that a stream uses of its session: the frames that it sends, within the receiver's
//! window, and the received messages that it inflates, within the limits of this side.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::{Buf, Bytes};
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tonic::Status;

use crate::call::options::MessageLimit;
use crate::call::refusal;
use crate::calls::window::{Counts, SendWindow, Window};
use crate::compression::{INFLATER_HELD, inflate};
use crate::limits::memory::MemoryCharge;
use crate::payload::encode::Encode;
use crate::session::SessionCore;
use crate::transport::TransportError;
use crate::transport::frames::Parts;
use crate::wire::{FrameHeader, FrameKind};
use crate::{Limits, Method};

/// A session, its role forgotten.
pub(crate) trait SessionIo: fmt::Debug + Send + Sync {
    /// Returns the part that both roles share.
    fn core(&self) -> &SessionCore;

    /// The status of a call whose frame the transport does not take.
    fn unsendable(&self, error: &TransportError) -> Status;

    /// Sends a frame if there is memory for it at once; false when the caller has to wait.
    fn try_send(&self, parts: &mut Parts<'_>) -> Result<bool, Status> {
        let core = self.core();
        core.check_memory(parts.len())?;
        core.transport.try_send(parts.frame()).map_err(|error| self.unsendable(&error))
    }

    /// Sends a frame once there is memory for it.
    fn send<'a>(&'a self, parts: &'a mut Parts<'a>) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let core = self.core();
            let _waiting = core.memory.try_take(parts.len() as u64)?;
            let sent = core.transport.send(parts.frame()).await;
            sent.map_err(|error| self.unsendable(&error))
        })
    }
}

/// One direction of a call, as its sender holds it: it numbers every frame.
#[derive(Debug)]
pub(crate) struct StreamWriter {
    io: Arc<dyn SessionIo>,
    call: u64,
    seq: u64,
}

impl StreamWriter {
    pub(crate) fn new(io: Arc<dyn SessionIo>, call: u64) -> Self {
        Self { io, call, seq: 0 }
    }

    pub(crate) fn peer_limits(&self) -> &Limits {
        &self.io.core().settled.peer_limits
    }

    pub(super) fn batch_len_max(&self) -> usize {
        self.io.core().batch_len_max()
    }

    /// The sequence number of the frame that comes next.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Sends a frame once there is memory for it. Dropped before that, it is not sent.
    pub(crate) async fn send(
        &mut self,
        kind: FrameKind,
        block: &[u8],
        message: Option<&dyn Encode>,
    ) -> Result<(), Status> {
        self.send_frame(Parts::new(self.header(kind), block, message)).await
    }

    /// Sends a frame with one compressed message, as [`Self::send`].
    pub(super) async fn send_deflated(&mut self, message: &dyn Encode) -> Result<(), Status> {
        let mut header = self.header(FrameKind::Messages);
        header.is_deflated = true;
        self.send_frame(Parts::new(header, &[], Some(message))).await
    }

    async fn send_frame(&mut self, mut parts: Parts<'_>) -> Result<(), Status> {
        if !self.io.try_send(&mut parts)? {
            self.io.send(&mut parts).await?;
        }
        // Only now: a frame that was given up while it waited leaves no gap.
        self.seq += 1;
        Ok(())
    }

    /// Sends a frame that is a header alone.
    pub(crate) fn send_control(&mut self, kind: FrameKind) {
        self.io.core().send_control(self.header(kind));
        self.seq += 1;
    }

    fn header(&self, kind: FrameKind) -> FrameHeader {
        let mut header = FrameHeader::bare(kind, self.call);
        header.argument = self.seq;
        header
    }
}

/// Tells the peer how much of its stream it may send.
pub(super) fn grant(io: &dyn SessionIo, call: u64, granted: Counts) {
    let mut header = FrameHeader::bare(FrameKind::Window, call);
    header.argument = granted.to_wire();
    io.core().send_control(header);
}

/// The window of one stream to the peer.
#[derive(Debug)]
pub(crate) struct SendStream {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    window: SendWindow,
    waker: Option<Waker>,
}

impl SendStream {
    pub(crate) fn new(window: Window) -> Self {
        Self { state: Mutex::new(State { window: SendWindow::new(window), waker: None }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the number of messages sent so far, modulo 2^32.
    pub(crate) fn sent_count(&self) -> u32 {
        self.state().window.sent().messages
    }

    /// Bytes of the messages that were sent so far, modulo 2^32.
    pub(crate) fn sent_bytes(&self) -> u32 {
        self.state().window.sent().bytes
    }

    /// Handles a window update of the peer.
    pub(crate) fn handle_grant(&self, granted: Counts) {
        let waker = {
            let mut state = self.state();
            state.window.handle_grant(granted);
            if state.window.is_open() { state.waker.take() } else { None }
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Counts a message if the window is open.
    #[must_use]
    pub(super) fn try_send(&self, len: usize) -> bool {
        let mut state = self.state();
        let is_open = state.window.is_open();
        if is_open {
            state.window.send(len);
        }
        is_open
    }

    /// Counts a message once the window is open.
    pub(super) async fn send(&self, len: usize) {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.window.is_open() {
                state.window.send(len);
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A side's limits on the received messages of a call, and the call's name.
#[derive(Debug, Clone)]
pub(crate) struct Receiving {
    /// Limit of the stub or the service.
    pub(crate) limit: MessageLimit,
    /// The method, for errors.
    pub(crate) method: Method,
}

/// A message after it was inflated, and what it counts in the memory budget.
pub(crate) struct Inflated {
    pub(crate) message: Bytes,
    pub(crate) charge: MemoryCharge,
}

/// Inflates a message. Its length is checked, and counted in the memory budget, before there is
/// memory for it.
///
/// # Errors
///
/// Returns a status if it is over a limit, if the budget has no room, or if it is not what it says.
///
/// # Cancel safety
///
/// This function is cancel safe: the memory is free at once.
pub(crate) async fn inflated(
    io: &dyn SessionIo,
    mut message: Bytes,
    Receiving { limit, method }: Receiving,
) -> Result<Inflated, Status> {
    let (what, path) = (limit.message(), method.path());
    // The header was checked for it when the frame came.
    let len = message.try_get_u64_le().unwrap_or_default();
    refusal::check_inflated(what, path, len, io.core().settled.limits.max_message_len)?;
    // What fits no address is over the limit of this side, unless that is endless.
    let whole_len = usize::try_from(len).unwrap_or(usize::MAX - 1);
    limit.check(whole_len)?;
    let charge = io.core().memory.try_take(len.saturating_add(INFLATER_HELD))?;
    match inflate(&message, whole_len).await {
        Ok(message) => Ok(Inflated { message, charge }),
        Err(reason) => Err(Status::internal(format!(
            "the {what}'s message of {path} cannot be inflated: {reason}"
        ))),
    }
}
