//! The GET by itself: round robin, depths, stops, and that every byte is read once.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::proto::remote_memory::RemoteKey;

fn wanted(call: u64, segments: &[(u64, u64)]) -> GetRequest {
    let segment = |(address, len): &(u64, u64)| RtsSegment {
        memory: RemoteMemory { address: *address, key: RemoteKey(1) },
        len: *len,
    };
    let segments = segments.iter().map(segment).collect();
    let memory_by = Deadline::after(Instant::now(), Duration::from_secs(60));
    GetRequest {
        call,
        prefix: [0; HEADER_LEN],
        head: Vec::new(),
        deadline: None,
        memory_by,
        segments,
    }
}

fn started<S: Clone>(rndv_get: &mut RndvGet<S>, number: u32, len: u64, sink: S) {
    rndv_get.accept(number, wanted(number.into(), &[(u64::from(number) * 100, len)])).unwrap();
    assert!(rndv_get.begin(number, sink));
}

fn outcome(ended: Ended) -> (u32, Outcome) {
    (ended.transfer, ended.outcome)
}

#[test]
fn transfers_take_turns_and_the_depth_is_kept() {
    let now = Instant::now();
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(3), 10);
    started(&mut rndv_get, 1, 25, 'a');
    started(&mut rndv_get, 5, 25, 'b');
    let chunks: Vec<_> = std::iter::from_fn(|| rndv_get.next_chunk(now, |_, _| true)).collect();
    let order: Vec<_> = chunks.iter().map(|chunk| (chunk.sink, chunk.offset)).collect();
    assert_eq!(order, [('a', 0), ('b', 0), ('a', 10)]);
    assert_eq!(chunks[2].remote.address, 110);
    assert_eq!(rndv_get.handle_read(0), None);
    assert_eq!(rndv_get.next_chunk(now, |_, _| true).map(|chunk| chunk.sink), Some('b'));
}

#[test]
fn a_read_goes_where_the_fewest_bytes_are_on_their_way() {
    let now = Instant::now();
    let limits = ReadLimits { queues: 2, per_queue: 2, total: 3 };
    let mut rndv_get = RndvGet::new(limits, 100);
    for (number, len) in [(1, 100), (2, 10), (3, 10), (4, 10), (5, 10)] {
        started(&mut rndv_get, number, len, number);
    }
    let next = |rndv_get: &mut RndvGet<u32>| {
        rndv_get.next_chunk(now, |_, _| true).map(|chunk| (chunk.sink, chunk.queue))
    };
    let ended = |rndv_get: &mut RndvGet<u32>, queue| rndv_get.handle_read(queue).map(outcome);
    let posted = [(); 4].map(|()| next(&mut rndv_get));
    assert_eq!(posted, [Some((1, 0)), Some((2, 1)), Some((3, 1)), None], "three are out");
    assert_eq!(ended(&mut rndv_get, 1), Some((2, Outcome::Whole)), "before the first");
    assert_eq!(next(&mut rndv_get), Some((4, 1)));
    assert_eq!(ended(&mut rndv_get, 1), Some((3, Outcome::Whole)));
    assert_eq!(ended(&mut rndv_get, 0), Some((1, Outcome::Whole)));
    assert_eq!(ended(&mut rndv_get, 0), None, "nothing is out there");
    assert_eq!(next(&mut rndv_get), Some((5, 0)));
}

#[test]
fn a_transfer_that_is_offered_twice_is_a_violation() {
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(1), 10);
    started(&mut rndv_get, 1, 5, ());
    assert!(rndv_get.accept(1, wanted(1, &[(0, 5)])).is_err());
}

#[test]
fn what_waits_for_memory_is_stopped_at_once_and_never_begins() {
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(1), 10);
    rndv_get.accept(1, wanted(7, &[(0, 5)])).unwrap();
    rndv_get.stop_call(7, &Withheld::GivenUp);
    assert!(!rndv_get.is_waiting(1) && !rndv_get.begin(1, ()));
    let ended: Vec<_> = rndv_get.take_ended().into_iter().map(outcome).collect();
    assert_eq!(ended, [(1, Outcome::NotStarted(Withheld::GivenUp))]);
}

#[test]
fn a_transfer_needs_memory_just_before_its_first_read() {
    let now = Instant::now();
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(2), 10);
    for number in 1..=6 {
        rndv_get.accept(number, wanted(number.into(), &[(0, 20)])).unwrap();
    }
    let due = |rndv_get: &mut RndvGet<()>| {
        std::iter::from_fn(|| rndv_get.next_due().map(|due| due.transfer)).collect::<Vec<_>>()
    };
    assert_eq!(due(&mut rndv_get), [1, 2], "as many as READs may be outstanding");
    assert!(rndv_get.begin(1, ()));
    rndv_get.stop(2, Withheld::GivenUp);
    rndv_get.stop(3, Withheld::GivenUp);
    assert_eq!(due(&mut rndv_get), [4], "one that was stopped needs none");
    assert!(rndv_get.begin(4, ()));
    while rndv_get.next_chunk(now, |_, _| true).is_some() {}
    assert_eq!(due(&mut rndv_get), [0; 0], "both have READs left to post");
    assert_eq!((rndv_get.handle_read(0), rndv_get.handle_read(0)), (None, None));
    while rndv_get.next_chunk(now, |_, _| true).is_some() {}
    assert_eq!(due(&mut rndv_get), [5, 6]);
    assert_eq!(rndv_get.queued, [0; 0]);
}

#[test]
fn a_transfer_that_has_no_memory_in_time_is_late() {
    let now = Instant::now();
    let mut rndv_get = RndvGet::<()>::new(ReadLimits::one_queue(1), 10);
    let after = |seconds| Deadline(now + Duration::from_secs(seconds));
    let offers = [(1, None, 5), (2, None, 30), (3, Some(10), 30), (4, Some(40), 30)];
    for (number, deadline, memory_by) in offers {
        let (deadline, memory_by) = (deadline.map(after), after(memory_by));
        rndv_get
            .accept(number, GetRequest { deadline, memory_by, ..wanted(1, &[(0, 20)]) })
            .unwrap();
    }
    assert_eq!(rndv_get.next_due().map(|due| (due.transfer, due.len)), Some((1, 20)));
    let late = |seconds| {
        let late = rndv_get.late(after(seconds).0).into_iter();
        late.map(|due| due.transfer).collect::<Vec<_>>()
    };
    assert_eq!(
        [late(4), late(5), late(10), late(30)],
        [vec![], vec![1], vec![1, 3], vec![1, 2, 3, 4]],
        "whether its turn has come or not"
    );
    assert_eq!(rndv_get.late_at(), Some(after(5).0));
    assert!(rndv_get.begin(1, ()));
    assert_eq!(rndv_get.late_at(), Some(after(10).0), "one that has memory");
}

#[test]
fn a_stopped_transfer_ends_with_the_reads_that_are_out() {
    let now = Instant::now();
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(2), 10);
    started(&mut rndv_get, 1, 50, ());
    let reads: Vec<_> = std::iter::from_fn(|| rndv_get.next_chunk(now, |_, _| true)).collect();
    assert_eq!(reads.len(), 2);
    rndv_get.stop(1, Withheld::GivenUp);
    assert_eq!((rndv_get.handle_read(0), rndv_get.next_chunk(now, |_, _| true)), (None, None));
    let ended = rndv_get.handle_read(0).map(outcome);
    assert_eq!(ended, Some((1, Outcome::Stopped(Withheld::GivenUp))));
    assert_eq!(rndv_get.transfer_count(), 0);
}

#[test]
fn a_transfer_whose_reads_are_all_posted_becomes_whole() {
    let now = Instant::now();
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(2), 10);
    started(&mut rndv_get, 1, 20, ());
    while rndv_get.next_chunk(now, |_, _| true).is_some() {}
    rndv_get.stop(1, Withheld::GivenUp);
    assert_eq!(rndv_get.handle_read(0), None);
    assert_eq!(rndv_get.handle_read(0).map(outcome), Some((1, Outcome::Whole)));
}

#[test]
fn no_read_is_posted_after_the_deadline() {
    let now = Instant::now();
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(1), 10);
    let deadline = Some(Deadline(now + Duration::from_secs(1)));
    for number in [1, 2] {
        rndv_get.accept(number, GetRequest { deadline, ..wanted(1, &[(0, 20)]) }).unwrap();
    }
    assert!(rndv_get.begin(1, ()) && rndv_get.next_chunk(now, |_, _| true).is_some());
    assert!(rndv_get.begin(2, ()));
    let late = now + Duration::from_secs(1);
    assert_eq!(rndv_get.handle_read(0), None);
    assert_eq!(rndv_get.next_chunk(late, |_, _| true), None);
    let ended: Vec<_> = rndv_get.take_ended().into_iter().map(outcome).collect();
    assert_eq!(
        ended,
        [(1, Outcome::Stopped(Withheld::Expired)), (2, Outcome::NotStarted(Withheld::Expired)),]
    );
}

#[test]
fn a_frame_beyond_four_gibibytes_is_read_whole() {
    const CHUNK: u32 = 1 << 26;
    let now = Instant::now();
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(16), CHUNK);
    let lens = [1, 5 << 30, (4 << 30) + 7];
    let segments: Vec<_> = lens.iter().map(|len| (1 << 40, *len)).collect();
    rndv_get.accept(1, wanted(1, &segments)).unwrap();
    assert!(rndv_get.begin(1, ()));
    let (mut read, mut ended) = (0u64, None);
    for _ in 0..1000 {
        while let Some(chunk) = rndv_get.next_chunk(now, |_, _| true) {
            assert_eq!(chunk.offset as u64, read);
            assert!(chunk.len <= CHUNK);
            let in_segment = match read {
                0 => 0,
                _ if read <= 5 << 30 => read - 1,
                _ => read - 1 - (5 << 30),
            };
            assert_eq!(chunk.remote.address, (1 << 40) + in_segment);
            read += u64::from(chunk.len);
        }
        ended = rndv_get.handle_read(0);
        if ended.is_some() {
            break;
        }
    }
    assert_eq!((read, ended.map(outcome)), (lens.iter().sum(), Some((1, Outcome::Whole))));
}

#[test]
fn the_head_is_available_until_the_transfer_begins() {
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(1), 10);
    let head = vec![7, 8, 9];
    rndv_get.accept(1, GetRequest { head: head.clone(), ..wanted(1, &[(0, 5), (0, 6)]) }).unwrap();
    assert_eq!(rndv_get.head(1, 14), Some(&head[..]));
    assert_eq!(
        (rndv_get.head(1, 13), rndv_get.head(1, 11), rndv_get.head(2, 14)),
        (None, None, None)
    );
    assert!(rndv_get.is_waiting(1) && rndv_get.begin(1, ()));
    assert_eq!(rndv_get.head(1, 14), None);
    assert!(!rndv_get.is_waiting(1) && !rndv_get.begin(1, ()), "it has begun");
    let chunk = rndv_get.next_chunk(Instant::now(), |_, _| true).unwrap();
    assert_eq!((chunk.offset, chunk.len), (3, 5), "behind its head");
}

#[test]
fn a_transfer_that_begins_out_of_turn_leaves_the_others_theirs() {
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(9), 10);
    for number in 1..=3 {
        rndv_get.accept(number, wanted(number.into(), &[(0, 20)])).unwrap();
    }
    assert!(rndv_get.begin(2, ()) && rndv_get.late_at().is_some());
    let due: Vec<_> = std::iter::from_fn(|| rndv_get.next_due()).map(|due| due.transfer).collect();
    assert_eq!((due, rndv_get.has_due(), rndv_get.transfer_count()), (vec![1, 3], false, 3));
}

#[test]
fn a_read_that_is_rejected_comes_again() {
    let now = Instant::now();
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(2), 10);
    started(&mut rndv_get, 1, 15, 'a');
    started(&mut rndv_get, 2, 15, 'b');
    let mut wanted = Vec::new();
    assert_eq!(
        rndv_get.next_chunk(now, |queue, len| {
            wanted.push((queue, len));
            false
        }),
        None
    );
    assert_eq!(wanted, [(0, 10)]);
    let chunk = rndv_get.next_chunk(now, |_, _| true).unwrap();
    assert_eq!((chunk.sink, chunk.offset), ('a', 0));
}

#[test]
fn a_path_that_is_gone_has_no_transfers() {
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(1), 10);
    started(&mut rndv_get, 1, 15, ());
    for number in [2, 3, 4] {
        rndv_get.accept(number, wanted(number.into(), &[(0, 20)])).unwrap();
    }
    rndv_get.stop(4, Withheld::GivenUp);
    rndv_get.clear();
    assert_eq!((rndv_get.transfer_count(), rndv_get.late_at()), (0, None));
    assert!(rndv_get.next_chunk(Instant::now(), |_, _| true).is_none());
    assert!(rndv_get.take_ended().is_empty());
    rndv_get.accept(1, wanted(1, &[(0, 20)])).unwrap();
    assert_eq!(rndv_get.next_due().map(|due| due.transfer), Some(1));
}

#[test]
fn the_first_reason_to_stop_counts() {
    let now = Instant::now();
    let mut rndv_get = RndvGet::new(ReadLimits::one_queue(1), 10);
    started(&mut rndv_get, 1, 50, ());
    assert!(rndv_get.next_chunk(now, |_, _| true).is_some());
    rndv_get.stop(1, Withheld::Expired);
    rndv_get.stop(1, Withheld::GivenUp);
    let ended = rndv_get.handle_read(0).map(outcome);
    assert_eq!(ended, Some((1, Outcome::Stopped(Withheld::Expired))));
}

#[test]
fn a_spread_frame_reads_each_segment_on_its_own_queue() {
    let now = Instant::now();
    let limits = ReadLimits { queues: 3, per_queue: 2, total: 6 };
    let mut rndv_get = RndvGet::new(limits, 60);
    rndv_get.accept_spread(1, wanted(1, &[(0, 100), (0, 100), (0, 100)])).unwrap();
    assert!(rndv_get.begin(1, 'a'));
    let next = || rndv_get.next_chunk(now, |_, _| true).map(|chunk| (chunk.queue, chunk.len));
    let chunks: Vec<_> = std::iter::from_fn(next).collect();
    // By bytes on their way they would go to 0, 1, 2, 1, 2, 0.
    assert_eq!(chunks, [(0, 60), (0, 40), (1, 60), (1, 40), (2, 60), (2, 40)]);
}

proptest! {
    #[test]
    fn every_byte_is_read_once_and_every_transfer_ends_once(
        lens in prop::collection::vec(prop::collection::vec(1u64..50, 1..4), 1..6),
        stops in prop::collection::vec((0u32..6, 0usize..40), 0..4),
        queues in 1usize..4,
        per_queue in 1usize..5,
        chunk_len in 1u32..20,
        mut order in prop::collection::vec(0usize..4, 0..40),
    ) {
        let now = Instant::now();
        let limits = ReadLimits { queues, per_queue, total: queues + per_queue };
        let mut rndv_get = RndvGet::new(limits, chunk_len);
        for (number, lens) in (0u32..).zip(&lens) {
            let segments: Vec<_> = lens.iter().map(|len| (0, *len)).collect();
            rndv_get.accept(number, wanted(number.into(), &segments)).unwrap();
            prop_assert!(rndv_get.begin(number, number as usize));
        }
        let mut read = vec![0; lens.len()];
        let mut ended = Vec::new();
        let mut outstanding = vec![VecDeque::new(); queues];
        for step in 0.. {
            prop_assert!(step < 10_000, "a READ never completes its transfer");
            for (number, _) in stops.iter().filter(|(_, at)| *at == step) {
                rndv_get.stop(*number, Withheld::GivenUp);
            }
            ended.extend(rndv_get.take_ended());
            while let Some(chunk) = rndv_get.next_chunk(now, |_, _| true) {
                prop_assert_eq!(chunk.offset, read[chunk.sink]);
                read[chunk.sink] += chunk.len as usize;
                outstanding[chunk.queue].push_back(chunk.sink);
                prop_assert!(outstanding[chunk.queue].len() <= per_queue);
                prop_assert!(outstanding.iter().flatten().count() <= limits.total);
            }
            // Each queue completes in its own order, and they in any.
            let first = order.pop().unwrap_or(0);
            let mut in_turn = (0..queues).map(|i| (first + i) % queues);
            let Some(queue) = in_turn.find(|queue| !outstanding[*queue].is_empty()) else {
                break;
            };
            let sink = outstanding[queue].pop_front().unwrap();
            if let Some(over) = rndv_get.handle_read(queue) {
                prop_assert_eq!(over.transfer as usize, sink);
                let is_out = outstanding.iter().flatten().any(|other| *other == sink);
                prop_assert!(!is_out, "a READ is out");
                ended.push(over);
            }
        }
        let mut numbers: Vec<_> = ended.iter().map(|over| over.transfer).collect();
        numbers.sort_unstable();
        prop_assert_eq!(numbers, (0..).take(lens.len()).collect::<Vec<u32>>());
        for over in &ended {
            let len: u64 = lens[over.transfer as usize].iter().sum();
            let is_whole = read[over.transfer as usize] as u64 == len;
            prop_assert_eq!(is_whole, over.outcome == Outcome::Whole);
        }
        prop_assert_eq!(rndv_get.transfer_count(), 0);
    }
}
