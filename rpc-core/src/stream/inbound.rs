//! One direction of a stream as it arrives: frames go in in any order, messages come out in theirs.
//!
//! The connection's task inserts, the stream's reader polls. A connection that ends, or a message
//! that cannot be received, fails the stream: what had arrived in order is still read first.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use tonic::Status;

use crate::calls::reorder::Reorder;
use crate::calls::window::{Counts, ReceiveWindow, Window};
use crate::wire::ProtocolError;

/// The length of a message's length in a frame of messages.
pub(super) const MESSAGE_LEN_LEN: usize = 4;

/// What a frame of a stream holds.
#[derive(Debug)]
pub(crate) enum Item {
    /// The block of the server's headers.
    Headers(Bytes),
    /// Messages, each behind its length.
    Messages(Bytes),
    /// The end, in order.
    End(End),
}

/// How a stream ended in order.
#[derive(Debug)]
pub(crate) enum End {
    /// The client has no more messages.
    HalfClose,
    /// The server's status, and its trailers.
    Outcome { code: u16, block: Bytes, is_not_executed: bool },
}

/// What a frame changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Inserted {
    /// More is to come.
    Open,
    /// The end has been reached in order: nothing more can come.
    Complete,
}

/// What a reader gets next.
#[derive(Debug)]
pub(crate) enum Next {
    Headers(Bytes),
    /// A message, and the grant that reading it makes due.
    Message(Bytes, Option<Counts>),
    End(End),
    Failed(Status),
}

/// One direction of a stream.
#[derive(Debug)]
pub(crate) struct Inbound {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    early: Reorder<Item>,
    early_bytes: usize,
    /// The longest frame that came early since none was.
    early_len_max: usize,
    /// What early frames may hold beside their longest.
    early_bytes_max: usize,
    ready: VecDeque<Item>,
    window: ReceiveWindow,
    is_complete: bool,
    failure: Option<Status>,
    waker: Option<Waker>,
}

impl Inbound {
    pub(crate) fn new(window: Window) -> Self {
        let lens_len = (window.messages as usize).saturating_mul(MESSAGE_LEN_LEN);
        let state = State {
            early: Reorder::default(),
            early_bytes: 0,
            early_len_max: 0,
            early_bytes_max: lens_len.saturating_add(window.bytes as usize),
            ready: VecDeque::new(),
            window: ReceiveWindow::new(window),
            is_complete: false,
            failure: None,
            waker: None,
        };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a frame of the stream.
    ///
    /// # Errors
    ///
    /// When its place, its contents or its size cannot be.
    pub(crate) fn insert(&self, place: u64, item: Item) -> Result<Inserted, ProtocolError> {
        let (inserted, waker) = {
            let mut state = self.state();
            state.insert(place, item)?;
            let inserted = if state.is_complete { Inserted::Complete } else { Inserted::Open };
            let waker = if state.ready.is_empty() { None } else { state.waker.take() };
            (inserted, waker)
        };
        waker.into_iter().for_each(Waker::wake);
        Ok(inserted)
    }

    /// Ends the stream early.
    pub(crate) fn fail(&self, status: Status) {
        let waker = {
            let mut state = self.state();
            if !state.is_complete {
                state.failure.get_or_insert(status);
            }
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// What comes next in the stream.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.state();
        if let Some(next) = state.next() {
            return Poll::Ready(next);
        }
        if let Some(status) = &state.failure {
            return Poll::Ready(Next::Failed(status.clone()));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl State {
    fn insert(&mut self, place: u64, item: Item) -> Result<(), ProtocolError> {
        let len = match &item {
            Item::Headers(bytes) | Item::Messages(bytes) => bytes.len(),
            Item::End(_) => 0,
        };
        self.early.insert(place, item)?;
        self.early_bytes += len;
        self.early_len_max = self.early_len_max.max(len);
        while let Some(item) = self.early.take() {
            self.accept(item)?;
        }
        if self.early_bytes == 0 {
            self.early_len_max = 0;
        }
        // What waits for a frame before it has not been read, so that the window holds for all of
        // it but the one message that may exceed it, which may be any of them by arrival.
        let max = self.early_bytes_max.saturating_add(self.early_len_max);
        if self.early_bytes > max {
            let (len, max) = (self.early_bytes as u64, max as u64);
            return Err(ProtocolError::TooLong { what: "early part of a stream", len, max });
        }
        Ok(())
    }

    /// Takes an item whose turn it is.
    fn accept(&mut self, item: Item) -> Result<(), ProtocolError> {
        if self.is_complete {
            let what = "frame after the end of its stream";
            return Err(ProtocolError::Invalid { what, value: 0 });
        }
        match &item {
            Item::Headers(block) => self.early_bytes -= block.len(),
            Item::Messages(messages) => {
                self.early_bytes -= messages.len();
                let mut rest = &messages[..];
                while !rest.is_empty() {
                    let len = first_len(rest)?;
                    self.window.receive(len)?;
                    rest = &rest[MESSAGE_LEN_LEN + len..];
                }
            }
            Item::End(_) => self.is_complete = true,
        }
        self.ready.push_back(item);
        Ok(())
    }

    fn next(&mut self) -> Option<Next> {
        loop {
            match self.ready.front_mut()? {
                Item::Messages(rest) if rest.is_empty() => drop(self.ready.pop_front()),
                Item::Messages(rest) => {
                    let message = split_message(rest);
                    let grant = self.window.consume(message.len());
                    return Some(Next::Message(message, grant));
                }
                Item::Headers(_) | Item::End(_) => break,
            }
        }
        match self.ready.pop_front()? {
            Item::Headers(block) => Some(Next::Headers(block)),
            Item::End(end) => Some(Next::End(end)),
            Item::Messages(_) => None,
        }
    }
}

/// Takes the first message off a frame of messages, which was looked through when it was accepted.
/// The message aliases the frame.
fn split_message(rest: &mut Bytes) -> Bytes {
    let len = first_len(rest).unwrap_or_default();
    rest.advance(MESSAGE_LEN_LEN.min(rest.len()));
    // A part that is everything is not made shared, which allocates.
    if len == rest.len() { std::mem::take(rest) } else { rest.split_to(len) }
}

/// The length of the first message of a frame of messages.
///
/// # Errors
///
/// When the frame is too short for it.
fn first_len(rest: &[u8]) -> Result<usize, ProtocolError> {
    let truncated = |len: usize, needed: usize| ProtocolError::Truncated {
        what: "message of a stream",
        len: len as u64,
        needed: needed as u64,
    };
    let Some((len, _)) = rest.split_first_chunk::<MESSAGE_LEN_LEN>() else {
        return Err(truncated(rest.len(), MESSAGE_LEN_LEN));
    };
    let end = MESSAGE_LEN_LEN + u32::from_le_bytes(*len) as usize;
    if rest.len() < end {
        return Err(truncated(rest.len(), end));
    }
    Ok(end - MESSAGE_LEN_LEN)
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
