//! The queue pairs of a connection: what its state sends is posted here, and comes back to it.
//!
//! # Queue pairs for READs
//!
//! A queue pair answers in order: what stands behind a READ waits until the last of its bytes is on
//! its way. With READs on queue pairs of their own, messages wait for none, and a device that
//! serves a queue pair in one place (Soft-RoCE on one processor) serves several READs at once.
//!
//! Where there are none, because the peer knows of none, or windows guard the memory of either end,
//! which open it to the queue pair of the messages alone, READs go with the messages.

use std::collections::VecDeque;
use std::sync::Arc;

use rpc_core::Reason;
use rpc_core::transport::{CloseReason, Counters, FrameMarks};
use tokio::time::Instant;

use crate::RdmaConfig;
use crate::connection::buffers::{Event, FramePermit, State, VerbsBuffers};
use crate::connection::flight_recorder::{FlightRecorder, FlightReport};
use crate::proto::clock::Clock;
use crate::proto::conn_params::ConnParams;
use crate::proto::connection::Transmit;
use crate::stats::lane::ActivityCounters;
use crate::verbs::{
    Binding, Completion, ConnectError, ConnectOptions, Done, Endpoint, HaltingQueuePair, Port,
    PostError, QueuePair, QueuePairConfig, RawMemoryWindow, UnknownCompletion, VerbsError, Window,
    Work,
};

/// The wait of a connection's end for the device's last-WQE-reached events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastReceives {
    Awaited,
    GivenUp,
}

/// The queue pairs of one connection.
#[derive(Debug)]
pub(crate) struct QueuePairs {
    /// Carries messages, and READs where there are no queue pairs for them.
    messages: QueuePair,
    reads: ReadQueues,
    /// Work that is not posted yet.
    batch: VecDeque<Work>,
    /// For every message in `batch` or posted, in order, what comes back with its completion; none
    /// for one in a control slot.
    permits: VecDeque<Option<FramePermit>>,
    /// Accounts of the calls whose requests are in `batch`. Hardly any call has one.
    marks: Vec<Arc<dyn FrameMarks>>,
    done: Vec<Done>,
    recorder: FlightRecorder,
    last_receives: LastReceives,
    activity: Arc<ActivityCounters>,
    counters: Arc<Counters>,
}

impl QueuePairs {
    /// Queue pairs that are not connected yet, and what is counted of their posts.
    pub(crate) fn new(
        messages: QueuePair,
        reads: ReadQueues,
        activity: Arc<ActivityCounters>,
        counters: Arc<Counters>,
    ) -> Self {
        let numbers = std::iter::once(messages.number()).chain(reads.numbers());
        Self {
            recorder: FlightRecorder::new(numbers),
            messages,
            reads,
            batch: VecDeque::new(),
            permits: VecDeque::new(),
            marks: Vec::new(),
            done: Vec::new(),
            last_receives: LastReceives::Awaited,
            activity,
            counters,
        }
    }

    /// Connects them to the peer's. It may block while the system looks up the peer's address.
    pub(crate) fn connect(
        &mut self,
        peer: &ConnParams,
        options: &ConnectOptions,
    ) -> Result<(), ConnectError> {
        // Connect the READ QPs first: after the message QP reaches RTR the peer may use any of
        // them.
        self.reads.connect(&peer.read_ends, options)?;
        // A key that leaks opens nothing to the queue pair of the messages then.
        if !self.reads.is_empty() {
            self.messages.refuse_reads();
        }
        self.messages.connect(&peer.endpoint, options)?;
        Ok(())
    }

    /// The number of the queue pair that carries messages.
    pub(crate) fn number(&self) -> u32 {
        self.messages.number()
    }

    /// The numbers of those that carry READs alone.
    pub(crate) fn read_numbers(&self) -> Vec<u32> {
        self.reads.numbers()
    }

    pub(crate) fn port(&self) -> &Port {
        self.messages.port()
    }

    pub(crate) fn allocate_window(&mut self) -> Result<Window, VerbsError> {
        self.messages.allocate_window()
    }

    /// Takes a window of the device for one of the queue pair that carries messages.
    pub(crate) fn adopt_window(&mut self, raw: Box<dyn RawMemoryWindow>) -> Window {
        self.messages.adopt_window(raw)
    }

    /// Gives the window of a binding up, for the caller to deallocate.
    pub(crate) fn detach_window(&mut self, binding: &Binding) -> Option<Box<dyn RawMemoryWindow>> {
        self.messages.detach_window(binding)
    }

    /// Queues work for the next post.
    pub(crate) fn push(&mut self, transmit: Transmit<VerbsBuffers>) {
        match transmit {
            Transmit::Message { slot, len, takes_key: invalidate, permit } => {
                self.batch.push_back(Work::Send { slot, len, invalidate });
                self.mark_posting(permit.as_ref());
                self.permits.push_back(permit);
            }
            Transmit::Offer { binding, slot, len, permit } => {
                // In one batch and in this order: the offer names a key that the bind makes.
                self.batch.extend(binding.map(Work::Bind));
                self.batch.push_back(Work::Send { slot, len, invalidate: None });
                self.mark_posting(Some(&permit));
                self.permits.push_back(Some(permit));
            }
            Transmit::Invalidate(binding) => self.batch.push_back(Work::Invalidate(binding)),
            Transmit::Read(chunk) => {
                let (sink, offset, remote) = (chunk.sink, chunk.offset, chunk.remote);
                let read = Work::Read { sink, offset, len: chunk.len, remote };
                // Without a queue pair for it a READ goes with the messages.
                self.batch.extend(self.reads.push(chunk.queue, read).err());
            }
        }
    }

    /// Marks on the account of a frame's call that the peer allows it.
    fn mark_posting(&mut self, permit: Option<&FramePermit>) {
        if let Some(marks) = permit.and_then(|permit| permit.marks.as_ref()) {
            marks.posting();
            self.marks.push(Arc::clone(marks));
        }
    }

    /// Posts what waits, as much of it as the device takes, with one call for each queue pair.
    /// Whether something is left, and no completion will say when the device takes it.
    pub(crate) fn post(&mut self, clock: &mut Clock) -> Result<bool, CloseReason> {
        let reads = self.reads.post(&mut self.recorder, clock).map_err(post_failed)?;
        if reads.posts > 0 {
            self.activity.posts.add(reads.posts);
        }
        if self.batch.is_empty() {
            return Ok(reads.must_retry);
        }
        // Counted by difference: the device may take a part of the batch.
        let waiting_count = self.message_count();
        self.recorder.record_work(0, self.batch.iter(), clock.now());
        let posted = self.messages.post(&mut self.batch);
        if !self.batch.is_empty() {
            self.recorder.retract(0, self.batch.len());
        }
        self.activity.posts.add(1);
        // The device takes what is left of a batch in a moment.
        if !self.marks.is_empty() {
            self.marks.drain(..).for_each(|marks| marks.posted());
        }
        self.counters.sent_count.add((waiting_count - self.message_count()) as u64);
        posted.map_err(post_failed)?;
        let is_stuck = !self.batch.is_empty() && !self.messages.will_complete();
        Ok(reads.must_retry || is_stuck)
    }

    /// The messages in the batch. A READ is none: the peer's device answers it, and not the peer.
    fn message_count(&self) -> usize {
        self.batch.iter().filter(|work| matches!(work, Work::Send { .. })).count()
    }

    /// Takes a completion of one of the queue pairs, and tells the state of what it ends.
    pub(crate) fn handle_completion(
        &mut self,
        completion: Completion,
        state: &mut State,
        clock: &mut Clock,
    ) {
        let mut done = std::mem::take(&mut self.done);
        let position = self.reads.position(completion.queue_pair_number());
        let handled = match position {
            Some(position) => self.reads.handle_completion(position, completion, &mut done),
            // Also a completion of a queue pair that is gone: it is none of ours, and ignored.
            None => self.messages.handle_completion(completion, &mut done),
        };
        if let Err(error) = handled {
            // A late completion of an earlier queue pair with the same tag frees nothing here.
            tracing::debug!(target: "farcall::rdma", %error, "ignored a completion");
        }
        let mut failure = None;
        let recorded = position.map_or(0, |position| position + 1);
        for Done { work, outcome } in done.drain(..) {
            self.recorder.complete(recorded, outcome);
            if let Err(error) = outcome {
                tracing::debug!(
                    target: "farcall::rdma",
                    ?work, %error, "an RDMA work request failed"
                );
                // The first failure is the cause. A flush before it is a consequence that overtook
                // it.
                if failure.is_none() || !error.is_flush() {
                    let message = format!("the RDMA path failed: {error}");
                    failure = Some(CloseReason::Failed(Reason::new(message, error)));
                }
            }
            let event = match work {
                Work::Send { slot, .. } => match self.permits.pop_front().flatten() {
                    Some(_) if outcome.is_ok() => Event::Sent,
                    Some(_) => Event::Unsent,
                    None => Event::SentControl(slot),
                },
                Work::Read { sink, len, .. } => {
                    // READs that go with the messages are those of a single queue.
                    let queue = position.unwrap_or(0);
                    Event::Read { queue, len, sink, is_read: outcome.is_ok() }
                }
                Work::Bind(binding) if outcome.is_ok() => Event::Bound(binding),
                Work::Invalidate(binding) if outcome.is_ok() => Event::Invalidated(binding),
                // What a failed connection has exposed stays until its queue pair is gone.
                Work::Bind(_) | Work::Invalidate(_) => continue,
            };
            state.handle(event, clock);
        }
        self.done = done;
        if let Some(reason) = failure {
            state.handle(Event::Fail(reason), clock);
        }
    }

    /// Returns the last work requests, once.
    pub(super) fn take_report(&mut self, now: Instant) -> Option<FlightReport> {
        self.recorder.take_report(now)
    }

    #[cfg(test)]
    pub(super) fn describe_requests(&mut self) -> (String, bool) {
        let now = Instant::now();
        (self.recorder.describe(now), self.recorder.take_report(now).is_none())
    }

    /// Begins to stop the queue pairs, which post nothing from here on. READs that were not posted
    /// go back to the state. What is in flight comes back through completions after
    /// [`finish_halt`](Self::finish_halt), which takes what this returns, after the device's part.
    pub(crate) fn begin_halt(
        &mut self,
        state: &mut State,
        clock: &mut Clock,
    ) -> Vec<HaltingQueuePair> {
        let mut unsent_count = 0;
        self.marks.clear();
        for work in self.batch.drain(..) {
            match work {
                Work::Send { .. } => unsent_count += 1,
                Work::Read { .. } => state.handle(Event::Unposted { queue: 0 }, clock),
                Work::Bind(_) | Work::Invalidate(_) => {}
            }
        }
        // The last ones: permits are in the order of posting, and what was not posted is at the
        // end.
        self.permits.truncate(self.permits.len() - unsent_count);
        for (queue, reads) in self.reads.0.iter_mut().enumerate() {
            for _ in reads.batch.drain(..) {
                state.handle(Event::Unposted { queue }, clock);
            }
        }
        self.all().filter_map(QueuePair::begin_halt).collect()
    }

    /// Takes back queue pairs that [`begin_halt`](Self::begin_halt) gave away.
    pub(crate) fn finish_halt(&mut self, halted: Vec<HaltingQueuePair>) {
        for halting in halted {
            let number = halting.number();
            let Some(queue_pair) = self.all().find(|it| it.number() == number) else { continue };
            if let Err(error) = queue_pair.finish_halt(halting) {
                // Destroying it, which follows in bounded time, does what halting could not.
                rpc_core::limited_log!(
                    target: "farcall::rdma",
                    process_wide, WARN, "cannot halt a queue pair", %error
                );
            }
        }
    }

    /// Returns true if a queue pair is with its device's commands.
    pub(crate) fn is_being_halted(&mut self) -> bool {
        self.all().any(|it| it.is_being_halted())
    }

    fn all(&mut self) -> impl Iterator<Item = &mut QueuePair> {
        let reads = self.reads.0.iter_mut().map(|queue| &mut queue.queue_pair);
        std::iter::once(&mut self.messages).chain(reads)
    }

    /// Returns true if the queue pairs are halted and have given everything back, and the device
    /// has reported their last receives or is not waited for any longer.
    pub(crate) fn is_drained(&self) -> bool {
        self.messages.is_drained()
            && self.reads.is_drained()
            && (self.last_receives == LastReceives::GivenUp || !self.awaits_last_receive())
    }

    fn awaits_last_receive(&self) -> bool {
        self.messages.awaits_last_receive() || self.reads.awaits_last_receive()
    }

    /// Records that the device took the last receive for the queue pair of this number.
    pub(crate) fn handle_last_receive(&mut self, number: u32) {
        if self.messages.number() == number {
            self.messages.handle_last_receive();
        }
        self.reads.handle_last_receive(number);
    }

    /// Waits no longer for the device to say that.
    pub(crate) fn give_up_last_receives(&mut self) {
        self.last_receives = LastReceives::GivenUp;
    }

    /// Destroys them all.
    ///
    /// # Errors
    ///
    /// Returns a [`VerbsError`] if one of them could not be destroyed: the device may still read
    /// what was offered.
    pub(crate) fn destroy(&mut self) -> Result<(), VerbsError> {
        // All of them, although one fails: each that is gone can read nothing any more.
        let (messages, reads) = (self.messages.destroy(), self.reads.destroy());
        messages.and(reads)
    }
}

fn post_failed(error: PostError) -> CloseReason {
    let message = match std::error::Error::source(&error) {
        Some(source) => format!("cannot post to the RDMA path: {error}: {source}"),
        None => format!("cannot post to the RDMA path: {error}"),
    };
    CloseReason::Failed(Reason::new(message, error))
}

impl RdmaConfig {
    /// The queue pair that carries the messages of a connection.
    pub(crate) fn message_queue_pair(&self, tag: u32) -> QueuePairConfig {
        let (send_depth, reads_max) = (self.send_depth, self.max_reads);
        QueuePairConfig { send_depth, reads_max, tag, ..QueuePairConfig::default() }
    }

    /// A queue pair that carries READs alone.
    pub(crate) fn read_queue_pair(&self, tag: u32) -> QueuePairConfig {
        let reads_max = self.reads_of_queue_pair();
        // Nothing is ever sent here.
        QueuePairConfig { send_depth: reads_max.into(), inline_max: 0, reads_max, tag }
    }

    /// READs outstanding on one of the queue pairs that carry them alone.
    pub(crate) fn reads_of_queue_pair(&self) -> u8 {
        self.max_reads.div_ceil(self.read_queue_pairs.max(1))
    }

    /// Completions that a lane can have waiting.
    pub(crate) fn completions_of_lane(&self) -> u32 {
        let sends = self.max_connections.saturating_mul(self.completions_of_connection());
        u32::from(self.receive_slots).saturating_add(sends)
    }

    /// Completions that a connection can have waiting.
    pub(crate) fn completions_of_connection(&self) -> u32 {
        // Each queue pair has one more, for the drain WR of its end.
        let reads = u32::from(self.read_queue_pairs) * (u32::from(self.reads_of_queue_pair()) + 1);
        self.send_depth.saturating_add(1).saturating_add(reads)
    }
}

/// The queue pairs for READs, by the position that they have at both ends.
#[derive(Debug, Default)]
pub(crate) struct ReadQueues(Vec<ReadQueue>);

#[derive(Debug)]
struct ReadQueue {
    queue_pair: QueuePair,
    /// READs that are not posted yet.
    batch: VecDeque<Work>,
}

/// The result of posting READs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posted {
    /// Calls into the device.
    pub(crate) posts: u64,
    /// Set if some are left and no completion will signal that the device has room for them.
    pub(crate) must_retry: bool,
}

impl ReadQueues {
    /// Takes queue pairs that are not connected yet.
    pub(crate) fn new(queue_pairs: impl IntoIterator<Item = QueuePair>) -> Self {
        let queue = |queue_pair| ReadQueue { queue_pair, batch: VecDeque::new() };
        Self(queue_pairs.into_iter().map(queue).collect())
    }

    /// Gives the queue pairs back. Nothing is connected yet.
    pub(crate) fn into_queue_pairs(self) -> impl Iterator<Item = QueuePair> {
        self.0.into_iter().map(|queue| queue.queue_pair)
    }

    /// These ends, as the peer needs to know them.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        self.0.iter().map(|queue| queue.queue_pair.endpoint()).collect()
    }

    /// Lets go of those beyond the peer's, and gives the READs that any of them may have
    /// outstanding. Nothing is connected yet.
    pub(crate) fn agree(&mut self, peers: &[Endpoint]) -> Result<u8, ConnectError> {
        self.0.truncate(peers.len());
        let mut reads_max = u8::MAX;
        for (queue, peer) in self.0.iter().zip(peers) {
            reads_max = reads_max.min(queue.queue_pair.endpoint().agree(peer)?.reads_out);
        }
        Ok(reads_max)
    }

    /// Connects each to the peer's at its position.
    pub(crate) fn connect(
        &mut self,
        peers: &[Endpoint],
        options: &ConnectOptions,
    ) -> Result<(), ConnectError> {
        for (queue, peer) in self.0.iter_mut().zip(peers) {
            queue.queue_pair.connect(peer, options)?;
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers of the queue pairs.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.0.iter().map(|queue| queue.queue_pair.number()).collect()
    }

    /// The position of the queue pair with this number.
    pub(crate) fn position(&self, number: u32) -> Option<usize> {
        self.0.iter().position(|queue| queue.queue_pair.number() == number)
    }

    /// Queues a READ for its post. Returns it if there is no such queue pair.
    pub(crate) fn push(&mut self, position: usize, read: Work) -> Result<(), Work> {
        match self.0.get_mut(position) {
            Some(queue) => queue.batch.push_back(read),
            None => return Err(read),
        }
        Ok(())
    }

    /// Posts what waits, in one call for each queue pair that has something.
    pub(super) fn post(
        &mut self,
        recorder: &mut FlightRecorder,
        clock: &mut Clock,
    ) -> Result<Posted, PostError> {
        let mut posted = Posted::default();
        // In the recorder, the queue pair of the messages comes first.
        for (index, queue) in (1..).zip(&mut self.0).filter(|(_, it)| !it.batch.is_empty()) {
            recorder.record_work(index, queue.batch.iter(), clock.now());
            let taken = queue.queue_pair.post(&mut queue.batch);
            if !queue.batch.is_empty() {
                recorder.retract(index, queue.batch.len());
            }
            taken?;
            posted.posts += 1;
            posted.must_retry |= !queue.batch.is_empty() && !queue.queue_pair.will_complete();
        }
        Ok(posted)
    }

    /// Takes back what ended with a completion of the queue pair at `position`.
    pub(crate) fn handle_completion(
        &mut self,
        position: usize,
        completion: Completion,
        done: &mut Vec<Done>,
    ) -> Result<(), UnknownCompletion> {
        self.0[position].queue_pair.handle_completion(completion, done)
    }

    /// Records that the device took the last receive for the queue pair of this number.
    pub(crate) fn handle_last_receive(&mut self, number: u32) {
        let queue_pairs = self.0.iter_mut().map(|queue| &mut queue.queue_pair);
        queue_pairs.filter(|it| it.number() == number).for_each(QueuePair::handle_last_receive);
    }

    /// Returns true if the device has not yet reported the last receive of one of them.
    pub(crate) fn awaits_last_receive(&self) -> bool {
        self.0.iter().any(|queue| queue.queue_pair.awaits_last_receive())
    }

    /// Returns true if all were halted and all work has come back.
    pub(crate) fn is_drained(&self) -> bool {
        self.0.iter().all(|queue| queue.queue_pair.is_drained())
    }

    /// Destroys them all.
    ///
    /// # Errors
    ///
    /// Returns a [`VerbsError`] if one of them could not be destroyed: the device may still read
    /// what was offered.
    pub(crate) fn destroy(&mut self) -> Result<(), VerbsError> {
        let mut destroyed = Ok(());
        for queue in &mut self.0 {
            destroyed = queue.queue_pair.destroy().and(destroyed);
        }
        destroyed
    }
}
