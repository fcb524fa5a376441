//! A connection that has not ended: its state, and the queue pairs that the state moves.

use rpc_core::transport::CloseReason;
use tokio::time::Instant;

use crate::connection::batching::Batching;
use crate::connection::buffers::{Action, Event, State};
use crate::connection::queue_pairs::QueuePairs;
use crate::proto::clock::Clock;
use crate::verbs::{HaltingQueuePair, VerbsError};

/// The part of a connection that its lock protects.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) state: State,
    pub(crate) queues: QueuePairs,
    pub(crate) batching: Batching,
    /// The deadline that the worker's timer was told of.
    pub(super) armed: Option<Instant>,
    /// Actions to carry out after the lock is released, in this order. They may run code of the
    /// application, which could take the lock again.
    pub(super) after: Vec<Action>,
    /// Queue pairs whose halt [`Action::Halt`] asks the device for.
    pub(super) halting: Vec<HaltingQueuePair>,
}

/// The effect of the state's actions that were carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obeyed {
    Nothing,
    /// The queue pairs are about to be halted.
    Halt,
}

impl Live {
    pub(crate) fn new(state: State, queues: QueuePairs) -> Self {
        let batching = Batching::default();
        Self { state, queues, batching, armed: None, after: Vec::new(), halting: Vec::new() }
    }

    /// Makes sure that there is a window at all, where offers need them.
    pub(crate) fn allocate_first_memory_window(&mut self) -> Result<(), VerbsError> {
        if self.state.uses_memory_windows() {
            let window = self.queues.allocate_window()?;
            self.state.handle(Event::MemoryWindow(Ok(window)), &mut clock());
        }
        Ok(())
    }

    /// Posts what may go out now, unless it is held back; whether the connection was halted.
    pub(super) fn transmit(&mut self, clock: &mut Clock) -> Obeyed {
        if self.batching.holds_back(self.state.outgoing_len()) {
            return self.obey(clock);
        }
        while let Some(transmit) = self.state.poll_transmit(clock) {
            self.queues.push(transmit);
        }
        if self.obey(clock) == Obeyed::Halt {
            return Obeyed::Halt;
        }
        // Its queue pairs take no posts, and what was in the batch has been given back.
        if self.state.is_halting() {
            return Obeyed::Nothing;
        }
        match self.queues.post(clock) {
            Ok(false) => return Obeyed::Nothing,
            Ok(true) => self.state.handle(Event::PostRefused, clock),
            Err(reason) => self.state.handle(Event::Fail(reason), clock),
        }
        self.obey(clock)
    }

    /// Carries out what the state asks of the queue pairs; the rest has to wait until the lock is
    /// released: dropping memory that was lent may run code of the application, and most of what is
    /// left takes the lock again.
    pub(super) fn obey(&mut self, clock: &mut Clock) -> Obeyed {
        let mut obeyed = Obeyed::Nothing;
        while let Some(action) = self.state.poll_action() {
            match action {
                Action::Halt => {
                    self.halting = self.queues.begin_halt(&mut self.state, clock);
                    self.after.push(Action::Halt);
                    obeyed = Obeyed::Halt;
                    if self.end_reason().is_failure() {
                        self.report_requests(clock);
                    }
                }
                Action::GiveUpLastReceives => {
                    self.queues.give_up_last_receives();
                    self.after.push(Action::GiveUpLastReceives);
                }
                Action::LogStall(stall) => {
                    self.after.push(Action::LogStall(stall));
                    self.report_requests(clock);
                }
                action => self.after.push(action),
            }
        }
        obeyed
    }

    /// Takes back the queue pairs whose halt was not asked for yet. Destroying them does what
    /// halting would have.
    pub(super) fn take_back_halting(&mut self) {
        let halting = std::mem::take(&mut self.halting);
        self.queues.finish_halt(halting);
    }

    /// Destroys the queue pairs, once. Where that fails the device may still read what was offered:
    /// that memory is leaked instead of freed.
    pub(super) fn destroy(&mut self) {
        if let Err(error) = self.queues.destroy() {
            let (count, number) = (self.state.leak_offered(), self.queues.number());
            rpc_core::limited_log!(
                target: "farcall::rdma", process_wide, ERROR,
                "what a queue pair serves to its peer is leaked",
                %error, number, count
            );
        }
    }

    /// Schedules the log line of the last work requests, once.
    fn report_requests(&mut self, clock: &mut Clock) {
        let report = self.queues.take_report(clock.now());
        self.after.extend(report.map(|report| Action::LogRequests(Box::new(report))));
    }

    /// Why the connection ends.
    pub(super) fn end_reason(&self) -> CloseReason {
        let reason = self.state.end_reason().cloned();
        // The lane's task ends its connections by itself only where it is dropped.
        reason.unwrap_or_else(rpc_core::transport::task_dropped)
    }
}

/// The time of an event that happens now.
pub(super) fn clock() -> Clock {
    Clock::new(Instant::now)
}

/// The queue pairs are destroyed before anything is freed that the peer could read, whatever the
/// order of the fields and wherever the connection is dropped: a runtime that is shut down drops it
/// in the place of the blocking work that it refuses.
impl Drop for Live {
    fn drop(&mut self) {
        self.destroy();
    }
}
