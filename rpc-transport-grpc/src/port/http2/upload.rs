//! Request bodies over HTTP/2, on their way from h2 to the call.
//!
//! The connection's task reads every body as it arrives, into memory that belongs to the call.
//! However slow a handler is, h2 never holds unread frames, for which it would end the connection.
//! The stream's window reopens as the call reads, which bounds the bytes that wait here.
//!
//! ```text
//!   h2 ── Upload, in the connection's task ──> Inbox ── Received, in the call's task ──> call
//!    ^                                                      │
//!    └──────────────── window of the stream ────────────────┘
//! ```

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use h2::{FlowControl, Reason, RecvStream};
use http_body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use rpc_core::memory::{MemoryCharge, MemoryShare};
use tonic::Status;

use crate::port::held::ENDED_HELD;

/// Length in bytes from which a frame keeps its receive buffer. Shorter frames are copied: each
/// would pin a buffer of at least 8 KiB.
const SHARED_LEN: usize = 4 << 10;

/// Bytes of a body that may wait here uncounted. The call's own charge covers them.
const UNCOUNTED_LEN: u64 = 1 << 10;

/// The received part of a body that its call has not read.
#[derive(Default)]
struct Inbox(Mutex<InboxState>);

#[derive(Default)]
struct InboxState {
    frames: VecDeque<Bytes>,
    /// The most recent bytes, copied from short frames.
    tail: BytesMut,
    len: u64,
    charge: Option<MemoryCharge>,
    end: Option<Result<(), Status>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// True once the call stopped reading.
    is_abandoned: bool,
}

/// The connection's side of a body.
///
/// If the call stops reading, this side discards data until the client ends the stream, which it
/// does once it has its answer. A reset would turn frames already in flight into protocol errors,
/// and h2 ends a connection after many of those.
pub(super) struct Upload {
    stream: RecvStream,
    inbox: Arc<Inbox>,
    memory: MemoryShare,
    /// The charge of a stream whose call stopped reading.
    leftover: Option<MemoryCharge>,
}

/// The call's side of a body.
pub(super) struct Received {
    inbox: Arc<Inbox>,
    window: FlowControl,
}

/// Creates the two sides of a request's body.
pub(super) fn pair(mut stream: RecvStream, memory: MemoryShare) -> (Upload, Received) {
    let (inbox, window) = (Arc::<Inbox>::default(), stream.flow_control().clone());
    let received = Received { inbox: Arc::clone(&inbox), window };
    (Upload { stream, inbox, memory, leftover: None }, received)
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.0.lock()
    }

    /// Sets the end of the body, if it has none. The call still reads everything before it.
    fn end(&self, end: Result<(), Status>) {
        // Wakes after the lock is released: the reader's first step is to take it.
        let reader = {
            let mut state = self.state();
            state.end.get_or_insert(end);
            state.reader.take()
        };
        reader.into_iter().for_each(Waker::wake);
    }
}

impl InboxState {
    /// Adds a frame, and charges it.
    fn push(&mut self, frame: Bytes, memory: &MemoryShare) -> Result<(), Status> {
        let len = self.len + frame.len() as u64;
        match &mut self.charge {
            Some(charge) => {
                memory.check(len.saturating_sub(charge.len()))?;
                charge.set(len);
            }
            None if len > UNCOUNTED_LEN => self.charge = Some(memory.try_take(len)?),
            None => {}
        }
        self.len = len;
        // A frame shares its buffer with its neighbors. A thousand short frames would pin a
        // thousand buffers and count for almost nothing.
        if frame.len() < SHARED_LEN {
            self.tail.extend_from_slice(&frame);
        } else {
            // The tail precedes this frame. Leaving it behind would reorder the body.
            if !self.tail.is_empty() {
                self.frames.push_back(std::mem::take(&mut self.tail).freeze());
            }
            self.frames.push_back(frame);
        }
        Ok(())
    }

    /// Takes the next frame. Copied frames come out together.
    fn pop(&mut self) -> Option<Bytes> {
        let next = self.frames.pop_front().or_else(|| {
            let tail = std::mem::take(&mut self.tail);
            (!tail.is_empty()).then(|| tail.freeze())
        })?;
        self.len -= next.len() as u64;
        if let Some(charge) = &mut self.charge {
            charge.set(self.len);
        }
        Some(next)
    }

    fn clear(&mut self) {
        let Self { frames, tail, len, charge, .. } = self;
        (*frames, *tail, *len, *charge) = Default::default();
    }
}

impl Upload {
    /// Reads the data that has arrived. Ready once the body has ended.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let frame = match self.stream.poll_data(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => {
                    self.inbox.end(Err(broken(error)));
                    return Poll::Ready(());
                }
                Poll::Ready(None) => {
                    // gRPC requests have no trailers. If some arrive, they are read and dropped.
                    let ended = ready!(self.stream.poll_trailers(cx));
                    self.inbox.end(ended.map(drop).map_err(broken));
                    return Poll::Ready(());
                }
                Poll::Pending => break,
            };
            if self.leftover.is_none() {
                self.deliver(frame);
            }
        }
        // Checks under the lock that the call still reads. A call dropped after this check finds
        // the waker and wakes this task.
        if self.leftover.is_none() {
            let mut state = self.inbox.state();
            match state.is_abandoned {
                true => self.leftover = Some(self.memory.take(ENDED_HELD)),
                false => state.writer = Some(cx.waker().clone()),
            }
        }
        Poll::Pending
    }

    fn deliver(&mut self, frame: Bytes) {
        let mut state = self.inbox.state();
        if state.is_abandoned {
            self.leftover = Some(self.memory.take(ENDED_HELD));
            return;
        }
        if let Err(status) = state.push(frame, &self.memory) {
            // The call ends with this status, so its unread data is useless.
            state.clear();
            state.end = Some(Err(status));
            self.leftover = Some(self.memory.take(ENDED_HELD));
        }
        // The lock goes first, so that the woken task does not block on it.
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl Future for Upload {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_read(cx)
    }
}

/// Returns the status of a body that failed. A reset with `NO_ERROR` is not a clean end either.
fn broken(error: h2::Error) -> Status {
    match error.reason() {
        Some(Reason::NO_ERROR) => Status::cancelled("its stream was reset"),
        _ => Status::from_error(Box::new(error)),
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut state = self.inbox.state();
        if let Some(bytes) = state.pop() {
            let is_open = state.end.is_none();
            // Releases the lock before it calls into h2, which has locks of its own.
            drop(state);
            if is_open {
                // Fails if the stream was reset. The body then ends with the reset.
                let _ = self.window.release_capacity(bytes.len());
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match &mut state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(status)) => Poll::Ready(Some(Err(status.clone()))),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.inbox.state();
        state.len == 0 && matches!(state.end, Some(Ok(())))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let writer = {
            let mut state = self.inbox.state();
            state.is_abandoned = true;
            state.clear();
            state.writer.take()
        };
        // Wakes the upload, so that it stops storing data for this call.
        writer.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Between any reads, nothing is lost, and exactly the waiting bytes count.
        #[test]
        fn an_inbox_keeps_order_and_counts_waiting_bytes(
            steps in prop::collection::vec(prop::option::of(1..9_000_usize), 1..60),
        ) {
            let memory = MemoryShare::whole(1 << 30);
            let (mut inbox, mut number) = (InboxState::default(), 0_u8);
            let (mut sent, mut read) = (Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Some(len) => {
                        number = number.wrapping_add(1);
                        let frame = vec![number; len];
                        sent.extend_from_slice(&frame);
                        inbox.push(frame.into(), &memory).unwrap();
                    }
                    None => read.extend(inbox.pop().into_iter().flatten()),
                }
                let waiting = (sent.len() - read.len()) as u64;
                prop_assert_eq!(inbox.len, waiting);
                let counted = inbox.charge.as_ref().map_or(0, MemoryCharge::len);
                prop_assert!(counted == waiting || counted == 0 && waiting <= UNCOUNTED_LEN);
            }
            read.extend(std::iter::from_fn(|| inbox.pop()).flatten());
            prop_assert_eq!(read, sent);
        }
    }

    #[test]
    fn a_frame_that_does_not_fit_is_refused() {
        let memory = MemoryShare::whole(512 << 10);
        let mut inbox = InboxState::default();
        let frame = Bytes::from(vec![7; 200 << 10]);
        inbox.push(frame.clone(), &memory).unwrap();
        let refused = inbox.push(frame, &memory).unwrap_err();
        assert!(refused.message().contains("server.max_memory"), "{refused}");
        inbox.clear();
        assert!(memory.check(400 << 10).is_err() && memory.check(224 << 10).is_ok());
    }
}
