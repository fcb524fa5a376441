//! The owner's part of a path's proof: memory for the peer to READ, and the check of what was READ.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use rpc_core::Reason;
use rpc_core::wire::HEADER_LEN;

use super::Connection;
use crate::connection::buffers::{Event, FramePermit, Outgoing, RndvPayload, State};
use crate::connection::proof_plan::{ProofPlan, is_proof, pattern};
use crate::memory::{PoolError, Sink};
use crate::proto::connection::{PROOF_HEAD_LEN, PROOF_MEMORY_TIMEOUT, ProofStage};
use crate::proto::wire::{MESSAGE_HEADER_LEN, RTS_LEN, SEGMENT_LEN};

impl Connection {
    /// Sends our part of the proof, once there is memory for it.
    pub(super) fn offer_proof(self: &Arc<Self>) {
        let this = Arc::clone(self);
        self.worker.runtime.spawn(async move {
            let outgoing = tokio::select! {
                () = this.ending.cancelled() => return,
                outgoing = tokio::time::timeout(PROOF_MEMORY_TIMEOUT, this.proof()) => outgoing,
            };
            let reason = match outgoing {
                // A connection that has ended meanwhile drops it.
                Ok(Ok(outgoing)) => return drop(this.send(outgoing)),
                Ok(Err(error)) => Reason::new(error.to_string(), error),
                Err(_) => {
                    format!("no memory for a path's proof within {PROOF_MEMORY_TIMEOUT:?}").into()
                }
            };
            this.handle(Event::NoProof(reason));
        });
    }

    async fn proof(&self) -> Result<Outgoing, PoolError> {
        let ProofPlan { queues, read_len, .. } = self.proof_plan;
        // In the order of contention, as other messages: no slot is held while waiting.
        let mut buffer = self.sources.take(read_len).await?;
        let permit = Arc::clone(&self.frames).acquire_owned().await;
        let permit = permit.map_err(|_| PoolError::Exhausted { len: read_len, bytes_max: 0 })?;
        let permit = FramePermit::new(permit, None);
        let mut slot = self.worker.send_slots.take().await;
        let seed = RandomState::new().build_hasher().finish();
        buffer.iter_mut().zip(pattern(seed)).for_each(|(byte, value)| *byte = value);
        // The slot may have an earlier message of another connection.
        let head_len = self.frame_len_max - RTS_LEN - queues * SEGMENT_LEN;
        let head = &mut slot[MESSAGE_HEADER_LEN..][..head_len];
        head.fill(0);
        head[HEADER_LEN..PROOF_HEAD_LEN].copy_from_slice(&seed.to_le_bytes());
        let payload = RndvPayload::Proof { buffer, head_len, queues };
        Ok(Outgoing::Rts { payload, slot, permit, call: 0, is_given_up: false })
    }

    /// Checks what was READ of the peer's part.
    pub(super) fn check_proof(self: &Arc<Self>, sink: Arc<Sink>, head_len: usize, count: usize) {
        // The last READ that filled it gave it back, and the state has no other handle.
        let Some(sink) = Arc::into_inner(sink) else { return };
        let is_good = !self.proof_plan.is_content_checked
            || is_proof(&sink.into_buffer(), head_len, count).unwrap_or(false);
        self.handle(Event::ProofChecked { is_good });
    }

    /// Returns what the path has not carried yet.
    pub(crate) fn proof_stage(&self) -> ProofStage {
        let stage = self.look(State::proof_stage);
        stage.or_else(|| self.last_stage.get().copied()).unwrap_or(ProofStage::Probe)
    }
}
