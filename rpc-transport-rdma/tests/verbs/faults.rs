//! Faults of simulated devices, as the queues above them see them. Time is tokio's, and paused.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rpc_transport_rdma::memory::Sink;
use rpc_transport_rdma::sim::{SimCensus, SimDevice, SimFaults, SimNetwork, lab};
use rpc_transport_rdma::verbs::{
    AsyncEventKind, ConnectOptions, Port, PostError, Work, WorkStatus,
};
use tokio::time::Instant;

use crate::rig::{
    End, STEP, STEPS_MAX, Sizes, connected, connected_with, pass_until, pattern, simulated,
};

fn send(end: &mut End, count: usize) {
    let batch: VecDeque<_> = (0..count).map(|i| end.send(&pattern(1000, i))).collect();
    end.post_all(batch);
}

fn statuses(end: &End) -> Vec<WorkStatus> {
    let failed = end.done.iter().filter_map(|done| done.outcome.err());
    failed.map(|error| error.status).collect()
}

fn events(port: &Port) -> Vec<AsyncEventKind> {
    let mut kinds = Vec::new();
    let context = &mut Context::from_waker(Waker::noop());
    while let Poll::Ready(event) = port.device.poll_async_event(context) {
        kinds.push(event.unwrap().kind);
    }
    kinds
}

#[tokio::test(start_paused = true)]
async fn a_cable_that_is_out_shorter_than_the_retries_costs_only_time() {
    let (network, devices, ports) = simulated(2);
    let mut ends = connected(&ports);
    devices[1].link_down();
    send(&mut ends[0], 3);
    tokio::time::sleep(Duration::from_millis(100)).await;
    devices[1].link_up();
    pass_until(&mut ends, |ends| ends[1].messages.len() == 3 && ends[0].done.len() == 3).await;
    assert_eq!(statuses(&ends[0]), []);
    assert!(network.counters().timeouts > 0);
    let seen = events(&ports[1]);
    assert_eq!(seen, [AsyncEventKind::PortError, AsyncEventKind::PortActive]);
}

#[tokio::test(start_paused = true)]
async fn a_cable_that_stays_out_ends_the_queue_pair_after_all_retries() {
    let (_network, devices, ports) = simulated(3);
    let options = ConnectOptions::default().with_timeout(14).with_retry_count(2);
    let mut ends = connected_with(&ports, Sizes::default(), &options);
    devices[0].link_down();
    let start = Instant::now();
    send(&mut ends[0], 3);
    pass_until(&mut ends, |ends| ends[0].done.len() == 3).await;
    // The first attempt and two more, each 67 ms, and a little for the timers' granularity.
    let took = start.elapsed().as_millis();
    assert!((201..220).contains(&took), "{took} ms");
    // One completion names the first, as the whole batch asked for only one.
    assert_eq!(statuses(&ends[0])[0], WorkStatus::RetryExceeded);
    ends[0].done.clear();
    assert!(ends[0].has_all_slots());
    assert!(ends[1].messages.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unready_receiver_ends_a_sender_with_finite_retries() {
    let (_network, _devices, ports) = simulated(4);
    let options = ConnectOptions::default().with_rnr_retry(3).with_rnr_timer(20);
    let sizes = Sizes { receive_slots: 1, ..Default::default() };
    let mut ends = connected_with(&ports, sizes, &options);
    ends[1].reposts = false;
    let start = Instant::now();
    send(&mut ends[0], 1);
    pass_until(&mut ends, |ends| ends[0].done.len() == 1).await;
    send(&mut ends[0], 1);
    pass_until(&mut ends, |ends| ends[0].done.len() == 2).await;
    assert_eq!(statuses(&ends[0]), [WorkStatus::ReceiverNotReady]);
    let took = start.elapsed().as_millis();
    assert!((30..50).contains(&took), "three waits of 10.24 ms, and it took {took} ms");
    assert!(ends[1].queue_pair.is_ready(), "the receiver has done nothing wrong");
}

/// Everything that a correct program need not notice, all at once.
async fn harmless_faults(seed: u64) -> (SimNetwork, Vec<Vec<u8>>) {
    const COUNT: usize = 1500;
    let (network, _devices, ports) = simulated(seed);
    network.set_faults(SimFaults::harmless());
    let mut ends = connected(&ports);
    let len = 300_000;
    let expected = pattern(len, 5);
    let mut source = ends[1].sources.try_take(len).unwrap();
    source.copy_from_slice(&expected);
    let mut batch = VecDeque::new();
    let mut next = 0;
    let mut read_count = 0;
    for _ in 0..STEPS_MAX {
        if next < COUNT && batch.len() < 8 && ends[0].queue_pair.room() > 8 {
            batch.push_back(ends[0].send(&pattern(20 + next % 700, next)));
            next += 1;
            if next % 50 == 0 {
                let sink = ends[0].sinks.try_take(len).unwrap();
                let sink = Arc::new(Sink::new(sink));
                let remote = source.remote();
                batch.push_back(Work::Read { sink, offset: 0, len: len as u32, remote });
            }
            ends[0].queue_pair.post(&mut batch).unwrap();
            // Against the stream, so that sends and receives complete into the same queue.
            if next % 4 == 0 && ends[1].queue_pair.room() > 0 {
                let mut back = VecDeque::from([ends[1].send(b"back")]);
                ends[1].queue_pair.post(&mut back).unwrap();
            }
        }
        let count: usize = ends.iter_mut().map(End::drive).sum();
        ends[1].done.clear();
        for done in std::mem::take(&mut ends[0].done) {
            done.outcome.unwrap();
            if let Work::Read { sink, .. } = done.work {
                let buffer = Arc::into_inner(sink).unwrap().into_buffer();
                assert!(buffer[..] == expected[..], "seed {seed}: the bytes of a READ differ");
                read_count += 1;
            }
        }
        if ends[1].messages.len() == COUNT && ends[0].queue_pair.in_flight_len() == 0 {
            break;
        }
        if count == 0 {
            ends[0].queue_pair.post(&mut batch).unwrap();
            tokio::time::sleep(STEP).await;
        }
    }
    assert_eq!((ends[1].messages.len(), read_count), (COUNT, COUNT / 50), "seed {seed}");
    (network, std::mem::take(&mut ends[1].messages))
}

#[tokio::test(start_paused = true)]
async fn harmless_faults_come_and_nothing_above_notices() {
    for seed in 0..5 {
        let (network, messages) = harmless_faults(seed).await;
        for (i, message) in messages.iter().enumerate() {
            assert_eq!(*message, pattern(20 + i % 700, i), "seed {seed}, message {i}");
        }
        let counters = network.counters();
        let came = [
            counters.lost,
            counters.timeouts,
            counters.receiver_not_ready,
            counters.retransmissions,
            counters.late_writes,
            counters.reordered_completions,
            counters.refused_posts,
        ];
        assert!(came.iter().all(|count| *count > 0), "seed {seed}: {counters:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_seed_repeats_its_run_exactly() {
    let mut first = harmless_faults(77).await.0.counters();
    let second = harmless_faults(77).await.0.counters();
    assert_eq!(first, second);
    first = harmless_faults(78).await.0.counters();
    assert_ne!(first, second, "another seed is another run");
}

/// Takes a device away, in one of the ways that there are.
type Lose = fn(&SimDevice);

/// The fates of work in flight when a device is lost.
const LOSSES: [(&str, Lose); 2] = [("flushed", SimDevice::lose), ("silent", lab::lose_silently)];

/// Waits for the commands that end what was dropped.
async fn all_is_gone(network: &SimNetwork, loss: &str) {
    for _ in 0..STEPS_MAX {
        if lab::census(network) == SimCensus::default() {
            return;
        }
        tokio::time::sleep(STEP).await;
    }
    panic!("{loss}: {:?} are left", lab::census(network));
}

#[tokio::test(start_paused = true)]
async fn a_lost_device_returns_all_work_or_none_until_destroyed() {
    for (loss, lose) in LOSSES {
        let (network, devices, ports) = simulated(5);
        let mut ends = connected(&ports);
        ends[1].reposts = false;
        send(&mut ends[0], 10);
        lose(&devices[0]);
        for _ in 0..100 {
            ends.iter_mut().for_each(|end| drop(end.completions.poll(&mut Vec::new())));
            tokio::time::sleep(STEP).await;
        }
        assert!(events(&ports[0]).contains(&AsyncEventKind::DeviceFatal));
        let mut batch = VecDeque::from([ends[0].send(b"too late")]);
        let posted = ends[0].queue_pair.post(&mut batch);
        assert!(matches!(posted, Err(PostError::Device { accepted: 0, .. })), "{posted:?}");
        drop(batch);
        let slots = Arc::clone(&ends[0].slots);
        drop(ends);
        assert_eq!(slots.available(), slots.count() as usize, "{loss}");
        drop((slots, ports));
        all_is_gone(&network, loss).await;
    }
}

/// Ends of whose messages the first was cut in the middle, under what `more` changes.
async fn cut(more: impl FnOnce(&mut SimFaults)) -> (SimNetwork, [Port; 2], [End; 2]) {
    let (network, _devices, ports) = simulated(12);
    let mut faults = SimFaults::default();
    faults.cut_transfer = 1.0;
    more(&mut faults);
    network.set_faults(faults);
    let mut ends = connected(&ports);
    send(&mut ends[0], 1);
    pass_until(&mut ends, |ends| ends[0].done.len() == 1).await;
    (network, ports, ends)
}

#[tokio::test(start_paused = true)]
async fn a_dead_queue_pairs_receives_return_as_its_driver_does() {
    let last = AsyncEventKind::LastReceiveReached;
    let (_network, ports, mut ends) = cut(|_| ()).await;
    pass_until(&mut ends, |ends| ends[1].failed_receives == 1).await;
    assert_eq!(events(&ports[1]), [last]);

    let (network, ports, mut ends) = cut(|faults| faults.late_last_receive = 1.0).await;
    assert_eq!((ends[1].drive(), events(&ports[1])), (0, vec![]));
    pass_until(&mut ends, |ends| ends[1].failed_receives == 1).await;
    assert_eq!((events(&ports[1]), network.counters().late_last_receives), (vec![last], 2));

    let (network, ports, mut ends) = cut(|faults| faults.missing_last_receive = 1.0).await;
    pass_until(&mut ends, |ends| ends[1].failed_receives == 1).await;
    assert_eq!((events(&ports[1]), network.counters().missing_last_receives), (vec![], 2));

    let (network, ports, mut ends) = cut(|faults| faults.lost_receive = 1.0).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((ends[1].drive(), events(&ports[1])), (0, vec![last]));
    assert_eq!(network.counters().lost_receives, 1);
    let before = lab::census(&network).requests;
    drop(ends.into_iter().next_back().map(|end| end.queue_pair));
    assert!(
        lab::census(&network).requests < before,
        "destroyed, the device has the slot no longer"
    );
}

#[tokio::test(start_paused = true)]
async fn a_driver_may_throw_out_the_completions_of_what_it_destroys() {
    for (likelihood, polled) in [(0.0, 4), (1.0, 0)] {
        let (network, _devices, ports) = simulated(13);
        let mut faults = SimFaults::default();
        faults.purge_on_destroy = likelihood;
        network.set_faults(faults);
        let mut ends = connected(&ports);
        send(&mut ends[0], 4);
        pass_until(&mut ends[..1], |ends| ends[0].done.len() == 4).await;
        let [_first, End { mut completions, queue_pair, receives, .. }] = ends;
        drop(queue_pair);
        let mut found = Vec::new();
        completions.poll(&mut found).unwrap();
        assert_eq!(found.len(), polled);
        assert_eq!(network.counters().purged_completions, 4 - polled as u64);
        drop(receives);
    }
}

/// A firmware reset, say: the kernel has freed everything, and no verb destroys anything.
#[tokio::test(start_paused = true)]
async fn a_device_that_was_torn_away_leaves_nothing_registered() {
    for (loss, lose) in LOSSES {
        let (network, devices, ports) = simulated(11);
        let mut faults = SimFaults::default();
        faults.destroy_fails_after_loss = true;
        network.set_faults(faults);
        let mut ends = connected(&ports);
        send(&mut ends[0], 4);
        let slots = Arc::clone(&ends[0].slots);
        assert!(lab::census(&network).registered_bytes > 0);
        devices.iter().for_each(lose);
        drop(ends);
        assert_eq!(slots.available(), slots.count() as usize, "{loss}");
        drop((slots, ports));
        all_is_gone(&network, loss).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_completion_queue_is_an_error_to_poll() {
    let (_network, devices, ports) = simulated(6);
    let mut ends = connected(&ports);
    lab::break_completion_queues(&devices[0]);
    assert!(ends[0].completions.poll(&mut Vec::new()).is_err());
    let seen = events(&ports[0]);
    assert!(seen.contains(&AsyncEventKind::CompletionQueueError), "{seen:?}");
    assert_eq!(ends[1].drive(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_queue_pair_that_cannot_be_destroyed_keeps_its_memory() {
    let (network, devices, ports) = simulated(7);
    let mut ends = connected(&ports);
    send(&mut ends[0], 4);
    let slots = Arc::clone(&ends[0].slots);
    lab::fail_destructions(&devices[0], 1);
    drop(ends);
    assert_eq!(slots.available(), slots.count() as usize - 4);
    assert_eq!(lab::census(&network).queue_pairs, 1);
}

/// The last and the sum of what 50 messages take, which are sent one after the other.
async fn one_after_the_other(faults: SimFaults) -> (SimNetwork, Duration) {
    let (network, _devices, ports) = simulated(8);
    network.set_faults(faults);
    let mut ends = connected(&ports);
    let start = Instant::now();
    for round in 1..=50 {
        send(&mut ends[0], 1);
        pass_until(&mut ends, |ends| ends[1].messages.len() == round && ends[0].done.len() == 1)
            .await;
        assert_eq!(statuses(&ends[0]), []);
        ends[0].done.clear();
    }
    (network, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_again_at_once_comes_later_and_in_order() {
    let (_, plain) = one_after_the_other(SimFaults::default()).await;
    let mut faults = SimFaults::default();
    faults.retransmission = 1.0;
    faults.retransmission_delay_max = Duration::from_millis(20);
    let (network, late) = one_after_the_other(faults).await;
    let counters = network.counters();
    assert_eq!((counters.retransmissions, counters.timeouts), (50, 0));
    // Ten milliseconds each on average.
    assert!(late > plain + Duration::from_millis(250), "{plain:?} and {late:?}");
}

#[tokio::test(start_paused = true)]
async fn repeated_loss_ends_the_queue_pair_after_all_retries() {
    let (network, _devices, ports) = simulated(9);
    let options = ConnectOptions::default().with_timeout(14).with_retry_count(3);
    let mut ends = connected_with(&ports, Sizes::default(), &options);
    let mut faults = SimFaults::default();
    faults.packet_loss = 1.0;
    network.set_faults(faults);
    send(&mut ends[0], 2);
    pass_until(&mut ends, |ends| ends[0].done.len() == 2).await;
    assert_eq!(statuses(&ends[0])[0], WorkStatus::RetryExceeded);
    let counters = network.counters();
    assert_eq!((counters.timeouts, counters.messages), (3, 0));
    assert!(counters.lost >= 4, "the first attempt and three more: {counters:?}");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_cut_has_written_some_bytes_and_no_more() {
    const LEN: usize = 100_000;
    let (network, _devices, ports) = simulated(10);
    let mut ends = connected(&ports);
    let mut source = ends[1].sources.try_take(LEN).unwrap();
    source.fill(7);
    let mut sink = ends[0].sinks.try_take(LEN).unwrap();
    sink.fill(0);
    let mut faults = SimFaults::default();
    faults.cut_transfer = 1.0;
    network.set_faults(faults);
    let (sink, remote) = (Arc::new(Sink::new(sink)), source.remote());
    ends[0].post_all(VecDeque::from([Work::Read { sink, offset: 0, len: LEN as u32, remote }]));
    pass_until(&mut ends, |ends| ends[0].done.len() == 1).await;
    assert_eq!(statuses(&ends[0]), [WorkStatus::RetryExceeded]);
    let Work::Read { sink, .. } = ends[0].done.remove(0).work else { panic!("it was a READ") };
    let buffer = Arc::into_inner(sink).unwrap().into_buffer();
    let written = buffer.iter().take_while(|byte| **byte == 7).count();
    assert!((1..LEN).contains(&written), "{written} of {LEN} bytes");
    assert!(buffer[written..].iter().all(|byte| *byte == 0), "beyond what had come");
    assert_eq!(network.counters().cut_transfers, 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_cut_is_never_seen_and_its_slot_comes_back() {
    let (network, _devices, ports) = simulated(11);
    let mut ends = connected(&ports);
    let mut faults = SimFaults::default();
    faults.cut_transfer = 1.0;
    network.set_faults(faults);
    send(&mut ends[0], 1);
    pass_until(&mut ends, |ends| ends[0].done.len() == 1 && ends[1].failed_receives == 1).await;
    assert_eq!(statuses(&ends[0]), [WorkStatus::RetryExceeded]);
    assert!(ends[1].messages.is_empty());
    assert_eq!(ends[1].receives.idle_count(), 0, "it was posted again");
    ends[0].done.clear();
    assert!(ends[0].has_all_slots());
}

#[tokio::test(start_paused = true)]
async fn a_moderated_event_comes_with_the_last_or_in_time() {
    let (network, _devices, ports) = simulated(12);
    let mut faults = SimFaults::default();
    faults.coalesced_event = 1.0;
    faults.event_delay_max = Duration::from_secs(10);
    network.set_faults(faults);
    let mut ends = connected(&ports);
    for round in 1..=20 {
        ends[1].completions.arm().unwrap();
        // Too few for most events, so that some come by time, and seconds late.
        send(&mut ends[0], 1 + round % 8);
        ends[1].completions.wait().await.unwrap();
        ends[0].drive();
        let before = ends[1].messages.len();
        while ends[1].drive() > 0 {}
        assert!(ends[1].messages.len() > before, "an event for nothing in round {round}");
        pass_until(&mut ends, |ends| ends[0].queue_pair.in_flight_len() == 0).await;
        ends[0].done.clear();
    }
    assert!(network.counters().coalesced_events >= 10, "{:?}", network.counters());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_held_back_comes_in_the_end() {
    let (network, _devices, ports) = simulated(8);
    let mut faults = SimFaults::default();
    faults.delayed_event = 1.0;
    network.set_faults(faults);
    let mut ends = connected(&ports);
    for round in 1..=50 {
        ends[1].completions.arm().unwrap();
        send(&mut ends[0], 1);
        ends[1].completions.wait().await.unwrap();
        pass_until(&mut ends, |ends| ends[1].messages.len() == round && ends[0].done.len() == 1)
            .await;
        ends[0].done.clear();
    }
    assert!(network.counters().delayed_events >= 50);
}
