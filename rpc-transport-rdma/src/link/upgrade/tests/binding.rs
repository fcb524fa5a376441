//! Paths that are bound to a TLS session, and peers that are not its other end.

use rpc_core::connect::{PROOF_LEN, PathBinding};

use super::*;
use crate::proto::connection::CONTROL_SLOT_LEN;

/// Number of attempts that the goal asks for.
const ATTEMPTS: usize = 10_000;

const OURS: [u8; PROOF_LEN] = [1; PROOF_LEN];
const THEIRS: [u8; PROOF_LEN] = [2; PROOF_LEN];

fn bound(rig: &Rig) -> End {
    let mut end = rig.connect();
    end.joined.bind(PathBinding::new(OURS, THEIRS)).unwrap();
    end
}

#[tokio::test]
async fn a_probe_with_the_proof_is_answered_with_ours() {
    let rig = Rig::new();
    let end = bound(&rig);
    end.say(MessageKind::Probe, &THEIRS);
    until("the answer", || !end.sends().is_empty()).await;
    assert!(end.joined.is_probed());
    let (_, answer) = end.sends().remove(0);
    assert_eq!(answer.segment.unwrap().len as usize, CONTROL_SLOT_LEN, "a header and a proof");
}

/// A third queue pair that knows the number, the sequence and the epoch of the path: all but what
/// only the two ends of the TLS session can make.
#[tokio::test]
async fn no_forged_probe_or_answer_proves_a_path() {
    let mut rig = Rig::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut accepted = 0;
    for attempt in 0..ATTEMPTS {
        if attempt % 200 == 0 {
            // A scripted device keeps every request that it was ever given.
            rig = Rig::new();
        }
        let end = bound(&rig);
        let mut forged = THEIRS.to_vec();
        match attempt % 5 {
            // Nothing, as on a path without TLS.
            0 => forged.clear(),
            // What this side has shown.
            1 => forged.copy_from_slice(&OURS),
            // One bit beside it.
            2 => forged[attempt / 5 % PROOF_LEN] ^= 1 << (attempt % 8),
            3 => forged.iter_mut().for_each(|byte| *byte = random().to_le_bytes()[0]),
            // Too short a part of the right one.
            _ => forged.truncate(attempt / 5 % PROOF_LEN),
        }
        let kinds = [MessageKind::Probe, MessageKind::ProbeAnswer];
        end.say(kinds[attempt / 5 % 2], &forged);
        until("the halt", || end.connection().ending.is_cancelled()).await;
        let is_proven = end.connection().proven.is_cancelled();
        accepted += usize::from(end.joined.is_probed() || is_proven);
        end.flush().await;
        drop(end);
        let is_free = || {
            let lane = &rig.upgrade.lanes()[0];
            lane.connection_count == 0 && lane.promised_slots == 0
        };
        until("the end", is_free).await;
    }
    assert_eq!(accepted, 0, "of {ATTEMPTS}");
}

/// A probe that came before the path was bound carried no proof.
#[tokio::test]
async fn a_path_that_was_probed_before_is_not_bound() {
    let rig = Rig::new();
    let mut end = rig.connect();
    end.say(MessageKind::Probe, &[]);
    until("the probe", || end.joined.is_probed()).await;
    let declined = end.joined.bind(PathBinding::new(OURS, THEIRS)).unwrap_err();
    assert!(declined.reason.contains("before the path could be bound"), "{declined}");
}
