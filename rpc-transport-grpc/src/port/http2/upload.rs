//! The body of a request over HTTP/2, from h2 to the call.
//!
//! The connection's task reads every body as it comes, into memory of the call's own. So h2 never
//! has frames that no task reads, however slow a handler is, and ends no connection for them. The
//! client's window of a stream is given back as the call reads, which bounds what waits here.
//!
//! ```text
//!   h2 ── Upload, in the connection's task ──> Inbox ── Received, in the call's task ──> call
//!    ^                                                      │
//!    └──────────────── window of the stream ────────────────┘
//! ```

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use h2::{FlowControl, Reason, RecvStream};
use http_body::{Body, Frame, SizeHint};
use rpc_core::memory::{MemoryCharge, MemoryShare};
use tonic::Status;

use crate::port::held::ENDED_HELD;

/// From which length on a frame stays in the memory that it was read into, in bytes. A shorter one
/// is copied: it would keep a buffer of 8 KiB and more.
const SHARED_LEN: usize = 4 << 10;

/// What a body may have here that does not count, in bytes: it is part of what a call counts.
const UNCOUNTED_LEN: u64 = 1 << 10;

/// What has come of a body and was not read by its call.
#[derive(Default)]
struct Inbox(Mutex<InboxState>);

#[derive(Default)]
struct InboxState {
    frames: VecDeque<Bytes>,
    /// What came last, in frames that were copied.
    tail: BytesMut,
    len: u64,
    charge: Option<MemoryCharge>,
    end: Option<Result<(), Status>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The call reads no more.
    is_abandoned: bool,
}

/// The connection's side of a body.
///
/// What comes after the call reads no more is thrown away until the client ends the stream, which
/// it does when it has its answer. A reset would make mistakes of the frames that cross it, and h2
/// ends a connection that has made many.
pub(super) struct Upload {
    stream: RecvStream,
    inbox: Arc<Inbox>,
    memory: MemoryShare,
    /// What the stream counts whose call reads no more.
    leftover: Option<MemoryCharge>,
}

/// The call's side of a body.
pub(super) struct Received {
    inbox: Arc<Inbox>,
    window: FlowControl,
}

/// The two sides of a request's body.
pub(super) fn pair(mut stream: RecvStream, memory: MemoryShare) -> (Upload, Received) {
    let (inbox, window) = (Arc::<Inbox>::default(), stream.flow_control().clone());
    let received = Received { inbox: Arc::clone(&inbox), window };
    (Upload { stream, inbox, memory, leftover: None }, received)
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, InboxState> {
        // No code between lock and unlock leaves a part of a change undone.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the body, unless it has. What has come before is still read.
    fn end(&self, end: Result<(), Status>) {
        let reader = {
            let mut state = self.state();
            state.end.get_or_insert(end);
            state.reader.take()
        };
        reader.into_iter().for_each(Waker::wake);
    }
}

impl InboxState {
    /// Adds a frame.
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
        if frame.len() < SHARED_LEN {
            self.tail.extend_from_slice(&frame);
        } else {
            if !self.tail.is_empty() {
                self.frames.push_back(std::mem::take(&mut self.tail).freeze());
            }
            self.frames.push_back(frame);
        }
        Ok(())
    }

    /// Takes what comes next, with all that was copied together.
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
    /// Reads what has come. Ready when there will be no more to read.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let frame = match self.stream.poll_data(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => {
                    self.inbox.end(Err(broken(error)));
                    return Poll::Ready(());
                }
                Poll::Ready(None) => {
                    // Calls of gRPC have no trailers. Those that come are read to the end.
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
            // The call ends: what it has not read is of no use.
            state.clear();
            state.end = Some(Err(status));
            self.leftover = Some(self.memory.take(ENDED_HELD));
        }
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

/// The status of a body that broke off. A reset with `NO_ERROR` is no end of the requests either.
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
            drop(state);
            if is_open {
                // Fails for a stream that was reset, whose end comes next.
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
        // h2 is told that no task reads the stream any more.
        writer.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever comes between the reads, nothing is lost, and what waits is what counts.
        #[test]
        fn an_inbox_keeps_the_order_and_counts_what_waits(
            steps in prop::collection::vec(prop::option::of(1..9_000_usize), 1..60),
        ) {
            let memory = MemoryShare::of_budget(1 << 30);
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
        let memory = MemoryShare::of_budget(512 << 10);
        let mut inbox = InboxState::default();
        let frame = Bytes::from(vec![7; 200 << 10]);
        inbox.push(frame.clone(), &memory).unwrap();
        let refused = inbox.push(frame, &memory).unwrap_err();
        assert!(refused.message().contains("server.max_memory"), "{refused}");
        inbox.clear();
        assert!(memory.check(400 << 10).is_err() && memory.check(224 << 10).is_ok());
    }
}
