//! One end of a connection: its window, and what waits to be sent with it.
//!
//! An end sends in the order of a connection's path: frames, then returns, reclaims and pure
//! grants.

use tokio::time::Instant;

use crate::proto::clock::Clock;
use crate::proto::flow::window::FlowWindow;
use crate::proto::wire::{Grant, MessageKind};

/// Number of frames that never decreases: its sender is greedy.
pub(super) const ENDLESS: u32 = u32::MAX;

/// A message in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    kind: MessageKind,
    grant: Grant,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    window: FlowWindow,
    /// Frames that wait.
    frames: u32,
}

/// Why a rule that is checked of peers holds here.
const HONEST: &str = "both ends are ours and keep the rules of credit";

impl End {
    pub(super) fn new(window: FlowWindow) -> Self {
        Self { window, frames: 0 }
    }

    pub(super) fn window(&self) -> &FlowWindow {
        &self.window
    }

    /// Adds `count` frames to send.
    pub(super) fn add_frames(&mut self, count: u32) {
        self.frames = self.frames.saturating_add(count);
    }

    /// Drops all frames that are not sent yet.
    pub(super) fn stop(&mut self) {
        self.frames = 0;
    }

    /// Asks the other end for what it does not use.
    pub(super) fn reclaim(&mut self) {
        self.window.reclaim();
    }

    /// Takes a message; true when it is a frame.
    pub(super) fn handle(&mut self, message: Message) -> bool {
        self.window.handle_grant(message.grant).expect(HONEST);
        match message.kind {
            MessageKind::Frame => {
                self.window.handle_message().expect(HONEST);
                return true;
            }
            MessageKind::Reclaim { keep } => self.window.handle_reclaim(keep),
            _ => {}
        }
        self.window.handle_control(message.kind).expect(HONEST);
        false
    }

    /// The next message that may be sent now.
    pub(super) fn next(&mut self) -> Option<Message> {
        if self.frames > 0 && self.window.try_take(&mut Clock::new(Instant::now)) {
            self.frames -= u32::from(self.frames != ENDLESS);
            return Some(self.message(MessageKind::Frame));
        }
        let due = self.window.is_due().then(|| self.window.take_due()).flatten();
        due.map(|kind| self.message(kind))
    }

    fn message(&mut self, kind: MessageKind) -> Message {
        Message { kind, grant: self.window.announce(self.frames as usize) }
    }
}
