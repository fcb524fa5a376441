//! The queue pairs of a connection: what its state sends is posted here, and comes back to it.

use std::collections::VecDeque;
use std::sync::Arc;

use rpc_core::Reason;
use rpc_core::transport::{CloseReason, Counters};
use tokio::sync::OwnedSemaphorePermit;

use crate::connection::buffers::{Event, State, VerbsBuffers};
use crate::connection::read_queues::ReadQueues;
use crate::proto::clock::Clock;
use crate::proto::conn_params::ConnParams;
use crate::proto::connection::Transmit;
use crate::stats::activity::ActivityCounters;
use crate::verbs::{
    Completion, ConnectError, ConnectOptions, Done, Port, PostError, QueuePair, VerbsError, Window,
    Work,
};

/// Whether the end of a connection waits for the device to say that it takes no more receives.
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
    /// What is not posted yet.
    batch: VecDeque<Work>,
    /// For every message in `batch` or posted, in order, what comes back with its completion; none
    /// for one in a control slot.
    permits: VecDeque<Option<OwnedSemaphorePermit>>,
    done: Vec<Done>,
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
        Self {
            messages,
            reads,
            batch: VecDeque::new(),
            permits: VecDeque::new(),
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

    pub(crate) fn deallocate_window(&mut self, binding: crate::verbs::Binding) {
        self.messages.deallocate_window(binding);
    }

    /// Has something wait for the next post.
    pub(crate) fn push(&mut self, transmit: Transmit<VerbsBuffers>) {
        match transmit {
            Transmit::Message { slot, len, takes_key: invalidate, permit } => {
                self.batch.push_back(Work::Send { slot, len, invalidate });
                self.permits.push_back(permit);
            }
            Transmit::Offer { binding, slot, len, permit } => {
                self.batch.extend(binding.map(Work::Bind));
                self.batch.push_back(Work::Send { slot, len, invalidate: None });
                self.permits.push_back(Some(permit));
            }
            Transmit::Invalidate(binding) => self.batch.push_back(Work::Invalidate(binding)),
            Transmit::Read(chunk) => {
                let (sink, offset, remote) = (chunk.sink, chunk.offset, chunk.remote);
                let read = Work::Read { sink, offset, len: chunk.len, remote };
                self.batch.extend(self.reads.push(chunk.queue, read).err());
            }
        }
    }

    /// Posts what waits, as much of it as the device takes, with one call for each queue pair.
    /// Whether something is left, and no completion will say when the device takes it.
    pub(crate) fn post(&mut self) -> Result<bool, CloseReason> {
        let reads = self.reads.post().map_err(post_failed)?;
        if reads.posts > 0 {
            self.activity.posts.add(reads.posts);
        }
        if self.batch.is_empty() {
            return Ok(reads.must_retry);
        }
        let waiting_count = self.message_count();
        let posted = self.messages.post(&mut self.batch);
        self.activity.posts.add(1);
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
            None => self.messages.handle_completion(completion, &mut done),
        };
        if let Err(error) = handled {
            // A late completion of an earlier queue pair with the same tag frees nothing here.
            tracing::debug!(target: "farcall::rdma", %error, "ignored a completion");
        }
        let mut failure = None;
        for Done { work, outcome } in done.drain(..) {
            if let Err(error) = outcome {
                tracing::debug!(
                    target: "farcall::rdma",
                    ?work, %error, "an RDMA work request failed"
                );
                if failure.is_none() || !error.is_flush() {
                    let message = format!("the RDMA path failed: {error}");
                    failure = Some(CloseReason::Failed(Reason::new(message, error)));
                }
            }
            let event = match work {
                Work::Send { slot, .. } => match self.permits.pop_front().flatten() {
                    Some(_) => Event::Sent,
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

    /// Stops the queue pairs; what is in flight comes back through their completions, and READs
    /// that were not posted go back to the state.
    pub(crate) fn halt(&mut self, state: &mut State, clock: &mut Clock) {
        let mut unsent_count = 0;
        for work in self.batch.drain(..) {
            match work {
                Work::Send { .. } => unsent_count += 1,
                Work::Read { .. } => state.handle(Event::Unposted { queue: 0 }, clock),
                Work::Bind(_) | Work::Invalidate(_) => {}
            }
        }
        self.permits.truncate(self.permits.len() - unsent_count);
        for (queue, count) in self.reads.halt().into_iter().enumerate() {
            (0..count).for_each(|_| state.handle(Event::Unposted { queue }, clock));
        }
        if let Err(error) = self.messages.halt() {
            // Destroying it, which follows in bounded time, does what halting could not.
            rpc_core::limited_log!(
                target: "farcall::rdma",
                of_process, WARN, "cannot halt a queue pair", %error
            );
        }
    }

    /// Whether they are halted and have given everything back, and the device has said that it
    /// takes no more receives for them, or is not waited for any longer.
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
    /// A failure, when there was one: the device may still read what was offered.
    pub(crate) fn destroy(&mut self) -> Result<(), VerbsError> {
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
