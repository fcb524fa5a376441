//! Parameters of a path's proof, and the bytes that it carries.

use rpc_core::wire::HEADER_LEN;

use crate::RdmaConfig;
use crate::config::MAX_READ_QUEUE_PAIRS;
use crate::proto::connection::PROOF_HEAD_LEN;
use crate::proto::endpoint::Mtu;

/// Parameters of a path's proof.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProofPlan {
    /// Queue pairs that carry READs.
    pub(super) queues: usize,
    /// Bytes that each of them reads.
    pub(super) read_len: usize,
    /// False on a device whose READs are known to complete short, which the settings allow.
    pub(super) is_content_checked: bool,
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

/// Returns true if `frame` has a head of `head_len` bytes and then `count` times what its seed
/// gives. `None` if it is too short to.
pub(super) fn is_proof(frame: &[u8], head_len: usize, count: usize) -> Option<bool> {
    let (head, body) = frame.split_at_checked(head_len)?;
    let seed = head.get(HEADER_LEN..PROOF_HEAD_LEN)?.try_into().ok()?;
    let mut parts = body.chunks(body.len().div_ceil(count.max(1)).max(1));
    let is_expected =
        |part: &[u8]| part.iter().copied().eq(pattern(u64::from_le_bytes(seed)).take(part.len()));
    Some(parts.all(is_expected))
}

/// Bytes that look random, of which no two packets are equal (xorshift64).
pub(super) fn pattern(seed: u64) -> impl Iterator<Item = u8> {
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
