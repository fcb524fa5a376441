//! What the peer offers: whether it is wanted, where its memory comes from, what is withheld.

use std::sync::Arc;
use std::time::Duration;

use rpc_core::Deadline;
use rpc_core::transport::{Admission, Handler, Withheld};
use rpc_core::wire::{FrameHeader, HEADER_LEN, ProtocolError};
use tokio::time::Instant;

use super::Connection;
use crate::fair_semaphore::PeerShare;
use crate::lane::Kick;
use crate::memory::{LargeBuffer, PoolError};
use crate::message::Offer;
use crate::puller::Wanted;

impl Connection {
    pub(super) fn handle_offer(
        self: &Arc<Self>,
        handler: &dyn Handler,
        transfer: u32,
        offer: Offer,
    ) -> Result<(), ProtocolError> {
        let (frame_len, prefix) = (offer.frame_len(), offer.prefix());
        let Offer { head, segments } = offer;
        let Admission::Accept { deadline } = handler.handle_announced(&prefix, frame_len)? else {
            let _ = self.with_path(|path| {
                path.push_refusal(transfer);
                Ok(())
            });
            return Ok(());
        };
        let call = FrameHeader::parse(&prefix)?.call;
        let wanted = Wanted { call, prefix, head, deadline, segments: segments.into() };
        // A path that has ended takes nothing, and says so to the handler by itself.
        let _ = self.with_path(|path| Ok(path.accept(transfer, wanted)?));
        let len = usize::try_from(frame_len).unwrap_or(usize::MAX);
        match self.sinks.try_take_at_once(len) {
            Err(PoolError::Exhausted { .. }) => {}
            taken => {
                self.pull(transfer, taken);
                return Ok(());
            }
        }
        self.lane.runtime.spawn(Arc::clone(self).pull_later(transfer, len, deadline));
        Ok(())
    }

    /// Waits for memory and then pulls, unless the transfer is stopped meanwhile.
    async fn pull_later(self: Arc<Self>, transfer: u32, len: usize, deadline: Option<Deadline>) {
        let patience = self.lane.config.release_timeout / 2;
        let impatient = Deadline::after(Instant::now(), patience);
        let (until, why) = match deadline.filter(|deadline| *deadline <= impatient) {
            Some(deadline) => (deadline, Withheld::Expired),
            None => (impatient, Withheld::NoMemory(no_memory_within(len, patience))),
        };
        tokio::select! {
            () = self.ending.cancelled() => {}
            () = self.stopped(transfer) => {}
            () = tokio::time::sleep_until(until.0) => self.withhold(transfer, why),
            taken = self.sinks.take(len) => self.pull(transfer, taken),
        }
    }

    /// Waits until a transfer that waits for memory is stopped.
    async fn stopped(&self, transfer: u32) {
        loop {
            let stopped = self.stopped.notified();
            let is_waiting = self.look(|path| path.is_waiting(transfer)).unwrap_or(false);
            if !is_waiting {
                return;
            }
            stopped.await;
        }
    }

    fn pull(self: &Arc<Self>, transfer: u32, taken: Result<LargeBuffer, PoolError>) {
        match taken {
            Ok(sink) => {
                // A path that has ended meanwhile takes its memory back by dropping it.
                let _ = self.with_path(|path| {
                    path.pull(transfer, sink, &self.counters);
                    Ok(())
                });
            }
            Err(error) => self.withhold(transfer, no_memory(&error)),
        }
    }

    /// Waits until it is this connection's turn to read `len` bytes more.
    pub(super) fn read_later(self: &Arc<Self>, share: PeerShare, len: u32) {
        let this = Arc::clone(self);
        self.lane.runtime.spawn(async move {
            tokio::select! {
                () = this.ending.cancelled() => {}
                turn = share.take(len.into()) => {
                    // A turn is no longer than the budget. A path that has ended meanwhile passes.
                    let Ok(turn) = turn else { return };
                    let _ = this.with_path(|path| {
                        path.grant_read(turn);
                        Ok(())
                    });
                }
            }
        });
    }

    fn withhold(self: &Arc<Self>, transfer: u32, why: Withheld) {
        let _ = self.with_path(|path| {
            path.withhold(transfer, why);
            Ok(())
        });
    }

    /// Has the lane's task tell the handler of frames that will not come.
    pub(super) fn report_withheld(self: &Arc<Self>, withheld: Vec<([u8; HEADER_LEN], Withheld)>) {
        if withheld.is_empty() {
            return;
        }
        self.stopped.notify_waiters();
        for (prefix, reason) in withheld {
            self.lane.kick(Kick::Withheld(Arc::clone(self), prefix, reason));
        }
    }

    /// Tells the handler of a frame that will not come. For the lane's task.
    pub(crate) fn handle_withheld(self: &Arc<Self>, prefix: &[u8; HEADER_LEN], reason: Withheld) {
        let Some(handler) = self.handler() else { return };
        if let Err(error) = handler.handle_withheld(prefix, reason) {
            self.fail(error.into());
        }
    }
}

fn no_memory_within(len: usize, patience: Duration) -> String {
    format!("no memory for {len} bytes within {patience:?} (rdma.sink_bytes_max)")
}

fn no_memory(error: &PoolError) -> Withheld {
    let knob = match error {
        PoolError::TooLarge { .. } | PoolError::Exhausted { .. } | PoolError::OverShare { .. } => {
            " (rdma.sink_bytes_max)"
        }
        PoolError::Register(_) => "",
    };
    Withheld::NoMemory(format!("{error}{knob}"))
}
