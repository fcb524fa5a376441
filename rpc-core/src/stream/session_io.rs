//! The I/O that a stream uses of its session.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tonic::Status;

use crate::calls::window::Counts;
use crate::limits::memory::MemoryCharge;
use crate::payload::encode::Encode;
use crate::transport::frames::Parts;
use crate::wire::{FrameHeader, FrameKind};
use crate::{Limits, Negotiated};

/// A session, its role and its transport type forgotten.
pub(crate) trait SessionIo: fmt::Debug + Send + Sync {
    /// What the peer accepts.
    fn peer_limits(&self) -> &Limits;

    /// What was agreed on about compressed messages.
    fn compression(&self) -> Negotiated;

    /// The longest message that this side accepts, in bytes of its encoding.
    fn max_message_len(&self) -> u64;

    /// Counts `len` bytes in the memory budget of this side, if it has one.
    ///
    /// # Errors
    ///
    /// When they do not fit.
    fn charge(&self, _len: u64) -> Result<MemoryCharge, Status> {
        Ok(MemoryCharge::default())
    }

    /// How long a frame of messages that share it may be.
    fn batch_len_max(&self) -> usize;

    /// Sends a frame if there is memory for it at once; false when the caller has to wait.
    fn try_send(&self, parts: &Parts<'_>) -> Result<bool, Status>;

    /// Sends a frame once there is memory for it.
    fn send<'a>(&'a self, parts: Parts<'a>) -> BoxFuture<'a, Result<(), Status>>;

    /// Sends a frame that is a header alone.
    fn send_control(&self, header: FrameHeader);
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
        self.io.peer_limits()
    }

    pub(super) fn batch_len_max(&self) -> usize {
        self.io.batch_len_max()
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
        self.send_frame(Parts { header: self.header(kind), block, message }).await
    }

    /// Sends a frame with one compressed message, as [`Self::send`].
    pub(super) async fn send_deflated(&mut self, message: &dyn Encode) -> Result<(), Status> {
        let mut header = self.header(FrameKind::Messages);
        header.is_deflated = true;
        self.send_frame(Parts { header, block: &[], message: Some(message) }).await
    }

    async fn send_frame(&mut self, parts: Parts<'_>) -> Result<(), Status> {
        if !self.io.try_send(&parts)? {
            self.io.send(parts).await?;
        }
        // Only now: a frame that was given up while it waited leaves no gap.
        self.seq += 1;
        Ok(())
    }

    /// Sends a frame that is a header alone.
    pub(crate) fn send_control(&mut self, kind: FrameKind) {
        self.io.send_control(self.header(kind));
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
    io.send_control(header);
}
