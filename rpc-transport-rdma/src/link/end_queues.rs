//! The queue pairs of an end that is not connected yet.

use std::sync::Arc;
use std::time::Duration;

use rpc_core::connect::Declined;

use crate::connection::queue_pairs::ReadQueues;
use crate::lane::spares::Spares;
use crate::link::obstacle::declined;
use crate::verbs::{Port, QueuePair, QueuePairConfig, SpareQueuePair, VerbsError};
use crate::worker::WorkerShared;

/// Maximum wait of a handshake for entries of the completion queue that a poll of the worker's task
/// frees. The handshake wakes that task, which then lags by a few slices of the scheduler at most.
const ENTRIES_TIMEOUT: Duration = Duration::from_millis(200);

/// The queue pairs of one end. Dropped before they are connected, they go back to their lane.
///
/// A peer that has accepted may have connected its own to them, and the answer is lost: it sends
/// nothing, since the client speaks first, and with its next connection a queue pair has another
/// first packet number.
pub(super) struct EndQueues {
    worker: Arc<WorkerShared>,
    /// Set if they are smaller than those of the store.
    is_lean: bool,
    /// Taken when they are connected.
    queue_pairs: Option<(QueuePair, ReadQueues)>,
}

impl EndQueues {
    /// Takes queue pairs that the lane has made ahead, and makes those that are missing. All those
    /// of a lean connection are made.
    pub(super) fn make(
        worker: &Arc<WorkerShared>,
        port: &Port,
        tag: u32,
        is_lean: bool,
    ) -> Result<Self, Declined> {
        let config = worker.config_of(is_lean);
        let mut spares = if is_lean { Spares::default() } else { worker.spares.take(port) };
        let make = |spares: &mut dyn Iterator<Item = SpareQueuePair>, config| {
            with_room(worker, || make_one(spares.next(), worker, port, &config))
        };
        let messages = make(&mut spares.messages.drain(..), config.message_queue_pair(tag))?;
        let mut ahead = spares.reads.drain(..);
        let reads = (0..config.read_queue_pairs)
            .map(|_| make(&mut ahead, config.read_queue_pair(tag)))
            .collect::<Result<Vec<_>, _>>()?;
        let queue_pairs = Some((messages, ReadQueues::new(reads)));
        Ok(Self { worker: Arc::clone(worker), is_lean, queue_pairs })
    }

    /// Returns true if they are of a device that has many connections.
    pub(super) fn is_lean(&self) -> bool {
        self.is_lean
    }

    pub(super) fn messages(&self) -> &QueuePair {
        &self.get().0
    }

    pub(super) fn reads(&self) -> &ReadQueues {
        &self.get().1
    }

    pub(super) fn reads_mut(&mut self) -> &mut ReadQueues {
        &mut self.queue_pairs.as_mut().expect("only connecting takes them").1
    }

    fn get(&self) -> &(QueuePair, ReadQueues) {
        self.queue_pairs.as_ref().expect("only connecting takes them")
    }

    pub(super) fn into_parts(mut self) -> (QueuePair, ReadQueues) {
        self.queue_pairs.take().expect("only connecting takes them")
    }
}

impl Drop for EndQueues {
    fn drop(&mut self) {
        if let Some((messages, reads)) = self.queue_pairs.take() {
            self.worker.return_spares(messages, reads.into_queue_pairs(), self.is_lean);
        }
    }
}

/// Makes a queue pair of the spare, if that fits, or a new one.
fn make_one(
    spare: Option<SpareQueuePair>,
    worker: &WorkerShared,
    port: &Port,
    config: &QueuePairConfig,
) -> Result<QueuePair, VerbsError> {
    match spare.filter(|spare| spare.fits(port)) {
        Some(spare) => QueuePair::from_spare(spare, port, config.tag),
        None => QueuePair::new(&worker.attachment, port, config),
    }
}

/// Makes something of a connection's, and tries once more where room can be made for it. The
/// completion queue may have none until the worker's task has freed what queue pairs that are gone
/// have left there: until it is scheduled, connections that have just ended would keep a new one
/// out. And memory for large frames that is not in use may take what the process may lock.
fn with_room<T>(
    worker: &WorkerShared,
    mut make: impl FnMut() -> Result<T, VerbsError>,
) -> Result<T, Declined> {
    let made = make().or_else(|error| match error {
        VerbsError::CompletionQueueFull { .. } => {
            worker.attachment.wait_for_entries(ENTRIES_TIMEOUT);
            make()
        }
        error if error.is_over_lock_limit() && worker.sources.free_unused() => make(),
        error => Err(error),
    });
    made.map_err(|error| declined(&error))
}
