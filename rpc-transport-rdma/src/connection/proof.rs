//! The owner's part of a path's proof: memory for the peer to READ, and the check of what was READ.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use rpc_core::Reason;
use rpc_core::wire::HEADER_LEN;

use super::Connection;
use crate::RdmaConfig;
use crate::config::MAX_READ_QUEUE_PAIRS;
use crate::connection::buffers::{Event, Outgoing, RndvPayload, State};
use crate::memory::{PoolError, Sink};
use crate::proto::connection::{PROOF_HEAD_LEN, ProofStage};
use crate::proto::endpoint::Mtu;
use crate::proto::wire::{MESSAGE_HEADER_LEN, RTS_LEN, SEGMENT_LEN};

/// Parameters of a path's proof.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProofPlan {
    /// Queue pairs that carry READs.
    queues: usize,
    /// Bytes that each of them reads.
    read_len: usize,
    /// False on a device whose READs are known to complete short, which the settings allow.
    is_content_checked: bool,
}

/// READs of one queue pair on a path with the largest MTU.
const READ_LEN_MAX: u64 = 3 * 4096 + 17;

/// The shortest READs that a proof is made with.
const READ_LEN_LEAST: u32 = 64;

/// Returns true if the memory for large frames can ever hold both parts of a proof, whatever the
/// peer has. Small budgets are for programs that have no large frames.
pub(crate) fn is_affordable(config: &RdmaConfig) -> bool {
    let sink_len = u64::from(config.slot_len) + u64::from(MAX_READ_QUEUE_PAIRS) * READ_LEN_MAX;
    // Pools hand out whole size classes, which are powers of two.
    let fits = |len: u64, max: u64| len.next_power_of_two() <= max;
    // A READ of a few bytes at a time would not come to the end of a proof within its time.
    let reads_are_few = config.max_read_len >= READ_LEN_LEAST;
    let has_memory =
        fits(READ_LEN_MAX, config.max_source_bytes) && fits(sink_len, config.max_sink_bytes);
    reads_are_few && has_memory
}

impl ProofPlan {
    /// Plans READs of more than three packets on each of `queues`.
    pub(crate) fn new(mtu: Mtu, queues: usize, is_content_checked: bool) -> Self {
        Self { queues, read_len: 3 * usize::from(mtu.bytes()) + 17, is_content_checked }
    }
}

impl Connection {
    /// Sends our part of the proof, once there is memory for it.
    pub(super) fn offer_proof(self: &Arc<Self>) {
        let this = Arc::clone(self);
        self.worker.runtime.spawn(async move {
            let outgoing = tokio::select! {
                () = this.ending.cancelled() => return,
                outgoing = this.proof() => outgoing,
            };
            match outgoing {
                // A connection that has ended meanwhile drops it.
                Ok(outgoing) => drop(this.send(outgoing)),
                Err(error) => {
                    let reason = Reason::new(error.to_string(), error);
                    this.handle(Event::NoProof(reason));
                }
            }
        });
    }

    async fn proof(&self) -> Result<Outgoing, PoolError> {
        let ProofPlan { queues, read_len, .. } = self.proof_plan;
        // In the order of contention, as other messages: no slot is held while waiting.
        let mut buffer = self.sources.take(read_len).await?;
        let permit = Arc::clone(&self.frames).acquire_owned().await;
        let permit = permit.map_err(|_| PoolError::Exhausted { len: read_len, bytes_max: 0 })?;
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

/// Returns true if `frame` has a head of `head_len` bytes and then `count` times what its seed
/// gives. `None` if it is too short to.
fn is_proof(frame: &[u8], head_len: usize, count: usize) -> Option<bool> {
    let (head, body) = frame.split_at_checked(head_len)?;
    let seed = head.get(HEADER_LEN..PROOF_HEAD_LEN)?.try_into().ok()?;
    let mut parts = body.chunks(body.len().div_ceil(count.max(1)).max(1));
    let is_expected =
        |part: &[u8]| part.iter().copied().eq(pattern(u64::from_le_bytes(seed)).take(part.len()));
    Some(parts.all(is_expected))
}

/// Bytes that look random, of which no two packets are equal (xorshift64).
fn pattern(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed | 1;
    let values = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    values.flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_its_seed_and_what_that_gives() {
        let seed = 7_u64;
        let part: Vec<u8> = pattern(seed).take(1000).collect();
        let head = [&[0; HEADER_LEN][..], &seed.to_le_bytes(), &[0; 60]].concat();
        let frame = [&head[..], &part, &part].concat();
        assert_eq!(is_proof(&frame, head.len(), 2), Some(true));
        for at in [HEADER_LEN, head.len(), head.len() + 999, frame.len() - 1] {
            let mut wrong = frame.clone();
            // The lowest bit of a seed is always set.
            wrong[at] ^= 2;
            assert_eq!(is_proof(&wrong, head.len(), 2), Some(false), "byte {at}");
        }
        assert_eq!(is_proof(&frame, frame.len() + 1, 2), None);
        assert_eq!(is_proof(&[], 0, 2), None);
    }
}
