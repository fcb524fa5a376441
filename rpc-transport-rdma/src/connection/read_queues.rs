//! The queue pairs of a connection that carry READs and nothing else.
//!
//! A queue pair answers in order: what stands behind a READ waits until the last of its bytes is on
//! its way. With READs on queue pairs of their own, messages wait for none, and a device that
//! serves a queue pair in one place (Soft-RoCE on one processor) serves several READs at once.
//!
//! Where there are none, because the peer knows of none, or windows guard the memory of either end,
//! which open it to the queue pair of the messages alone, READs go with the messages.

use std::collections::VecDeque;

use crate::RdmaConfig;
use crate::verbs::{
    Attachment, Completion, ConnectError, ConnectOptions, Done, Endpoint, Port, PostError,
    QueuePair, QueuePairConfig, UnknownCompletion, VerbsError, Work,
};

impl RdmaConfig {
    /// READs outstanding on one of the queue pairs that carry them alone.
    pub(crate) fn reads_of_queue_pair(&self) -> u8 {
        self.max_reads.div_ceil(self.read_queue_pairs.max(1))
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

/// What came of posting READs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posted {
    /// Calls into the device.
    pub(crate) posts: u64,
    /// Whether something is left, and no completion will say when the device takes it.
    pub(crate) must_retry: bool,
}

impl ReadQueues {
    /// Makes as many as the configuration says, not connected yet.
    pub(crate) fn make(
        attachment: &Attachment,
        port: &Port,
        config: &RdmaConfig,
        tag: u32,
    ) -> Result<Self, VerbsError> {
        let reads_max = config.reads_of_queue_pair();
        let config_of_one = QueuePairConfig {
            send_depth: reads_max.into(),
            // Nothing is ever sent here.
            inline_max: 0,
            reads_max,
            tag,
        };
        let make = |_| {
            let queue_pair = QueuePair::new(attachment, port, &config_of_one)?;
            Ok(ReadQueue { queue_pair, batch: VecDeque::new() })
        };
        (0..config.read_queue_pairs).map(make).collect::<Result<_, _>>().map(Self)
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
            reads_max = reads_max.min(queue.queue_pair.endpoint().agree(peer)?.reads_max);
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

    /// Has a READ wait for its post; gives it back when there is no such queue pair.
    pub(crate) fn push(&mut self, position: usize, read: Work) -> Result<(), Work> {
        match self.0.get_mut(position) {
            Some(queue) => queue.batch.push_back(read),
            None => return Err(read),
        }
        Ok(())
    }

    /// Posts what waits, in one call for each queue pair that has something.
    pub(crate) fn post(&mut self) -> Result<Posted, PostError> {
        let mut posted = Posted::default();
        for queue in self.0.iter_mut().filter(|queue| !queue.batch.is_empty()) {
            queue.queue_pair.post(&mut queue.batch)?;
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

    /// Stops them; what is in flight comes back through their completions. Gives how many READs of
    /// each were not posted, and are gone.
    pub(crate) fn halt(&mut self) -> Vec<usize> {
        let halt = |queue: &mut ReadQueue| {
            if let Err(error) = queue.queue_pair.halt() {
                // Destroying it, which follows in bounded time, does what halting could not.
                rpc_core::limited_log!(
                    target: "farcall::rdma",
                    of_process, WARN, "cannot halt a queue pair for READs", %error
                );
            }
            queue.batch.drain(..).count()
        };
        self.0.iter_mut().map(halt).collect()
    }

    /// Records that the device took the last receive for the queue pair of this number.
    pub(crate) fn handle_last_receive(&mut self, number: u32) {
        let of_number = self.0.iter_mut().map(|queue| &mut queue.queue_pair);
        of_number.filter(|it| it.number() == number).for_each(QueuePair::handle_last_receive);
    }

    /// Whether the device is still to say that of one of them.
    pub(crate) fn awaits_last_receive(&self) -> bool {
        self.0.iter().any(|queue| queue.queue_pair.awaits_last_receive())
    }

    /// Whether all were halted and everything has come back.
    pub(crate) fn is_drained(&self) -> bool {
        self.0.iter().all(|queue| queue.queue_pair.is_drained())
    }

    /// Destroys them all.
    ///
    /// # Errors
    ///
    /// The last failure, when there was one: see [`QueuePair::destroy`].
    pub(crate) fn destroy(&mut self) -> Result<(), VerbsError> {
        let mut destroyed = Ok(());
        for queue in &mut self.0 {
            destroyed = queue.queue_pair.destroy().and(destroyed);
        }
        destroyed
    }
}
