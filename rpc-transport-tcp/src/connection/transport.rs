//! A connected socket as a transport.
//!
//! `reserve` gives memory to senders, `write` moves it to the socket, and `read` receives frames.
//! One task per connection reads, and writes what senders leave behind (`driver`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use rpc_core::memory::MemoryShare;
use rpc_core::policy::progress::{Flow, Flows};
use rpc_core::pool::Pool;
use rpc_core::transport::{
    CloseReason, FrameProtocol, Handler, OutFrame, Outbound, Transport, TransportError,
    TransportStats,
};
use rpc_core::wire::HEADER_LEN;

use crate::codec::record::{RECORD_HEADER_LEN, RecordHeader, RecordKind, SINGLE_LEN_MAX};
use crate::connection::driver::ConnectionDriver;
use crate::connection::scratch;
use crate::connection::shared::ConnectionShared;
use crate::connection::socket::Socket;
use crate::send::frame::FrameBuffer;

/// Maximum length of a batch of small messages in bytes. Writing 32 KiB takes about 8 us, so the
/// system call no longer dominates.
const BATCH_LEN_MAX: usize = 32 << 10;

/// A connected socket as a transport.
pub(crate) struct SocketTransport<S> {
    pub(crate) shared: Arc<ConnectionShared<S>>,
}

impl<S> SocketTransport<S> {
    pub(crate) fn new(socket: S, pool: Pool) -> Self {
        Self { shared: Arc::new(ConnectionShared::new(socket, pool)) }
    }
}

impl<S: Socket> SocketTransport<S> {
    /// Lets the frame encode itself, and queues the result.
    fn push(&self, mut buffer: FrameBuffer, frame: OutFrame<'_>) -> Result<(), TransportError> {
        buffer.fill(frame)?;
        let written_len = buffer.written_len();
        self.shared.push(|queue| queue.push(buffer.into_frame(), written_len))
    }
}

impl<S: Socket> Transport for SocketTransport<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn batch_len_max(&self) -> usize {
        BATCH_LEN_MAX
    }

    fn start(&self, handler: Arc<dyn Handler>) {
        tokio::spawn(ConnectionDriver::new(Arc::clone(&self.shared), handler).run());
    }

    fn try_send(&self, frame: OutFrame<'_>) -> Result<bool, TransportError> {
        // The flag saves taking the lock. A stale value lets one more short record past the bound,
        // or costs one detour.
        if scratch::fits(&frame) && !self.shared.is_full.load(Ordering::Relaxed) {
            let sent = scratch::with_record(frame, |record| self.shared.push_record(record));
            return sent.map(|()| true);
        }
        let Some(buffer) = self.shared.try_buffer(&frame)? else { return Ok(false) };
        self.push(buffer, frame).map(|()| true)
    }

    fn send<'a>(&'a self, frame: OutFrame<'a>) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let buffer = self.shared.buffer(&frame).await?;
            self.push(buffer, frame)
        })
    }

    fn send_control(&self, header: [u8; HEADER_LEN]) -> Result<(), TransportError> {
        let record = RecordHeader::new(RecordKind::Single, HEADER_LEN);
        let mut bytes = [0; RECORD_HEADER_LEN + HEADER_LEN];
        bytes[..RECORD_HEADER_LEN].copy_from_slice(&record.to_bytes());
        bytes[RECORD_HEADER_LEN..].copy_from_slice(&header);
        self.shared.push(|queue| queue.push_bytes(&bytes))
    }

    fn limit_large(&self, bytes_max: u64) {
        // A share returns when its frame is written, and the peer reads bytes in order. It has
        // therefore received that frame before it learns of the next one with the share.
        self.shared.large_budget.lower(bytes_max);
    }

    fn charge_memory(&self, share: &MemoryShare) {
        self.shared.queue().count_backlog(share);
        // The session calls this only once.
        let _ = self.shared.memory.set(share.clone());
    }

    fn abandon(&self, call: u64) {
        // The CANCEL frame that follows makes a writer look.
        self.shared.queue().abandon(call);
    }

    fn is_flushed(&self) -> bool {
        !self.shared.queue().is_busy()
    }

    fn frame_protocol(&self) -> FrameProtocol {
        FrameProtocol::new("one record", "pieces", SINGLE_LEN_MAX as u64)
    }

    fn close(&self) {
        // Drains the queue first: the driver must find it draining when it is notified.
        self.shared.queue().drain();
        self.shared.close.notify_one();
    }

    fn abort(&self, reason: CloseReason) {
        self.shared.fail(reason);
    }

    fn has_unread(&self) -> bool {
        self.shared.socket.has_unread()
    }

    fn stats(&self) -> TransportStats {
        let sent = self.shared.queue().sent();
        TransportStats {
            small_sent: sent.small_count,
            large_sent: sent.large_count,
            sent_count: sent.small_count + sent.large_count,
            written_bytes: sent.bytes,
            ..self.shared.counters.snapshot()
        }
    }

    fn outbound(&self) -> Outbound {
        let (small_bytes, window_bytes) = {
            let queue = self.shared.queue();
            (queue.small_bytes() as u64, queue.window_bytes())
        };
        // A large frame's share is taken until the frame is written.
        let queued_bytes = Some(small_bytes + self.shared.large_budget.taken());
        Outbound { credits: None, queued_bytes, window_bytes }
    }

    fn flows(&self) -> Flows {
        // Bytes accepted by the kernel count as taken by the peer: the kernel's buffer is finite.
        let moved_bytes = self.shared.counters.sent_bytes.value();
        let sending = Flow { is_waiting: self.shared.queue().is_busy(), moved_bytes };
        Flows { sending, receiving: self.shared.chunks_received.flow() }
    }
}

impl<S: Socket> fmt::Debug for SocketTransport<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketTransport")
            .field("socket", &self.shared.socket)
            .finish_non_exhaustive()
    }
}
