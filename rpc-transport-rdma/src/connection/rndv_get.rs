//! The receiver's side of a rendezvous: admission of an RTS, memory for the GET, and aborts.

use std::sync::Arc;

use rpc_core::Deadline;
use rpc_core::transport::{Admission, Handler, Withheld};
use rpc_core::wire::{FrameHeader, HEADER_LEN, ProtocolError};
use tokio::time::Instant;

use super::Connection;
use crate::connection::buffers::Event;
use crate::memory::{LargeBuffer, PoolError, Sink};
use crate::proto::connection::memory_timeout;
use crate::proto::rndv::get::{Due, GetRequest};
use crate::proto::wire::Rts;

impl Connection {
    pub(super) fn handle_offer(
        self: &Arc<Self>,
        handler: &dyn Handler,
        transfer: u32,
        offer: Rts,
    ) -> Result<(), ProtocolError> {
        let (frame_len, prefix) = (offer.frame_len(), offer.prefix());
        let Rts { head, segments } = offer;
        let Admission::Accept { deadline, .. } = handler.handle_announced(&prefix, frame_len)?
        else {
            self.handle(Event::Refuse { transfer });
            return Ok(());
        };
        let call = FrameHeader::parse(&prefix)?.call;
        let timeout = memory_timeout(self.worker.config.release_timeout);
        let memory_by = Deadline::after(Instant::now(), timeout);
        let wanted =
            GetRequest { call, prefix, head, deadline, memory_by, segments: segments.into() };
        // A connection that has ended takes nothing, and says so to the handler by itself.
        self.handle(Event::Accept { transfer, wanted });
        Ok(())
    }

    /// Takes memory for the transfers whose READs are about to be due.
    pub(super) fn take_memory(self: &Arc<Self>) {
        // Here and not where each of them becomes due: beginning one makes the next one due.
        while let Ok(Some(due)) = self.with_live(|live, _| live.state.next_memory()) {
            match self.sinks.try_take_at_once(len_of(&due)) {
                Err(PoolError::Exhausted { .. }) => {
                    self.worker.runtime.spawn(Arc::clone(self).get_later(due));
                }
                taken => self.start_get(due.transfer, taken),
            }
        }
    }

    /// Waits for memory and then fetches, unless the transfer is stopped meanwhile: by the peer,
    /// its call, or a deadline.
    async fn get_later(self: Arc<Self>, due: Due) {
        let (transfer, len) = (due.transfer, len_of(&due));
        tokio::select! {
            () = self.ending.cancelled() => {}
            () = self.stopped(transfer) => {}
            taken = self.sinks.take(len) => self.start_get(transfer, taken),
        }
    }

    /// Waits until a transfer that waits for memory is stopped.
    async fn stopped(&self, transfer: u32) {
        loop {
            let stopped = self.stopped.notified();
            let is_waiting = self.look(|state| state.is_waiting(transfer)).unwrap_or(false);
            if !is_waiting {
                return;
            }
            stopped.await;
        }
    }

    fn start_get(self: &Arc<Self>, transfer: u32, taken: Result<LargeBuffer, PoolError>) {
        match taken {
            Ok(sink) => {
                let mut sink = Some(sink);
                // A connection that has ended meanwhile takes its memory back by dropping it.
                let _ = self.with_live(|live, clock| {
                    // A transfer that was stopped needs no memory any more.
                    let Some(mut sink) = sink.take() else { return };
                    let Some(head) = live.state.head(transfer, sink.len()) else { return };
                    // Before it is a sink, which gives no access to its bytes.
                    sink[..head.len()].copy_from_slice(head);
                    self.counters.copied_bytes.add(head.len() as u64);
                    let sink = Arc::new(Sink::new(sink));
                    live.state.handle(Event::Memory { transfer, sink }, clock);
                });
            }
            Err(error) => self.handle(Event::NoMemory { transfer, why: no_memory(&error) }),
        }
    }

    /// Gives up what travels for a call, either way.
    pub(crate) fn abandon(self: &Arc<Self>, call: u64) {
        self.handle(Event::Abandon { call });
    }

    /// Waits until it is this connection's turn to read `len` bytes more.
    pub(super) fn take_turn(self: &Arc<Self>, len: u32) {
        let this = Arc::clone(self);
        self.worker.runtime.spawn(async move {
            tokio::select! {
                () = this.ending.cancelled() => {}
                turn = this.reads.take(len.into()) => {
                    // An error would mean that one READ is longer than the whole budget, which
                    // `Worker::start` rules out.
                    let Ok(turn) = turn else { return };
                    // A connection that has ended meanwhile drops the turn, which frees its bytes.
                    this.handle(Event::Turn(turn));
                }
            }
        });
    }

    /// Tells the handler of a frame that will not come. For the worker's task.
    pub(crate) fn handle_withheld(self: &Arc<Self>, prefix: &[u8; HEADER_LEN], reason: Withheld) {
        let Some(handler) = self.handler() else { return };
        if let Err(error) = handler.handle_withheld(prefix, reason) {
            self.fail(error.into());
        }
    }
}

/// Returns the length to allocate. A length beyond `usize` saturates: the pool refuses it by name.
fn len_of(due: &Due) -> usize {
    usize::try_from(due.len).unwrap_or(usize::MAX)
}

fn no_memory(error: &PoolError) -> Withheld {
    let knob = match error {
        PoolError::TooLarge { .. } | PoolError::Exhausted { .. } | PoolError::OverShare { .. } => {
            " (rdma.max_sink_bytes)"
        }
        PoolError::Register(_) => "",
    };
    Withheld::NoMemory(format!("{error}{knob}"))
}
