//! Lost receives over a scripted device, which fills receives in the order of posting.

use std::collections::HashSet;

use proptest::prelude::*;

use crate::testing::scripted::ScriptedDevice;
use crate::verbs::{
    CompletionQueue, ConnectOptions, Port, QueuePair, QueuePairConfig, RawCompletion,
    SharedReceiveQueue, SharedReceiveQueueConfig, WorkId,
};

const SLOTS: u16 = 12;

/// A shared receive queue and the queue pairs that are connected to it.
struct Rig {
    sim: ScriptedDevice,
    completions: CompletionQueue,
    receives: SharedReceiveQueue,
    port: Port,
    ends: Vec<End>,
}

/// A queue pair, and the receive that it is filling.
struct End {
    queue_pair: QueuePair,
    held: Option<RawCompletion>,
}

impl Rig {
    fn new() -> Self {
        let sim = ScriptedDevice::new();
        let device = sim.device();
        let completions = CompletionQueue::new(&device, 1000).unwrap();
        let config = SharedReceiveQueueConfig { slot_count: SLOTS, slot_len: 64, tag: 1 };
        let receives = SharedReceiveQueue::new(&completions, &config).unwrap();
        let port = sim.port(&device);
        Self { sim, completions, receives, port, ends: Vec::new() }
    }

    fn begin(&mut self) {
        let config = QueuePairConfig { send_depth: 1, tag: 7, ..Default::default() };
        let attachment = self.receives.attachment();
        let mut queue_pair = QueuePair::new(&attachment, &self.port, &config).unwrap();
        let remote = queue_pair.endpoint();
        queue_pair.connect(&remote, &ConnectOptions::default()).unwrap();
        self.ends.push(End { queue_pair, held: None });
    }

    /// A message begins, if a receive is posted for it.
    fn take(&mut self, index: usize) {
        let end = &mut self.ends[index];
        if end.held.is_none() && self.sim.posted_receives() > 0 {
            end.held = Some(self.sim.take_receive(0, end.queue_pair.number()));
        }
    }

    /// A message is whole.
    fn finish(&mut self, index: usize) {
        if let Some(raw) = self.ends[index].held.take() {
            self.sim.complete(raw);
        }
    }

    fn message(&mut self, index: usize) {
        self.take(index);
        self.finish(index);
    }

    /// A queue pair is destroyed, and what it was filling is never heard of again.
    fn die(&mut self, index: usize) {
        self.ends.swap_remove(index);
    }

    /// Plays one turn of the worker's task.
    fn turn(&mut self) {
        let mut found = Vec::new();
        while self.completions.poll(&mut found).unwrap() > 0 {}
        for completion in found {
            let _ = self.receives.receive(completion, |_| ());
        }
        self.receives.settle();
        self.receives.repost().unwrap();
    }

    fn missing(&self) -> u32 {
        self.receives.attachment().missing_receives()
    }

    /// The slots that a device or a queue still has; a slot that is posted twice is there twice.
    fn present(&self) -> Vec<u16> {
        let position = |work_id| WorkId::from_u64(work_id).position();
        let held = self.ends.iter().filter_map(|end| end.held).map(|raw| raw.work_id);
        let all = self.sim.receive_ids().into_iter().chain(held);
        all.chain(self.sim.completion_ids()).map(position).collect()
    }

    fn check(&self) {
        let present = self.present();
        let distinct: HashSet<_> = present.iter().collect();
        assert_eq!(distinct.len(), present.len(), "a slot is posted twice: {present:?}");
        let lost = usize::from(SLOTS) - present.len() - self.receives.idle_count();
        assert!(self.missing() as usize >= lost, "{lost} lost, {} missing", self.missing());
    }
}

#[test]
fn a_receive_that_died_with_its_queue_pair_is_posted_again() {
    let mut rig = Rig::new();
    (0..2).for_each(|_| rig.begin());
    rig.take(0);
    rig.die(0);
    rig.turn();
    assert_eq!((rig.missing(), rig.sim.posted_receives()), (1, 11), "nothing has come since");
    rig.message(0);
    rig.turn();
    assert_eq!((rig.missing(), rig.sim.posted_receives()), (1, 12), "it may be from before");
    rig.message(0);
    rig.turn();
    assert_eq!((rig.missing(), rig.sim.posted_receives()), (0, 12));
    assert_eq!(rig.receives.reclaimed_count(), 1);
}

#[test]
fn the_first_message_of_a_later_queue_pair_is_enough() {
    let mut rig = Rig::new();
    rig.begin();
    rig.take(0);
    rig.die(0);
    rig.turn();
    rig.begin();
    rig.message(0);
    rig.turn();
    assert_eq!((rig.missing(), rig.sim.posted_receives()), (0, 12));
}

#[test]
fn a_message_that_takes_long_is_not_mistaken_for_a_lost_one() {
    let mut rig = Rig::new();
    (0..3).for_each(|_| rig.begin());
    rig.take(0);
    rig.take(1);
    rig.die(1);
    for _ in 0..3 {
        rig.message(1);
        rig.turn();
        rig.check();
    }
    assert_eq!(rig.missing(), 2, "one is lost, and it is not known which");
    rig.finish(0);
    rig.turn();
    rig.message(0);
    rig.turn();
    rig.message(0);
    rig.turn();
    assert_eq!((rig.missing(), rig.sim.posted_receives()), (0, 12));
}

#[test]
fn a_late_completion_of_a_lost_receive_frees_nothing() {
    let mut rig = Rig::new();
    rig.begin();
    rig.take(0);
    let late = rig.ends[0].held.unwrap();
    rig.die(0);
    rig.turn();
    rig.begin();
    rig.message(0);
    rig.turn();
    assert_eq!(rig.sim.posted_receives(), 12);
    rig.sim.complete(late);
    rig.turn();
    assert_eq!((rig.receives.idle_count(), rig.sim.posted_receives()), (0, 12));
}

#[test]
fn without_deaths_nothing_is_judged() {
    let mut rig = Rig::new();
    rig.begin();
    for _ in 0..100 {
        rig.message(0);
        rig.turn();
        assert!(rig.receives.is_certain());
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Begin,
    Take(usize),
    Finish(usize),
    Die(usize),
    /// A driver throws out what the queue pair has completed.
    Purge(usize),
    Turn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => Just(Step::Begin),
        4 => any::<usize>().prop_map(Step::Take),
        3 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::Die),
        1 => any::<usize>().prop_map(Step::Purge),
        3 => Just(Step::Turn),
    ];
    prop::collection::vec(step, 0..300)
}

proptest! {
    /// Whatever queue pairs do and however they die: no slot is ever posted that the device has,
    /// and at least as many count as missing as are; and once others have spoken, all are back.
    #[test]
    fn slots_are_neither_lost_unnoticed_nor_posted_twice(steps in steps()) {
        let mut rig = Rig::new();
        rig.begin();
        for step in steps {
            let pick = |index: usize| index % rig.ends.len().max(1);
            let count = rig.ends.len();
            match step {
                Step::Begin if count < 4 => rig.begin(),
                Step::Take(index) if count > 0 => rig.take(pick(index)),
                Step::Finish(index) if count > 0 => rig.finish(pick(index)),
                Step::Die(index) if count > 0 => rig.die(pick(index)),
                Step::Purge(index) if count > 0 => {
                    let index = pick(index);
                    // The worker polls before it destroys, so that one receive at most is lost.
                    rig.turn();
                    rig.finish(index);
                    rig.sim.purge(rig.ends[index].queue_pair.number());
                    rig.die(index);
                }
                Step::Turn => rig.turn(),
                _ => {}
            }
            rig.check();
        }
        while !rig.ends.is_empty() {
            rig.die(0);
        }
        rig.turn();
        rig.begin();
        if rig.sim.posted_receives() > 0 {
            rig.message(0);
            rig.turn();
            prop_assert_eq!((rig.missing(), rig.sim.posted_receives()), (0, usize::from(SLOTS)));
            prop_assert!(rig.receives.is_certain());
        }
    }
}
