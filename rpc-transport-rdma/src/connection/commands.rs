//! The firmware commands of a connection: what it asks of its device's command threads, and what
//! their results change.
//!
//! A result comes on the command's thread, which takes the connection's lock for it as a sender
//! does. A command is never withdrawn: one whose connection has ended meanwhile disposes of its
//! result there.
//!
//! # Order at the end
//!
//! A queue pair that is being halted is owned by its command, and nothing destroys it before it is
//! back. Its windows are deallocated, and its destruction is asked for, in the bulk queue, in the
//! order in which the connection's lock was held: a queue pair is destroyed after its windows.

use std::sync::Arc;

use rpc_core::Reason;
use rpc_core::transport::CloseReason;

use super::{Connection, Life};
use crate::connection::buffers::Event;
use crate::connection::live::{Live, clock};
use crate::lane::Command;
use crate::sys::provider::RawMemoryWindow;
use crate::sys::provider::commands::{CommandQueue, Commands};
use crate::verbs::{Binding, FirmwareCommand, HaltingQueuePair, VerbsError};

impl Connection {
    fn commands(&self) -> &Commands {
        self.worker.attachment.device().commands()
    }

    fn serve(&self, queue: &CommandQueue) {
        // The task that it wakes, or spawns where the device is simulated, may wait for the lane's
        // thread.
        self.worker.note_woken();
        queue.serve(&self.worker.runtime);
    }

    /// Allocates memory windows on a command thread. The state gets each as an event of its own.
    pub(super) fn allocate_windows(self: &Arc<Self>, count: usize) {
        let bulk = &self.commands().bulk;
        for _ in 0..count {
            let this = Arc::clone(self);
            bulk.push(FirmwareCommand::AllocateWindow, move || {
                let raw = this.worker.attachment.device().raw().allocate_window();
                this.handle_window(raw);
            });
        }
        self.serve(bulk);
    }

    fn handle_window(self: &Arc<Self>, raw: Result<Box<dyn RawMemoryWindow>, VerbsError>) {
        // What a connection that ends does not take is deallocated here, after its lock is
        // released.
        let mut raw = Some(raw);
        let _ = self.with_live(|live, clock| {
            let Some(raw) = raw.take() else { return };
            let window = raw.map(|raw| live.queues.adopt_window(raw));
            let window = window.map_err(|error| Reason::new(error.to_string(), error));
            live.state.handle(Event::MemoryWindow(window), clock);
        });
    }

    /// Takes the key of a window away from the peer by deallocating the window.
    pub(super) fn revoke(self: &Arc<Self>, binding: Binding) {
        let bulk = &self.commands().bulk;
        // One that has ended meanwhile does so with all its windows.
        if let Life::Alive(live) = &mut *self.life() {
            let raw = live.queues.detach_window(&binding);
            let this = Arc::clone(self);
            // Under the lock, and so before the queue pair's destruction.
            bulk.push(FirmwareCommand::DeallocateWindow, move || {
                let key = binding.remote().key;
                let revoked = raw.map_or(Ok(()), RawMemoryWindow::deallocate);
                // Not before: a region that a window is bound to cannot be deregistered.
                drop(binding);
                match revoked {
                    Ok(()) => this.handle(Event::Revoked(key)),
                    // The peer may go on reading what the key opens, which stays until the queue
                    // pair is destroyed.
                    Err(error) => this.fail(CloseReason::Failed(Reason::new(
                        format!("cannot take memory away from the peer: {error}"),
                        error,
                    ))),
                }
            });
        }
        self.serve(bulk);
    }

    /// Moves the queue pairs to the error state that the state has stopped to use.
    pub(super) fn halt(self: &Arc<Self>) {
        let halting = match &mut *self.life() {
            Life::Alive(live) => std::mem::take(&mut live.halting),
            Life::Ended { .. } => return,
        };
        let this = Arc::clone(self);
        let urgent = &self.commands().urgent;
        urgent.push(FirmwareCommand::ModifyQueuePair, move || {
            let halted = halting.into_iter().map(HaltingQueuePair::carry_out).collect();
            this.handle_halted(halted);
        });
        self.serve(urgent);
    }

    fn handle_halted(self: &Arc<Self>, halted: Vec<HaltingQueuePair>) {
        let actions = match &mut *self.life() {
            Life::Alive(live) => {
                let mut clock = clock();
                live.queues.finish_halt(halted);
                live.state.handle(Event::Halted, &mut clock);
                live.obey(&mut clock);
                self.arm(live);
                std::mem::take(&mut live.after)
            }
            Life::Ended { halting, .. } => {
                if let Some(mut live) = halting.take() {
                    live.queues.finish_halt(halted);
                    self.push_destruction(live);
                }
                Vec::new()
            }
        };
        self.serve(&self.commands().bulk);
        self.carry_out(actions);
        // Queue pairs that had nothing in flight are drained at once, or cannot be halted.
        self.worker.send(Command::Check(Arc::clone(self)));
    }

    /// Pushes the destruction of the queue pairs of a connection that has ended, and then of what
    /// the peer could read. The caller holds the lock, and serves the queue when it has
    /// released it.
    pub(super) fn push_destruction(&self, mut live: Box<Live>) {
        let ended = self.ended.clone().drop_guard();
        let device = self.worker.attachment.device().clone();
        let runtime = self.worker.runtime.clone();
        self.commands().bulk.push(FirmwareCommand::DestroyQueuePair, move || {
            live.destroy();
            device.commands().release(&runtime, (live, ended));
        });
    }

    pub(super) fn serve_bulk(&self) {
        self.serve(&self.commands().bulk);
    }
}
