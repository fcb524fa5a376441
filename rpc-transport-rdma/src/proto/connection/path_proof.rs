//! The steps of a path's proof, and both sides' parts of it.

use std::time::Duration;

use rpc_core::wire::HEADER_LEN;

/// The shortest head of a proof: a frame's header, and the seed of what can be read.
pub(crate) const PROOF_HEAD_LEN: usize = HEADER_LEN + 8;

/// Maximum wait of one end for the memory of one part of a proof. There are four such waits, and
/// all of them fit the time of a proof, so that want of memory is never taken for a lost packet.
pub(crate) const PROOF_MEMORY_TIMEOUT: Duration = Duration::from_millis(700);

/// The step of a proof that comes next, or why none will. The order is that of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProofStage {
    /// A probe and its answer.
    Probe,
    /// Our message that fills a slot.
    Message,
    /// The peer's READs from here.
    PeerReads,
    /// The peer's message that fills a slot.
    PeerMessage,
    /// Our READs.
    Reads,
    /// Nothing: it is proven.
    Done,
    /// An end has no memory for the proof, which says nothing of the path.
    NoMemory,
    /// A READ brought wrong bytes.
    WrongBytes,
}

/// The proof of one path.
#[derive(Debug)]
pub(super) struct PathProof {
    pub(super) stage: ProofStage,
    /// Set once the owner was asked for our part.
    pub(super) is_offered: bool,
    /// The transfer of our part, once it has gone out.
    pub(super) ours: Option<u32>,
    /// Set if the peer has read it.
    pub(super) is_released: bool,
    pub(super) theirs: Option<TheirProof>,
}

/// The peer's part.
#[derive(Debug)]
pub(super) struct TheirProof {
    pub(super) transfer: u32,
    /// Length of its head, and number of the parts behind that. Taken with what was read: frames
    /// come under the same number later.
    pub(super) shape: Option<(usize, usize)>,
    /// Set if what was read is right.
    pub(super) is_checked: bool,
}

impl PathProof {
    pub(super) fn new() -> Self {
        let stage = ProofStage::Probe;
        Self { stage, is_offered: false, ours: None, is_released: false, theirs: None }
    }

    /// Records that our part goes out under `transfer`.
    pub(super) fn handle_offered(&mut self, transfer: u32) {
        self.ours = Some(transfer);
    }

    /// Records that the peer's device has a message. Nothing but the proof goes out before the
    /// path is proven.
    pub(super) fn handle_sent(&mut self) {
        if self.stage == ProofStage::Message && self.ours.is_some() {
            self.stage = ProofStage::PeerReads;
        }
    }

    /// Returns the length of the head of the peer's part, and the number of equal parts behind it,
    /// once. `None` for any other transfer.
    pub(super) fn take_shape(&mut self, transfer: u32) -> Option<(usize, usize)> {
        let theirs = self.theirs.as_mut().filter(|theirs| theirs.transfer == transfer)?;
        theirs.shape.take()
    }
}
