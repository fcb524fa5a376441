//! Refills a lane's store of queue pairs on its device's bulk thread, and empties it there.

use std::sync::Arc;

use crate::lane::WorkerShared;
use crate::lane::spares::{SpareKind, Spares};
use crate::quota::admission::Admission;
use crate::verbs::{FirmwareCommand, Port, QueuePair, SpareQueuePair};

impl<C: Send + Sync + 'static> WorkerShared<C> {
    /// Makes queue pairs ahead, for connections through `port`, on a command thread. The caller's
    /// handshake is over.
    pub(crate) fn refill_spares(self: &Arc<Self>, port: &Port, handshakes: &Arc<Admission>) {
        if !self.spares.begin_refill(self.spares_wanted()) {
            return;
        }
        Arc::clone(self).push_refill(port.clone(), Arc::clone(handshakes));
        self.note_woken();
        self.attachment.device().commands().bulk.serve(&self.runtime);
    }

    /// Returns the number of connections to keep queue pairs for.
    fn spares_wanted(&self) -> usize {
        let (taken, free) = self.shares.quota().places();
        self.spares.max.min(taken.min(free) as usize)
    }

    fn push_refill(self: Arc<Self>, port: Port, handshakes: Arc<Admission>) {
        let device = self.attachment.device().clone();
        // Behind the commands of connections that wait by then.
        device.commands().bulk.push(FirmwareCommand::CreateQueuePair, move || {
            self.make_spare(port, handshakes);
        });
    }

    /// Makes one queue pair, and has the next one made. Runs on a command thread.
    fn make_spare(self: Arc<Self>, port: Port, handshakes: Arc<Admission>) {
        let missing = || self.spares.next_missing(self.spares_wanted(), &handshakes);
        let Some(kind) = missing() else { return };
        let config = match kind {
            SpareKind::Messages => self.config.message_queue_pair(0),
            SpareKind::Reads => self.config.read_queue_pair(0),
        };
        match SpareQueuePair::make(&self.attachment, &port, &config) {
            Ok(spare) => {
                // Dropped without the store's lock, if at all.
                drop(self.spares.add(kind, spare));
                if missing().is_some() {
                    self.push_refill(port, handshakes);
                }
            }
            Err(error) => {
                // The next handshake tells of it if it lasts.
                self.spares.end_refill();
                let device = self.attachment.device().name();
                tracing::debug!(
                    target: "farcall::rdma",
                    %error, device, "cannot make a queue pair ahead"
                );
            }
        }
    }

    /// Takes back the queue pairs of an end that was not connected. Those that the store has no
    /// room for are destroyed on a command thread: the end may go in any task.
    pub(crate) fn return_spares(
        &self,
        messages: QueuePair,
        reads: impl IntoIterator<Item = QueuePair>,
        are_lean: bool,
    ) {
        let messages = messages.into_spare().into_iter().collect();
        let reads = reads.into_iter().filter_map(QueuePair::into_spare).collect();
        let returned = Spares { messages, reads };
        let surplus = if are_lean { returned } else { self.spares.put_back(returned) };
        self.destroy_spares(surplus);
    }

    /// Destroys the queue pairs that were made ahead: what they were made for has changed.
    pub(crate) fn flush_spares(&self) {
        self.destroy_spares(self.spares.flush());
    }

    /// Destroys the queue pairs that were made ahead, when the lane ends.
    pub(crate) fn close_spares(&self) {
        self.destroy_spares(self.spares.close());
    }

    fn destroy_spares(&self, Spares { messages, reads }: Spares) {
        if messages.is_empty() && reads.is_empty() {
            return;
        }
        let bulk = &self.attachment.device().commands().bulk;
        for spare in messages.into_iter().chain(reads) {
            bulk.push(FirmwareCommand::DestroyQueuePair, move || drop(spare));
        }
        self.note_woken();
        bulk.serve(&self.runtime);
    }
}
