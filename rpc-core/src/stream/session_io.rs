//! The I/O that a stream uses of its session.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tonic::Status;

use crate::Limits;
use crate::calls::window::Counts;
use crate::payload::encode::Encode;
use crate::session::SessionCore;
use crate::transport::TransportError;
use crate::transport::frames::Parts;
use crate::wire::{FrameHeader, FrameKind};

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
        self.send_frame(Parts { header: self.header(kind), block, message }).await
    }

    /// Sends a frame with one compressed message, as [`Self::send`].
    pub(super) async fn send_deflated(&mut self, message: &dyn Encode) -> Result<(), Status> {
        let mut header = self.header(FrameKind::Messages);
        header.is_deflated = true;
        self.send_frame(Parts { header, block: &[], message: Some(message) }).await
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
