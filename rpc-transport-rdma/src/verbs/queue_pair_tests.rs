//! Queue pairs over a scripted device: what goes in comes back, once, in order.

use std::sync::Arc;

use super::*;
use crate::memory::{Access, LargeBuffer, RegionPool, Sink, SlotPool};
use crate::testing::scripted::ScriptedDevice;
use crate::verbs::{
    CompletionQueue, RawCompletion, RemoteKey, RemoteMemory, SharedReceiveQueue,
    SharedReceiveQueueConfig,
};

/// A connected queue pair of depth 4 and all that it needs.
struct Fixture {
    sim: ScriptedDevice,
    completions: CompletionQueue,
    attachment: Attachment,
    port: Port,
    slots: Arc<SlotPool>,
    sinks: Arc<RegionPool>,
    sources: Arc<RegionPool>,
    queue_pair: QueuePair,
}

const SLOTS: u32 = 16;

impl Fixture {
    fn new() -> Self {
        let sim = ScriptedDevice::new();
        sim.claim_windows();
        let device = sim.device();
        let completions = CompletionQueue::new(&device, 64).unwrap();
        let config = SharedReceiveQueueConfig { slot_count: 2, slot_len: 64, tag: 1 };
        let receives = SharedReceiveQueue::new(&completions, &config).unwrap();
        let attachment = receives.attachment();
        let port = sim.port(&device);
        let queue_pair = connected(&attachment, &port);
        Self {
            completions,
            attachment,
            port,
            slots: SlotPool::new(&device, SLOTS, 64).unwrap(),
            sinks: RegionPool::new(&device, Access::Sink, 1 << 20),
            sources: RegionPool::new(&device, Access::Windowed, 1 << 20),
            queue_pair,
            sim,
        }
    }

    fn send(&self, text: &str) -> Work {
        let mut slot = self.slots.try_take().unwrap();
        slot[..text.len()].copy_from_slice(text.as_bytes());
        Work::Send { slot, len: u32::try_from(text.len()).unwrap(), invalidate: None }
    }

    fn sends(&self, count: usize) -> VecDeque<Work> {
        (0..count).map(|i| self.send(&i.to_string())).collect()
    }

    /// Completes the accepted request at `index` with a status and handles it.
    fn complete(&mut self, index: usize, status: u32) -> Vec<Done> {
        let raw = self.raw_completion(index, status);
        self.sim.complete(raw);
        let mut done = Vec::new();
        let completion = self.poll();
        self.queue_pair.handle_completion(completion, &mut done).unwrap();
        done
    }

    fn raw_completion(&self, index: usize, status: u32) -> RawCompletion {
        let work_id = self.sim.sends()[index].work_id;
        let queue_pair_number = self.queue_pair.number();
        RawCompletion { work_id, status, queue_pair_number, ..Default::default() }
    }

    fn poll(&mut self) -> Completion {
        let mut out = Vec::new();
        assert_eq!(self.completions.poll(&mut out).unwrap(), 1);
        out.remove(0)
    }
}

fn connected(attachment: &Attachment, port: &Port) -> QueuePair {
    let config = QueuePairConfig { send_depth: 4, tag: 7, ..Default::default() };
    let mut queue_pair = QueuePair::new(attachment, port, &config).unwrap();
    let remote = queue_pair.endpoint();
    let agreement = queue_pair.connect(&remote, &ConnectOptions::default()).unwrap();
    assert_eq!(agreement.reads_out, 4, "the least of 16, 8 and 4");
    queue_pair
}

fn texts(done: &[Done]) -> Vec<String> {
    let text = |done: &Done| match &done.work {
        Work::Send { slot, len, .. } => {
            String::from_utf8_lossy(&slot[..*len as usize]).into_owned()
        }
        Work::Read { offset, .. } => format!("read at {offset}"),
        Work::Bind(binding) => format!("bind {binding:?}"),
        Work::Invalidate(binding) => format!("invalidate {binding:?}"),
    };
    done.iter().map(text).collect()
}

#[test]
fn a_batch_is_one_post_and_one_completion() {
    let mut fixture = Fixture::new();
    let mut batch = fixture.sends(3);
    assert_eq!(fixture.queue_pair.post(&mut batch).unwrap(), 3);
    let sends = fixture.sim.sends();
    assert_eq!(fixture.sim.send_calls(), 1);
    assert_eq!(sends.iter().map(|it| it.signaled).collect::<Vec<_>>(), [false, false, true]);
    let done = fixture.complete(2, 0);
    assert_eq!(texts(&done), ["0", "1", "2"]);
    assert!(done.iter().all(|done| done.outcome.is_ok()));
    drop(done);
    assert_eq!(fixture.slots.available(), SLOTS as usize);
}

#[test]
fn what_does_not_fit_waits_in_the_batch() {
    let mut fixture = Fixture::new();
    let mut batch = fixture.sends(6);
    assert_eq!(fixture.queue_pair.post(&mut batch).unwrap(), 4);
    assert_eq!((batch.len(), fixture.queue_pair.room()), (2, 0));
    assert_eq!(fixture.queue_pair.post(&mut batch).unwrap(), 0);
    assert_eq!(fixture.complete(3, 0).len(), 4);
    assert_eq!(fixture.queue_pair.post(&mut batch).unwrap(), 2);
    assert_eq!(texts(&fixture.complete(5, 0)), ["4", "5"]);
}

#[test]
fn short_messages_are_inline_and_long_ones_are_not() {
    let mut fixture = Fixture::new();
    let long = "x".repeat(17);
    let mut batch: VecDeque<_> = ["", "short", &long].map(|text| fixture.send(text)).into();
    fixture.queue_pair.post(&mut batch).unwrap();
    let sends = fixture.sim.sends();
    assert_eq!(sends[0].segment, None);
    assert_eq!(sends.iter().map(|it| it.inline).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn reads_share_a_sink_and_the_last_gives_it_back() {
    let mut fixture = Fixture::new();
    let sink = Arc::new(Sink::new(fixture.sinks.try_take(20).unwrap()));
    let remote = RemoteMemory { address: 0x1000, key: RemoteKey(9) };
    let read = |offset: usize| Work::Read {
        sink: Arc::clone(&sink),
        offset,
        len: 10,
        remote: remote.offset(offset as u64).unwrap(),
    };
    let mut batch = VecDeque::from([read(0), read(10)]);
    drop(sink);
    fixture.queue_pair.post(&mut batch).unwrap();
    for (request, fill) in fixture.sim.sends().iter().zip([b'a', b'b']) {
        fixture.sim.write(request.segment.unwrap(), &[fill; 10]);
    }
    let sinks = fixture.complete(1, 0).into_iter().map(|done| match done.work {
        Work::Read { sink, .. } => sink,
        other => panic!("not a READ: {other:?}"),
    });
    let buffers: Vec<LargeBuffer> =
        sinks.filter_map(Arc::into_inner).map(Sink::into_buffer).collect();
    assert_eq!(buffers.len(), 1);
    assert_eq!(&buffers[0][..], b"aaaaaaaaaabbbbbbbbbb");
}

#[test]
fn a_partial_post_keeps_accepted_work_and_returns_the_rest() {
    let mut fixture = Fixture::new();
    let mut batch = fixture.sends(3);
    fixture.sim.refuse_sends(1, libc::EIO);
    let error = fixture.queue_pair.post(&mut batch).unwrap_err();
    assert!(matches!(error, PostError::Device { accepted: 1, .. }));
    assert_eq!((fixture.queue_pair.in_flight_len(), batch.len()), (1, 2));
    let Some(Work::Send { slot, .. }) = batch.front() else { panic!("no send") };
    assert_eq!(slot[0], b'1', "the rest is in its old order");
    assert!(matches!(fixture.queue_pair.post(&mut batch), Err(PostError::NotReady)));
    fixture.queue_pair.halt().unwrap();
    assert_eq!(texts(&fixture.complete(1, 5)), ["0"]);
    assert!(fixture.queue_pair.is_drained());
}

#[test]
fn a_full_device_queue_is_back_pressure_until_a_completion() {
    let mut fixture = Fixture::new();
    fixture.queue_pair.post(&mut fixture.sends(1)).unwrap();
    let mut batch = fixture.sends(3);
    fixture.sim.refuse_sends(2, libc::ENOMEM);
    assert_eq!(fixture.queue_pair.post(&mut batch).unwrap(), 2);
    assert_eq!((batch.len(), fixture.queue_pair.in_flight_len()), (1, 3));
    assert_eq!(fixture.complete(0, 0).len(), 1);
    assert_eq!(fixture.queue_pair.post(&mut batch).unwrap(), 1);
    assert_eq!(fixture.complete(3, 0).len(), 3);
}

#[test]
fn a_queue_that_is_full_while_it_is_empty_is_an_error() {
    let mut fixture = Fixture::new();
    fixture.sim.refuse_sends(0, libc::ENOMEM);
    let error = fixture.queue_pair.post(&mut fixture.sends(2)).unwrap_err();
    assert!(matches!(error, PostError::Device { accepted: 0, .. }));
}

#[test]
fn a_post_cut_before_its_completion_has_to_be_tried_again() {
    let mut fixture = Fixture::new();
    let mut batch = fixture.sends(3);
    fixture.sim.refuse_sends(2, libc::ENOMEM);
    assert_eq!(fixture.queue_pair.post(&mut batch).unwrap(), 2);
    assert!(!fixture.queue_pair.will_complete());
    assert_eq!(fixture.queue_pair.post(&mut batch).unwrap(), 1);
    assert!(fixture.queue_pair.will_complete());
    assert_eq!(fixture.complete(2, 0).len(), 3);
}

#[test]
fn an_unlocated_post_failure_keeps_all_work_in_flight() {
    let mut fixture = Fixture::new();
    let mut batch = fixture.sends(2);
    fixture.sim.refuse_sends(2, libc::ENOMEM);
    let error = fixture.queue_pair.post(&mut batch).unwrap_err();
    assert!(matches!(error, PostError::Device { accepted: 2, .. }));
    assert_eq!((batch.len(), fixture.queue_pair.in_flight_len()), (0, 2));
}

#[test]
fn an_error_gives_back_everything_as_its_completions_come() {
    let mut fixture = Fixture::new();
    fixture.queue_pair.post(&mut fixture.sends(4)).unwrap();
    let done = fixture.complete(1, 10);
    assert_eq!(done[0].outcome.unwrap_err().status, WorkStatus::Flushed);
    assert_eq!(done[1].outcome.unwrap_err().status, WorkStatus::RemoteAccess);
    assert!(!fixture.queue_pair.is_ready());
    assert_eq!(fixture.complete(3, 5).len(), 2);
    assert_eq!(fixture.queue_pair.in_flight_len(), 0);
    drop(done);
    assert_eq!(fixture.slots.available(), SLOTS as usize);
}

#[test]
fn the_drain_wr_finds_room_behind_a_full_queue_and_drains_it() {
    let mut fixture = Fixture::new();
    fixture.queue_pair.post(&mut fixture.sends(4)).unwrap();
    fixture.queue_pair.halt().unwrap();
    fixture.queue_pair.halt().unwrap();
    assert_eq!((fixture.sim.errors_set(), fixture.sim.sends().len()), (1, 5));
    assert!(!fixture.queue_pair.is_drained());
    let done = fixture.complete(4, 5);
    assert_eq!(done.len(), 4, "the drain WR is not the caller's work");
    assert!(done.iter().all(|done| done.outcome.unwrap_err().is_flush()));
    assert!(fixture.queue_pair.is_drained());
}

#[test]
fn a_halt_that_failed_can_be_tried_again() {
    let mut fixture = Fixture::new();
    fixture.queue_pair.post(&mut fixture.sends(1)).unwrap();
    fixture.sim.refuse_sends(0, libc::ENOMEM);
    assert!(fixture.queue_pair.halt().is_err());
    assert_eq!(fixture.queue_pair.in_flight_len(), 1);
    fixture.queue_pair.halt().unwrap();
    assert_eq!(fixture.complete(1, 5).len(), 1);
    assert!(fixture.queue_pair.is_drained());
}

#[test]
fn a_completion_of_an_older_tag_owner_frees_nothing() {
    let mut fixture = Fixture::new();
    fixture.queue_pair.post(&mut fixture.sends(1)).unwrap();
    let stale = fixture.raw_completion(0, 0);
    fixture.queue_pair = connected(&fixture.attachment, &fixture.port);
    fixture.queue_pair.post(&mut fixture.sends(1)).unwrap();
    let number = fixture.queue_pair.number();
    fixture.sim.complete(RawCompletion { queue_pair_number: number, ..stale });
    let completion = fixture.poll();
    let mut done = Vec::new();
    assert!(fixture.queue_pair.handle_completion(completion, &mut done).is_err());
    assert!(done.is_empty() && fixture.queue_pair.in_flight_len() == 1);
}

#[test]
fn a_completion_that_comes_twice_frees_nothing() {
    let mut fixture = Fixture::new();
    fixture.queue_pair.post(&mut fixture.sends(1)).unwrap();
    assert_eq!(fixture.complete(0, 0).len(), 1);
    fixture.sim.complete(fixture.raw_completion(0, 0));
    let completion = fixture.poll();
    assert!(fixture.queue_pair.handle_completion(completion, &mut Vec::new()).is_err());
}

#[test]
fn an_undrained_drop_destroys_before_freeing_buffers() {
    let mut fixture = Fixture::new();
    fixture.queue_pair.post(&mut fixture.sends(3)).unwrap();
    let Fixture { queue_pair, sim, slots, .. } = fixture;
    drop(queue_pair);
    assert_eq!((sim.errors_set(), sim.destroyed()), (1, 1));
    assert_eq!(slots.available(), SLOTS as usize);
}

#[test]
#[cfg_attr(miri, ignore = "leaks on purpose")]
fn if_it_cannot_be_destroyed_its_buffers_are_leaked() {
    let mut fixture = Fixture::new();
    fixture.queue_pair.post(&mut fixture.sends(3)).unwrap();
    let Fixture { queue_pair, sim, slots, .. } = fixture;
    sim.fail_destroying();
    drop(queue_pair);
    assert_eq!(slots.available(), SLOTS as usize - 3);
}

#[test]
fn never_connected_it_is_drained_at_once() {
    let fixture = Fixture::new();
    let config = QueuePairConfig { send_depth: 4, ..Default::default() };
    let mut queue_pair = QueuePair::new(&fixture.attachment, &fixture.port, &config).unwrap();
    let mut batch = fixture.sends(1);
    assert!(matches!(queue_pair.post(&mut batch), Err(PostError::NotReady)));
    assert_eq!(batch.len(), 1);
    queue_pair.halt().unwrap();
    assert!(queue_pair.is_drained());
}

#[test]
fn work_that_cannot_be_is_refused_before_anything_is_posted() {
    let mut fixture = Fixture::new();
    let sink = Arc::new(Sink::new(fixture.sinks.try_take(20).unwrap()));
    let remote = RemoteMemory { address: 0, key: RemoteKey(0) };
    for (offset, len) in [(0, 21), (20, 1), (usize::MAX, 2), (0, 0)] {
        let read = Work::Read { sink: Arc::clone(&sink), offset, len, remote };
        let mut batch = VecDeque::from([fixture.send("fine"), read]);
        let error = fixture.queue_pair.post(&mut batch).unwrap_err();
        assert!(matches!(error, PostError::Invalid { index: 1, .. }), "{error}");
        assert_eq!((batch.len(), fixture.sim.send_calls()), (2, 0));
    }
    let slot = fixture.slots.try_take().unwrap();
    let mut batch = VecDeque::from([Work::Send { slot, len: 65, invalidate: None }]);
    assert!(matches!(fixture.queue_pair.post(&mut batch), Err(PostError::Invalid { .. })));
}

#[test]
fn a_queue_pair_without_completion_room_is_refused() {
    let mut fixture = Fixture::new();
    let config = QueuePairConfig { send_depth: 60, ..Default::default() };
    let error = QueuePair::new(&fixture.attachment, &fixture.port, &config).unwrap_err();
    assert!(matches!(error, VerbsError::CompletionQueueFull { wanted: 61, free: 57, .. }));
    let config = QueuePairConfig { send_depth: 56, ..config };
    let new = || QueuePair::new(&fixture.attachment, &fixture.port, &config);
    // Nothing can have completed of one that was never connected.
    drop(new().unwrap());
    let mut connected = new().unwrap();
    connected.connect(&fixture.queue_pair.endpoint(), &ConnectOptions::default()).unwrap();
    drop(connected);
    assert!(new().is_err());
    assert_eq!(fixture.completions.poll(&mut Vec::new()).unwrap(), 0);
    QueuePair::new(&fixture.attachment, &fixture.port, &config).unwrap();
}

#[test]
fn the_largest_and_the_least_depth_are_checked() {
    let fixture = Fixture::new();
    for send_depth in [0, 1000, u32::MAX] {
        let config = QueuePairConfig { send_depth, ..Default::default() };
        let error = QueuePair::new(&fixture.attachment, &fixture.port, &config).unwrap_err();
        assert!(matches!(error, VerbsError::LimitExceeded { what: "send depth", .. }));
    }
}

#[test]
fn queues_move_between_threads_and_what_makes_them_is_shared() {
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_send::<QueuePair>();
    is_send::<CompletionQueue>();
    is_send::<SharedReceiveQueue>();
    is_send::<Done>();
    is_shared::<Attachment>();
    is_shared::<Port>();
    is_shared::<Arc<SlotPool>>();
    is_shared::<Arc<RegionPool>>();
    is_shared::<LargeBuffer>();
}

/// A binding of a new window to a new buffer.
fn binding(fixture: &mut Fixture) -> (Binding, LargeBuffer) {
    let buffer = fixture.sources.try_take(10_000).unwrap();
    let window = fixture.queue_pair.allocate_window().unwrap();
    (buffer.bind(window), buffer)
}

fn only_binding(done: Vec<Done>) -> Binding {
    let [Done { work: Work::Bind(binding) | Work::Invalidate(binding), .. }] =
        <[Done; 1]>::try_from(done).unwrap()
    else {
        panic!("no binding")
    };
    binding
}

#[test]
fn a_bind_goes_out_with_the_message_behind_it_in_one_post() {
    let mut fixture = Fixture::new();
    let (bind, buffer) = binding(&mut fixture);
    let remote = bind.remote();
    let mut batch = VecDeque::from([Work::Bind(bind), fixture.send("offer")]);
    assert_eq!(fixture.queue_pair.post(&mut batch).unwrap(), 2);
    assert_eq!((fixture.sim.send_calls(), fixture.queue_pair.room()), (1, 2));
    let [bind, send] = fixture.sim.sends().try_into().unwrap();
    let RawOperation::Bind(raw) = bind.operation else { panic!("{bind:?}") };
    assert_eq!((raw.key, raw.address, raw.len), (remote.key, remote.address, 10_000));
    assert_eq!((bind.segment, bind.signaled, send.signaled), (None, false, true));
    let done = fixture.complete(1, 0);
    assert_eq!(done.len(), 2);
    drop(buffer);
}

#[test]
fn a_key_dies_by_an_invalidation_and_the_next_is_another() {
    let mut fixture = Fixture::new();
    let (bind, buffer) = binding(&mut fixture);
    let first = bind.remote().key;
    fixture.queue_pair.post(&mut VecDeque::from([Work::Bind(bind)])).unwrap();
    let bound = only_binding(fixture.complete(0, 0));
    let bound = bound.into_window().expect_err("the peer can read through it");
    fixture.queue_pair.post(&mut VecDeque::from([Work::Invalidate(bound)])).unwrap();
    assert_eq!(fixture.sim.sends()[1].operation, RawOperation::Invalidate(first));
    let dead = only_binding(fixture.complete(1, 0));
    let window = dead.into_window().expect("the key is dead");
    let second = buffer.bind(window).remote().key;
    assert_eq!((first.0 & 0xff, second.0 & 0xff), (0xff, 0), "the low byte wraps");
    assert_eq!(first.0 >> 8, second.0 >> 8);
}

#[test]
fn a_message_of_the_peer_takes_a_key_away_and_only_its_own() {
    let mut fixture = Fixture::new();
    let (bind, _buffer) = binding(&mut fixture);
    let key = bind.remote().key;
    let mut unbound = bind;
    assert!(!unbound.handle_invalidated(key), "it is not bound yet");
    fixture.queue_pair.post(&mut VecDeque::from([Work::Bind(unbound)])).unwrap();
    let mut bound = only_binding(fixture.complete(0, 0));
    assert!(!bound.handle_invalidated(RemoteKey(key.0 ^ 1)));
    let number = fixture.queue_pair.number();
    let raw = fixture.sim.take_receive(0, number);
    fixture.sim.complete(RawCompletion { invalidated_key: Some(key), ..raw });
    let taken = fixture.poll().invalidated_key().expect("the device says so");
    assert!(bound.handle_invalidated(taken));
    assert!(!bound.handle_invalidated(taken), "a key dies once");
    assert!(bound.into_window().is_ok());
}

#[test]
fn a_message_can_take_a_key_of_the_peer_away() {
    let mut fixture = Fixture::new();
    let Work::Send { slot, len, .. } = fixture.send("done") else { panic!("no send") };
    let invalidate = Some(RemoteKey(77));
    let mut batch = VecDeque::from([Work::Send { slot, len, invalidate }]);
    fixture.queue_pair.post(&mut batch).unwrap();
    let operation = fixture.sim.sends()[0].operation;
    assert_eq!(operation, RawOperation::SendInvalidate(RemoteKey(77)));
}

#[test]
fn unusable_windows_are_refused_before_any_post() {
    let mut fixture = Fixture::new();
    let (unbound, buffer) = binding(&mut fixture);
    let mut other = connected(&fixture.attachment, &fixture.port);
    let foreign = buffer.bind(other.allocate_window().unwrap());
    let device = ScriptedDevice::new().device();
    let elsewhere = RegionPool::new(&device, Access::Windowed, 1 << 20).try_take(10).unwrap();
    let abroad = elsewhere.bind(fixture.queue_pair.allocate_window().unwrap());
    let cases = [
        (Work::Invalidate(unbound), "not bound"),
        (Work::Bind(foreign), "another queue pair"),
        (Work::Bind(abroad), "another device"),
    ];
    for (work, text) in cases {
        let error = fixture.queue_pair.post(&mut VecDeque::from([work])).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(fixture.sim.send_calls(), 0);
}

#[test]
fn windows_are_gone_before_their_queue_pair_wherever_they_are() {
    let mut fixture = Fixture::new();
    let bindings: Vec<_> = (0..3).map(|_| binding(&mut fixture)).collect();
    let (bindings, buffers): (Vec<_>, Vec<_>) = bindings.into_iter().unzip();
    let mut bindings = bindings.into_iter();
    let first = VecDeque::from([Work::Bind(bindings.next().unwrap())]);
    fixture.queue_pair.post(&mut { first }).unwrap();
    let bound = only_binding(fixture.complete(0, 0));
    let second = VecDeque::from([Work::Bind(bindings.next().unwrap())]);
    fixture.queue_pair.post(&mut { second }).unwrap();
    let Fixture { queue_pair, sim, sources, .. } = fixture;
    assert_eq!(sim.windows(), 3, "bound, being bound and unbound");
    drop(queue_pair);
    assert_eq!((sim.destroyed(), sim.windows(), sim.windows_at_destruction()), (1, 0, 0));
    drop((bound, bindings, buffers));
    assert_eq!(sources.bytes_in_use(), 0);
}

#[test]
fn a_window_can_be_deallocated_while_it_is_bound() {
    let mut fixture = Fixture::new();
    let (bind, _buffer) = binding(&mut fixture);
    fixture.queue_pair.post(&mut VecDeque::from([Work::Bind(bind)])).unwrap();
    let bound = only_binding(fixture.complete(0, 0));
    fixture.queue_pair.deallocate_window(bound).unwrap();
    assert_eq!(fixture.sim.windows(), 0);
}

#[test]
fn a_binding_keeps_its_region_registered() {
    let mut fixture = Fixture::new();
    let (bind, buffer) = binding(&mut fixture);
    let before = fixture.sim.registered_bytes();
    drop(buffer);
    // The whole budget in one buffer leaves no room for the cached one.
    let large = fixture.sources.try_take(1 << 20).unwrap();
    assert_eq!(fixture.sim.registered_bytes(), before + (1 << 20));
    drop(bind);
    drop(large);
    assert!(fixture.sim.registered_bytes() < before + (1 << 20));
}
