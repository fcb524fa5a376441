//! The proof of a whole path, message by message.

use super::*;
use crate::proto::wire::MessageKind::ProbeAnswer;

const TRANSFER: u32 = 3;

/// A side that proves fully, and has neither probed nor been probed.
fn alone() -> Alone {
    Alone::with(|rules| rules.proves_fully = true)
}

/// The same, as a server that was probed.
fn probed() -> Alone {
    let mut alone = alone();
    alone.say(MessageKind::Probe, &[]);
    assert_eq!(alone.sent(), [Out::Message(ProbeAnswer)]);
    alone.complete_all();
    alone
}

/// The peer's part of the proof comes, `len` bytes behind its head.
fn say_proof(alone: &mut Alone, len: u64) {
    let memory = RemoteMemory { address: 4096, key: PEER_KEY };
    let offer = Rts { head: vec![0; PROOF_HEAD_LEN], segments: vec![RtsSegment { memory, len }] };
    let mut body = [0; RTS_LEN_MAX];
    let body_len = offer.write(&mut body);
    alone.say(MessageKind::Proof { transfer: TRANSFER }, &body[..body_len]);
}

/// The device reads all that is due.
fn read_all(alone: &mut Alone) {
    alone.give_memory();
    while !alone.sent().is_empty() {
        alone.complete_all();
    }
}

#[test]
fn a_frame_may_have_the_number_of_the_ended_proof() {
    let mut alone = probed();
    say_proof(&mut alone, 500);
    read_all(&mut alone);
    assert!(matches!(alone.state.poll_delivery(), Some(Arrival::Proof { count: 1, .. })));
    alone.handle(Event::ProofChecked { is_good: true });
    read_all(&mut alone);
    alone.handle(Event::Open);
    for _ in 0..2 {
        alone.grant(1);
        alone.accept(TRANSFER, 500, None);
        read_all(&mut alone);
        assert!(matches!(alone.state.poll_delivery(), Some(Arrival::Large(_))));
    }
    // The handler learns of a frame that the peer cancels.
    alone.accept(TRANSFER, 500, None);
    alone.actions();
    alone.handle(Event::Cancelled { transfer: TRANSFER });
    assert!(matches!(alone.actions()[..], [Action::Withhold { .. }]));
    assert_eq!(alone.end(), None);
}

#[test]
fn a_proof_before_the_probe_is_a_violation() {
    for is_bound in [false, true] {
        let mut alone = alone();
        if is_bound {
            assert!(alone.state.bind(PathBinding::new([1; PROOF_LEN], [2; PROOF_LEN])));
        }
        alone.handle(Event::Probe);
        alone.sent();
        say_proof(&mut alone, 500);
        assert!(alone.has_violation(), "{is_bound}");
    }
}

#[test]
fn a_second_proof_is_a_violation() {
    let mut alone = probed();
    say_proof(&mut alone, 500);
    assert_eq!(alone.end(), None);
    say_proof(&mut alone, 500);
    assert!(alone.has_violation());
}

#[test]
fn a_proof_stopped_amid_its_reads_concerns_no_handler() {
    let mut alone = probed();
    say_proof(&mut alone, 2500);
    alone.handle(Event::Open);
    alone.give_memory();
    assert_eq!(alone.sent().len(), 2, "as many READs as there may be");
    alone.actions();
    alone.handle(Event::Cancelled { transfer: TRANSFER });
    alone.complete_all();
    let release = MessageKind::Ats { transfer: TRANSFER, outcome: AtsStatus::Stopped };
    assert!(alone.sent().contains(&Out::Message(release)));
    assert!(!alone.actions().iter().any(|action| matches!(action, Action::Withhold { .. })));
    assert_eq!((alone.deliveries(), alone.cancellations.snapshot().pulls_stopped), (0, 0));
}

#[test]
fn a_proof_without_memory_is_refused_in_its_own_time() {
    let mut alone = probed();
    say_proof(&mut alone, 500);
    assert_eq!(alone.left(), Some(PROOF_MEMORY_TIMEOUT));
    alone.time_out();
    let release = MessageKind::Ats { transfer: TRANSFER, outcome: AtsStatus::Refused };
    assert_eq!(alone.sent()[..1], [Out::Message(release)]);
    assert_eq!((alone.state.proof_stage(), alone.end()), (ProofStage::NoMemory, None));
}

#[test]
fn a_server_without_memory_for_its_part_tells_the_client() {
    let cancel = MessageKind::Cancel { transfer: 0 };
    let mut server = probed();
    server.handle(Event::NoProof("no memory".into()));
    assert!(server.sent().contains(&Out::Message(cancel)));
    assert_eq!(server.end(), None);

    let mut client = alone();
    client.handle(Event::Probe);
    client.sent();
    client.say(ProbeAnswer, &[]);
    assert!(matches!(client.actions()[..], [Action::OfferProof]));
    let (slot, permit) = (Slot::new(&client.books, 256), Token::new(&client.books));
    let payload = OfferedFrame::proof(&client.books);
    client.send(Outgoing::Rts { payload, slot, permit, call: 0, is_given_up: false });
    let [Out::Message(MessageKind::Proof { transfer })] = client.sent()[..] else { panic!() };
    client.complete_all();
    assert_eq!(client.state.proof_stage(), ProofStage::PeerReads);
    client.say(MessageKind::Ats { transfer, outcome: AtsStatus::Read }, &[]);
    assert_eq!((client.state.proof_stage(), client.end()), (ProofStage::PeerMessage, None));
    client.sent();
    client.say(cancel, &[]);
    assert_eq!(client.state.proof_stage(), ProofStage::NoMemory);
    assert!(matches!(client.end(), Some(CloseReason::Failed(_))));
}
