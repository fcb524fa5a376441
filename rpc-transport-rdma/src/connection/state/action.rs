//! What a connection asks of its owner: everything that must not happen under its lock.

use rpc_core::transport::Withheld;
use rpc_core::wire::HEADER_LEN;

use super::ConnectionState;
use crate::connection::rndv_payload::RndvPayload;
use crate::fair::semaphore::PeerShare;

/// Something that has to happen once the connection's lock is released. Dropping memory that was
/// lent may run code of the application, and most of the others take the lock again.
#[derive(Debug)]
pub(crate) enum Action {
    /// Drop memory that the peer is done with.
    Free(RndvPayload),
    /// Wait for room for so many bytes of READs, and then [grant](ConnectionState::grant_read) it.
    TakeTurn { share: PeerShare, len: u32 },
    /// Take memory for the transfers that are due, until [`ConnectionState::next_due`] gives none.
    TakeMemory,
    /// Tell the handler of an announced frame that will not come.
    Withhold { prefix: [u8; HEADER_LEN], reason: Withheld },
    /// Log that something waits for credit.
    LogStall(String),
    /// Look whether everything in flight has come back.
    CheckDrained,
    /// Destroy the queue pairs although they do not drain.
    Destroy,
}

impl ConnectionState {
    /// The actions since this was last called, in the order in which they have to happen.
    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        if !self.is_taking && self.rndv_get.has_due() {
            self.is_taking = true;
            self.actions.push(Action::TakeMemory);
        }
        if let Some((share, len)) = self.read_throttle.take_wait() {
            self.actions.push(Action::TakeTurn { share, len });
        }
        std::mem::take(&mut self.actions)
    }

    /// Has memory dropped that the peer is done with.
    pub(super) fn free(&mut self, memory: impl IntoIterator<Item = RndvPayload>) {
        self.actions.extend(memory.into_iter().map(Action::Free));
    }
}
