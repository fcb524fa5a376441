//! The receiving end of a stream: frames arrive in any order, messages come out in sequence.
//!
//! The connection's task inserts, the stream's reader polls. A connection that ends, or a message
//! that cannot be received, fails the stream: what had arrived in order is still read first.
//!
//! What a stream keeps is bounded by its window, whatever its peer sends: every frame is one of at
//! most one HEADERS, of messages, of which the window counts each, or of at most one end; and a
//! frame that waits for one before it is refused unless a sender that heeds the window could have
//! sent it. The window is counted in a memory budget, on a client as far as it was widened.
//!
//! A sender may fill its window at any time, and the handler decides how long it stays filled. So
//! what counts is the window as it was granted, from the beginning of the stream, and not what has
//! come: a peer that opens streams first and fills them later is refused the streams. Windows begin
//! small and widen while there is memory to spare, so that streams that were admitted go on, slowed
//! by flow control, when there is not. They shrink where their holder has more than its share.
//! Only the message that crosses the line of a window counts when it has come, whether it fits or
//! not.
//!
//! A client has no budget for its peers. Its windows count what is beyond the one that each of its
//! streams begins with, in a budget of their connection.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tonic::Status;

use crate::calls::receiving::Assembler;
use crate::calls::window::{Counts, ReceiveWindow, Resize, Window};
use crate::limits::connection::MESSAGE_HELD;
use crate::limits::memory::{MemoryCharge, MemoryShare};
use crate::wire::messages::{BATCH_LEN_MAX, message_lens, split_message};
use crate::wire::{HEADER_LEN, MESSAGE_LEN_LEN, ProtocolError};

/// The part that a holder has to have left beside a window that widens, in windows of that width.
/// New streams and calls of the holder find room in it, and its streams come to have windows of
/// about the same width.
const LEFT_TO_WIDEN: u64 = 8;

/// The part that a holder has to have left for a window to stay as wide as it is.
const LEFT_TO_KEEP: u64 = 4;

/// Checks the size of a queued message's entry.
const _: () = {
    let of_message = HEADER_LEN + MESSAGE_LEN_LEN + 24 + 4 * size_of::<Item>() + 24;
    assert!(of_message as u64 <= MESSAGE_HELD);
};

/// The part of a memory budget that one stream has. By default there is no budget.
#[derive(Debug, Default)]
pub(crate) struct WindowMemory {
    share: MemoryShare,
    charge: MemoryCharge,
    /// Bytes that do not count.
    exempt: u64,
}

impl WindowMemory {
    /// Takes what `window` binds.
    ///
    /// # Errors
    ///
    /// Returns a status if it does not fit.
    pub(crate) fn open(share: &MemoryShare, window: Window) -> Result<Self, Status> {
        let charge = share.try_take(bytes_of(window))?;
        Ok(Self { share: share.clone(), charge, exempt: 0 })
    }

    /// The memory of a stream that is never refused: what `first` binds does not count.
    pub(crate) fn beyond(share: &MemoryShare, first: Window) -> Self {
        Self { share: share.clone(), charge: share.take(0), exempt: bytes_of(first) }
    }

    /// Takes what a wider window binds, if that is to spare. A holder that has little left beside
    /// this window gives some of it back.
    pub(super) fn resize(&mut self, window: Window, wider: Window) -> Resize {
        let [len, wider_len] = [window, wider].map(|window| self.counted(window));
        let left = wider_len.saturating_mul(LEFT_TO_WIDEN);
        if wider != window && self.share.try_grow(&mut self.charge, wider_len, left) {
            Resize::Widen
        } else if self.charge.may_grow_by(len.saturating_mul(LEFT_TO_KEEP)) {
            Resize::Keep
        } else {
            Resize::Narrow
        }
    }

    /// Counts what has come, if that is more than the window.
    pub(super) fn hold(&mut self, waiting: Window) {
        let len = self.counted(waiting);
        if len > self.charge.len() {
            self.charge.set(len);
        }
    }

    /// Counts what waits, or what may come, whichever is more.
    pub(super) fn settle(&mut self, waiting: Window, window: Window) {
        self.charge.set(self.counted(waiting).max(self.counted(window)));
    }

    fn counted(&self, window: Window) -> u64 {
        bytes_of(window).saturating_sub(self.exempt)
    }
}

/// The content of a stream's frame.
#[derive(Debug)]
pub(crate) enum Item {
    /// The block of the server's headers.
    Headers(Bytes),
    /// Messages, each behind its length.
    Messages(Bytes),
    /// One compressed message, behind its length. The window counts it as it came, since so it
    /// waits to be read.
    Deflated(Bytes),
    /// The end, in order.
    End(End),
}

/// An orderly end of a stream.
#[derive(Debug)]
pub(crate) enum End {
    /// The client has no more messages.
    HalfClose,
    /// The server's status, and its trailers.
    Outcome { code: u16, block: Bytes, is_not_executed: bool },
}

/// The effect of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Inserted {
    /// More is to come.
    Open,
    /// The end has been reached in order: nothing more can come.
    Complete,
}

/// The next thing that a reader gets.
#[derive(Debug)]
pub(crate) enum Next {
    Headers(Bytes),
    /// The messages of a frame, each behind its length, and how much of them is read until a grant
    /// is due. The reader counts each when it takes it.
    Messages(Bytes, Window),
    /// A compressed message, which counts as read, and the grant that this makes due.
    Deflated(Bytes, Option<Counts>),
    End(End),
    Failed(Status),
}

/// The beginning of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// Its first message, or its end.
    Messages,
    /// Headers, or its end.
    Headers,
}

/// One direction of a stream.
#[derive(Debug)]
pub(crate) struct RecvStream {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    opening: Opening,
    ahead: Assembler<Item>,
    ahead_bytes: usize,
    /// The longest frame that came ahead of its turn since none was waiting.
    ahead_len_max: usize,
    /// The sequence number of the end, once that has come, ahead or not.
    end: Option<u64>,
    ready: VecDeque<Item>,
    window: ReceiveWindow,
    memory: WindowMemory,
    is_complete: bool,
    failure: Option<Status>,
    waker: Option<Waker>,
}

impl RecvStream {
    /// The requests of a call, with a window of which `memory` has taken what it binds.
    pub(crate) fn requests(window: ReceiveWindow, memory: WindowMemory) -> Self {
        Self::new(Opening::Messages, window, memory)
    }

    /// The responses of a call, likewise.
    pub(crate) fn responses(window: ReceiveWindow, memory: WindowMemory) -> Self {
        Self::new(Opening::Headers, window, memory)
    }

    fn new(opening: Opening, window: ReceiveWindow, memory: WindowMemory) -> Self {
        let state = State {
            opening,
            ahead: Assembler::default(),
            ahead_bytes: 0,
            ahead_len_max: 0,
            end: None,
            ready: VecDeque::new(),
            window,
            memory,
            is_complete: false,
            failure: None,
            waker: None,
        };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Takes a frame of the stream. One that comes after the stream has failed is dropped.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if its sequence number, its contents or its size cannot be.
    pub(crate) fn insert(&self, seq: u64, item: Item) -> Result<Inserted, ProtocolError> {
        let (inserted, waker) = {
            let mut state = self.state();
            state.insert(seq, item)?;
            let inserted = if state.is_complete { Inserted::Complete } else { Inserted::Open };
            // A frame ahead of its turn makes nothing readable, and wakes no reader.
            let waker = if state.ready.is_empty() { None } else { state.waker.take() };
            (inserted, waker)
        };
        waker.into_iter().for_each(Waker::wake);
        Ok(inserted)
    }

    /// Returns the number of messages received so far, modulo 2^32.
    pub(crate) fn received_count(&self) -> u32 {
        self.state().window.received().messages
    }

    /// Bytes of the messages that have come so far, modulo 2^32.
    pub(crate) fn received_bytes(&self) -> u32 {
        self.state().window.received().bytes
    }

    /// Ends the stream early.
    pub(crate) fn fail(&self, status: Status) {
        // The reader never comes to what waits for a frame before it: its memory is free at once,
        // and not when the call ends. It is dropped outside the lock.
        let (waker, _early) = {
            let mut state = self.state();
            let ahead = if state.is_complete { None } else { Some(state.fail(status)) };
            (state.waker.take(), ahead)
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Counts messages as read. Returns the grant that this makes due, and how much is read until
    /// the next one is.
    pub(super) fn consume(&self, read: Counts) -> (Option<Counts>, Window) {
        let mut state = self.state();
        (state.consume(read), state.window.until_due())
    }

    /// Polls for the next item of the stream. `read` are the messages that were read of the last
    /// frame, for which no grant is due.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>, read: Counts) -> Poll<Next> {
        let mut state = self.state();
        if read != Counts::default() {
            let granted = state.consume(read);
            debug_assert_eq!(granted, None, "the reader asks for a grant when it is due");
        }
        if let Some(next) = state.next() {
            return Poll::Ready(next);
        }
        if let Some(status) = &state.failure {
            return Poll::Ready(Next::Failed(status.clone()));
        }
        // Still under the lock of the check above, so that no frame arrives unnoticed in between.
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl State {
    fn insert(&mut self, seq: u64, item: Item) -> Result<(), ProtocolError> {
        if self.failure.is_some() {
            return Ok(());
        }
        self.check_seq(seq, &item)?;
        let len = match &item {
            Item::Messages(messages) | Item::Deflated(messages) => messages.len(),
            // Neither waits in numbers: headers never wait, and there is one end.
            Item::Headers(_) | Item::End(_) => 0,
        };
        let frames_before_max = self.frames_before_max(&item);
        self.ahead.insert(seq, item, frames_before_max)?;
        // A frame in order counts as ahead for a moment, since `accept` subtracts its length.
        self.ahead_bytes += len;
        self.ahead_len_max = self.ahead_len_max.max(len);
        while let Some(item) = self.ahead.take() {
            self.accept(item)?;
        }
        if self.ahead_bytes == 0 {
            self.ahead_len_max = 0;
        }
        self.check_ahead()?;
        if self.is_complete {
            // Nothing more can come: what was granted and not used is free.
            self.settle_memory();
        } else {
            self.memory.hold(self.waiting());
        }
        Ok(())
    }

    /// Returns the messages and bytes that wait to be read, or for an earlier frame.
    fn waiting(&self) -> Window {
        let Window { messages, bytes } = self.window.unread();
        let ahead = [self.ahead.ahead_count(), self.ahead_bytes].map(|count| {
            // Both are bounded by the window and a message.
            u32::try_from(count).unwrap_or(u32::MAX)
        });
        Window {
            messages: messages.saturating_add(ahead[0]),
            bytes: bytes.saturating_add(ahead[1]),
        }
    }

    /// Counts what waits, and what may come, in the memory budget.
    fn settle_memory(&mut self) {
        let is_over = self.is_complete || self.failure.is_some();
        let window = if is_over { Window::NONE } else { self.window.bound() };
        self.memory.settle(self.waiting(), window);
    }

    /// Checks that a frame of that kind may have the sequence number `seq`.
    fn check_seq(&mut self, seq: u64, item: &Item) -> Result<(), ProtocolError> {
        let misplaced = |what, rule| Err(ProtocolError::Misplaced { what, place: seq, rule });
        if self.end.is_some_and(|end| end < seq) {
            return misplaced("frame", "the end of its stream stands before it");
        }
        match (item, self.opening) {
            (Item::Headers(_), _) if seq > 0 => {
                misplaced("headers", "an answer has them once, at place 0")
            }
            (Item::Messages(_) | Item::Deflated(_), Opening::Headers) if seq == 0 => {
                misplaced("frame of messages", "an answer begins with its headers")
            }
            (Item::End(_), _) => {
                let is_second = self.end.is_some();
                if is_second || self.ahead.furthest().is_some_and(|furthest| furthest > seq) {
                    return misplaced("end of a stream", "it comes once, behind all other frames");
                }
                self.end = Some(seq);
                Ok(())
            }
            (Item::Headers(_) | Item::Messages(_) | Item::Deflated(_), _) => Ok(()),
        }
    }

    /// Returns the maximum number of frames that may be missing before `item`. Headers and end
    /// aside, each of them has a message, which the window counts, and so has `item`, unless it is
    /// the end.
    fn frames_before_max(&self, item: &Item) -> u64 {
        let has_headers_to_come = self.opening == Opening::Headers && self.ahead.next() == 0;
        let messages = u64::from(self.window.left().messages);
        let messages_before = match item {
            Item::Messages(_) | Item::Deflated(_) => messages.saturating_sub(1),
            Item::Headers(_) | Item::End(_) => messages,
        };
        messages_before + u64::from(has_headers_to_come)
    }

    /// Checks that all that waits for a frame before it may have been sent.
    fn check_ahead(&self) -> Result<(), ProtocolError> {
        if self.ahead_bytes == 0 {
            return Ok(());
        }
        // A sender stops at the message that crosses the line. That is the last of those that it
        // sent, and may be the first of those that arrive, so that it may be any of them.
        let left = self.window.left();
        let lens_len = (left.messages as usize).saturating_mul(MESSAGE_LEN_LEN);
        let max = match left.bytes {
            0 => 0,
            bytes => lens_len.saturating_add(bytes as usize).saturating_add(self.ahead_len_max),
        };
        if self.ahead_bytes > max {
            let (len, max) = (self.ahead_bytes as u64, max as u64);
            return Err(ProtocolError::TooLong { what: "early part of a stream", len, max });
        }
        Ok(())
    }

    /// Ends the stream with a status, and gives back what will not be read.
    fn fail(&mut self, status: Status) -> Assembler<Item> {
        self.failure.get_or_insert(status);
        self.ahead_bytes = 0;
        let ahead = std::mem::take(&mut self.ahead);
        self.settle_memory();
        ahead
    }

    /// Takes an item whose turn it is.
    fn accept(&mut self, item: Item) -> Result<(), ProtocolError> {
        match &item {
            Item::Headers(_) => {}
            Item::Messages(messages) => {
                self.ahead_bytes -= messages.len();
                for len in message_lens(messages) {
                    let len = len?;
                    let is_alone = MESSAGE_LEN_LEN + len == messages.len();
                    if !is_alone && messages.len() > BATCH_LEN_MAX {
                        // The frame is kept until its last message is read, those before it are
                        // counted as read: so much more than the window says may be kept.
                        let (len, max) = (messages.len() as u64, BATCH_LEN_MAX as u64);
                        let what = "frame of several messages";
                        return Err(ProtocolError::TooLong { what, len, max });
                    }
                    self.window.receive(len)?;
                }
            }
            Item::Deflated(frame) => {
                self.ahead_bytes -= frame.len();
                let len = message_lens(frame).next().unwrap_or(Ok(0))?;
                if MESSAGE_LEN_LEN + len != frame.len() {
                    let what = "length of a compressed message of a stream";
                    return Err(ProtocolError::Invalid { what, value: len as u64 });
                }
                self.window.receive(len)?;
            }
            Item::End(_) => self.is_complete = true,
        }
        self.ready.push_back(item);
        Ok(())
    }

    fn next(&mut self) -> Option<Next> {
        loop {
            return Some(match self.ready.pop_front()? {
                Item::Messages(messages) if messages.is_empty() => continue,
                Item::Messages(messages) => Next::Messages(messages, self.window.until_due()),
                Item::Headers(block) => Next::Headers(block),
                Item::Deflated(mut frame) => {
                    let message = split_message(&mut frame);
                    let mut read = Counts::default();
                    read.add(message.len());
                    Next::Deflated(message, self.consume(read))
                }
                Item::End(end) => Next::End(end),
            });
        }
    }

    /// Counts messages as read, and gives the grant that this makes due.
    fn consume(&mut self, read: Counts) -> Option<Counts> {
        let memory = &mut self.memory;
        let window = self.window.window();
        let grant = self.window.consume_all(read, |wider| memory.resize(window, wider));
        // The charge stays until a grant is due: the peer may still fill the window that it has.
        if self.window.was_due() {
            self.settle_memory();
        }
        grant
    }
}

/// Returns the memory of a full window, in bytes.
fn bytes_of(Window { messages, bytes }: Window) -> u64 {
    u64::from(bytes) + u64::from(messages) * MESSAGE_HELD
}

#[cfg(test)]
#[path = "recv_stream_tests.rs"]
mod tests;
