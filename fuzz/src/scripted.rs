//! A transport whose peer is a script, and the byte stream on which it starts.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use rpc_core::connect::Bootstrap;
use rpc_core::transport::{
    Addresses, CloseReason, Handler, OutFrame, Transport, TransportError, TransportStats,
};
use rpc_core::wire::HEADER_LEN;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// A link to a scripted peer; clones are the same link.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scripted {
    shared: Arc<SharedLink>,
}

#[derive(Debug, Default)]
struct SharedLink {
    state: Mutex<LinkState>,
    room: Notify,
}

#[derive(Debug, Default)]
struct LinkState {
    /// Until the link has ended: the session has the link.
    handler: Option<Arc<dyn Handler>>,
    sent: Vec<Vec<u8>>,
    is_full: bool,
    /// The reason for which the session asked to close the link. The script closes it.
    close_wanted: Option<CloseReason>,
    ended: Option<CloseReason>,
}

impl Scripted {
    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.shared.state.lock()
    }

    /// The session, from its start to the link's end.
    pub(crate) fn handler(&self) -> Option<Arc<dyn Handler>> {
        self.state().handler.clone()
    }

    /// Returns and forgets the frames that the session has sent.
    pub(crate) fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.state().sent)
    }

    /// Sets whether frames find no memory from now on.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.state().is_full = is_full;
        self.shared.room.notify_waiters();
    }

    /// Returns the reason for which the session wants to close the link, if it does.
    pub(crate) fn close_wanted(&self) -> Option<CloseReason> {
        self.state().close_wanted.clone()
    }

    /// Returns true if the link has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.state().ended.is_some()
    }

    /// Ends the link, once.
    pub(crate) fn end(&self, reason: CloseReason) {
        let handler = {
            let mut state = self.state();
            state.ended.get_or_insert(reason.clone());
            state.handler.take()
        };
        self.shared.room.notify_waiters();
        if let Some(handler) = handler {
            handler.handle_closed(reason);
        }
    }

    fn has_room(&self) -> Result<bool, TransportError> {
        let state = self.state();
        match &state.ended {
            Some(reason) => Err(TransportError::Closed { reason: reason.clone() }),
            None => Ok(!state.is_full),
        }
    }

    fn write(&self, frame: OutFrame<'_>) -> Result<(), TransportError> {
        let mut memory = vec![0; frame.len()];
        frame.write(&mut memory)?;
        self.push(memory)
    }

    fn push(&self, frame: Vec<u8>) -> Result<(), TransportError> {
        let mut state = self.state();
        if let Some(reason) = state.ended.clone().or_else(|| state.close_wanted.clone()) {
            return Err(TransportError::Closed { reason });
        }
        state.sent.push(frame);
        Ok(())
    }
}

impl Transport for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn start(&self, handler: Arc<dyn Handler>) {
        let before = self.state().handler.replace(handler);
        assert!(before.is_none(), "a transport is started once");
    }

    fn try_send(&self, frame: OutFrame<'_>) -> Result<bool, TransportError> {
        if !self.has_room()? {
            return Ok(false);
        }
        self.write(frame).map(|()| true)
    }

    fn send<'a>(&'a self, frame: OutFrame<'a>) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            loop {
                let room = self.shared.room.notified();
                if self.has_room()? {
                    return self.write(frame);
                }
                room.await;
            }
        })
    }

    fn send_control(&self, header: [u8; HEADER_LEN]) -> Result<(), TransportError> {
        self.push(header.to_vec())
    }

    fn close(&self) {
        self.state().close_wanted.get_or_insert(CloseReason::Local);
    }

    fn abort(&self, reason: CloseReason) {
        self.state().close_wanted.get_or_insert(reason);
    }

    fn stats(&self) -> TransportStats {
        TransportStats::default()
    }
}

/// A stream on which the peer's part of the handshake can be read, whatever is written.
#[derive(Debug)]
pub(crate) struct ScriptedBootstrap {
    pub(crate) incoming: io::Cursor<Vec<u8>>,
    pub(crate) link: Scripted,
}

impl Bootstrap for ScriptedBootstrap {
    fn addresses(&self) -> Addresses {
        Addresses::default()
    }

    fn carries_compressed(&self) -> bool {
        true
    }

    fn reregister(self: Box<Self>) -> io::Result<Box<dyn Bootstrap>> {
        Ok(self)
    }

    fn into_transport(self: Box<Self>) -> Box<dyn Transport> {
        Box::new(self.link)
    }
}

impl AsyncRead for ScriptedBootstrap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.incoming).poll_read(cx, buf)
    }
}

impl AsyncWrite for ScriptedBootstrap {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
