//! The device of a script, and the owner of its queue pairs.

use std::rc::Rc;

use rpc_core::Reason;
use rpc_core::transport::CloseReason;

use super::buffers::{Access, BindState, Request, ScriptBuffers, Window};
use super::input::Input;
use super::world::{READ_BYTES, SEND_DEPTH, World};
use crate::proto::connection::{Action, Arrival, Event, Transmit};
use crate::proto::remote_memory::RemoteKey;
use crate::proto::rndv::get::Chunk;
use crate::quota::slots::RESERVE;
use crate::testing::script::input::clock;

impl World {
    /// Plays the owner of the queue pairs after each event.
    pub(super) fn pump(&mut self) {
        loop {
            let mut clock = clock();
            while let Some(transmit) = self.state().poll_transmit(&mut clock) {
                self.push(transmit);
            }
            if !self.obey() {
                break;
            }
        }
        while let Some(arrival) = self.state().poll_delivery() {
            if let Arrival::Large(sink) = &arrival {
                assert_eq!(Rc::strong_count(sink), 1, "a READ fills what is delivered");
                self.seen.frames_fetched += 1;
            }
            self.arrivals.push_back(arrival);
        }
        if self.post() {
            self.state().handle(Event::PostRefused, &mut clock());
        }
        if self.takes_memory {
            self.takes_memory = false;
            while let Some(due) = self.state().next_memory() {
                self.memory_wanted.push(due);
            }
            self.pump();
        }
    }

    fn push(&mut self, transmit: Transmit<ScriptBuffers>) {
        let batch = &mut self.messages.batch;
        match transmit {
            Transmit::Message { slot, len, permit, .. } => {
                let len = len as usize;
                batch.push_back(match permit {
                    None => Request::Control { slot, len },
                    Some(permit) => Request::Message { slot, len, _permit: permit },
                });
            }
            Transmit::Offer { binding, slot, len, permit } => {
                batch.extend(binding.map(Request::Bind));
                batch.push_back(Request::Message { slot, len: len as usize, _permit: permit });
            }
            Transmit::Invalidate(binding) => batch.push_back(Request::Invalidate(binding)),
            Transmit::Read(chunk) => {
                assert!(chunk.offset + chunk.len as usize <= chunk.sink.1, "beyond the sink");
                match self.reads.get_mut(chunk.queue) {
                    Some(queue) => queue.batch.push_back(Request::Read(chunk)),
                    None => batch.push_back(Request::Read(chunk)),
                }
            }
        }
    }

    /// Carries actions out; returns true if more may go out now.
    fn obey(&mut self) -> bool {
        let mut has_window = false;
        while let Some(action) = self.state().poll_action() {
            match action {
                Action::Halt => self.halt(),
                Action::AllocateMemoryWindow => {
                    let window = self.allocate();
                    self.state().handle(Event::MemoryWindow(window), &mut clock());
                    has_window = true;
                }
                Action::Deallocate(binding) => {
                    self.books.borrow_mut().shut(Access::Key(binding.key));
                    self.seen.keys_revoked += 1;
                }
                Action::Free(payload) => {
                    drop(payload);
                    self.seen.offers_released += 1;
                }
                Action::TakeTurn { len } => {
                    assert!(self.turn_wanted.replace(len).is_none(), "two waits for READs");
                }
                Action::TakeMemory => self.takes_memory = true,
                Action::Withhold { .. } => self.seen.frames_withheld += 1,
                Action::LogStall(_) => self.seen.stalls += 1,
                Action::OfferProof => {
                    self.send_proof();
                    has_window = true;
                }
                Action::GiveUpLastReceives
                | Action::LogRequests(_)
                | Action::Proven
                | Action::Destroy => {}
            }
        }
        has_window
    }

    fn allocate(&mut self) -> Result<Window, Reason> {
        self.memory_windows_left =
            self.memory_windows_left.checked_sub(1).ok_or("no window is left")?;
        self.next_key += 1;
        Ok(Window(RemoteKey(self.next_key << 16)))
    }

    fn halt(&mut self) {
        assert!(!self.is_halted, "halted twice");
        self.is_halted = true;
        for request in self.messages.batch.drain(..) {
            if let Request::Read(_) = request {
                let state = self.state.as_mut().expect("it is there until the script's end");
                state.handle(Event::Unposted { queue: 0 }, &mut clock());
            }
        }
        for queue in 0..self.reads.len() {
            for _ in std::mem::take(&mut self.reads[queue].batch) {
                self.state().handle(Event::Unposted { queue }, &mut clock());
            }
        }
        let reason = self.state().end_reason().cloned();
        match reason {
            Some(CloseReason::Protocol(_)) => self.seen.violations += 1,
            Some(CloseReason::Local) => self.seen.ends_in_order += 1,
            _ => {}
        }
    }

    /// Hands requests to the device; whether it refused some and no completion will come.
    fn post(&mut self) -> bool {
        if self.is_halted {
            return false;
        }
        for queue in &mut self.reads {
            queue.posted.append(&mut queue.batch);
            assert!(queue.posted.len() <= 2, "{} READs on a queue of 2", queue.posted.len());
        }
        while let Some(request) = self.messages.batch.pop_front() {
            if self.is_slow && self.messages.posted.len() >= SEND_DEPTH / 4 {
                self.messages.batch.push_front(request);
                break;
            }
            let slots = self.quota.quota().promised() - RESERVE;
            match &request {
                Request::Control { slot, len } => {
                    self.peer.receive(&slot[..*len], None, slots);
                }
                Request::Message { slot, len, .. } => {
                    let key = self.bound.take();
                    let offer = self.peer.receive(&slot[..*len], key, slots);
                    // Without a window the memory of an offer is open when the peer has the offer.
                    if let (Some((transfer, payload)), None) = (offer, key) {
                        self.books.borrow_mut().open(payload, Access::Transfer(transfer));
                    }
                }
                Request::Bind(binding) => {
                    self.bound = Some(binding.key);
                    let access = Access::Key(binding.key);
                    self.books.borrow_mut().open(binding.payload, access);
                }
                Request::Invalidate(binding) => assert_eq!(binding.state, BindState::Bound),
                Request::Read(_) => {}
            }
            self.messages.posted.push_back(request);
        }
        let reads = self.messages.posted.iter().filter(|it| matches!(it, Request::Read(_)));
        assert!(reads.count() <= 2 && self.share.taken.get() <= READ_BYTES);
        !self.messages.batch.is_empty() && self.messages.posted.is_empty()
    }

    pub(super) fn complete(&mut self, input: &mut Input<'_>, is_ok: bool) {
        let count = 1 + self.reads.len();
        let first = input.pick(count).unwrap_or(0);
        for queue in (first..first + count).map(|queue| queue % count) {
            let of = match queue.checked_sub(1) {
                Some(queue) => &mut self.reads[queue],
                None => &mut self.messages,
            };
            if let Some(request) = of.posted.pop_front() {
                // What was done before the end may be told of after it, but not behind a flush.
                self.is_flushing |= self.is_halted && input.byte().is_multiple_of(2);
                self.done(request, queue.saturating_sub(1), is_ok && !self.is_flushing);
                if !is_ok {
                    self.handle(Event::Fail(CloseReason::Failed("a request failed".into())));
                }
                return;
            }
        }
    }

    /// The device is done with a request.
    pub(super) fn done(&mut self, request: Request, queue: usize, is_ok: bool) {
        let event = match request {
            Request::Control { slot, .. } => Event::SentControl(slot),
            Request::Message { .. } => Event::Sent,
            Request::Read(Chunk { sink, len, .. }) => {
                Event::Read { queue, len, sink, is_read: is_ok }
            }
            Request::Bind(mut binding) if is_ok => {
                binding.state = BindState::Bound;
                Event::Bound(binding)
            }
            Request::Invalidate(mut binding) if is_ok => {
                binding.state = BindState::Dead;
                self.books.borrow_mut().shut(Access::Key(binding.key));
                Event::Invalidated(binding)
            }
            Request::Bind(_) | Request::Invalidate(_) => return,
        };
        self.handle(event);
    }
}
