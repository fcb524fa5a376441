//! Single steps of the queue.

use rpc_core::pool::Pool;
use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN};

use super::*;
use crate::codec::record::{FRAME_LEN_LEN, RECORD_HEADER_LEN};
use crate::pacing::chunk_len::CHUNK_LEN_MIN;
use crate::send::frame::LargeShare;

fn push(queue: &mut SendQueue, len: usize) -> bool {
    queue.push(Frame::Small(Pool::new(0).take(len)), len)
}

#[test]
fn a_corked_queue_gathers_within_bounds() {
    let mut queue = SendQueue::default();
    assert!(push(&mut queue, 100));
    queue.cork();
    assert!(!push(&mut queue, 100));
    assert!(!queue.push_bytes(&[0; 44]));
    assert!(push(&mut queue, CORKED_BYTES_MAX));
    assert!(queue.uncork());
    assert!(push(&mut queue, 100));
}

#[test]
fn only_the_end_of_an_answer_leaves_a_delivery() {
    let record = |kind| {
        let header = FrameHeader::bare(kind, 1).to_bytes();
        [&[0; RECORD_HEADER_LEN][..], &header].concat()
    };
    let (end, other) = (record(FrameKind::Response), record(FrameKind::Headers));
    for (is_alone, may_leave) in [(true, true), (false, false)] {
        let mut queue = SendQueue::default();
        queue.begin_delivery(is_alone);
        assert_eq!((queue.is_idle(&end), queue.is_idle(&other)), (may_leave, false));
        assert!(!queue.push_record(&other) && !queue.push_record(&end));
        assert!(!queue.is_idle(&end), "it goes behind the others");
        assert_eq!(queue.answered_count(), 2);
        assert!(queue.uncork());
        queue.begin_delivery(is_alone);
        assert_eq!(queue.answered_count(), 0, "they were queued before");
    }
}

#[test]
fn after_many_wake_ups_senders_defer_to_the_driver() {
    let mut queue = SendQueue::default();
    queue.set_woken(DEFERRED_COUNT_MIN - 1);
    assert!(push(&mut queue, 100) && !queue.takes_deferral());
    let mut queue = SendQueue::default();
    queue.set_woken(DEFERRED_COUNT_MIN);
    assert!(!push(&mut queue, 100));
    assert_eq!(queue.turn(), Turn::Driver(Blocked::Deferred));
    assert!(queue.takes_deferral() && !queue.takes_deferral(), "the driver is told once");
    assert!(!push(&mut queue, 100) && !queue.takes_deferral());
    queue.set_woken(0);
    assert!(!push(&mut queue, 100), "the driver is under way");
    assert!(push(&mut queue, CORKED_BYTES_MAX), "it is too much to wait");
    let mut pass = Pass::new(Writer::Sender);
    let mut scheduler = WriteScheduler::default();
    assert_eq!(queue.next(&mut scheduler, &mut pass, Instant::now), Next::Write);
    let len = scheduler.slices().iter().map(|slice| slice.len()).sum();
    scheduler.advance(len);
    assert_eq!(queue.next(&mut scheduler, &mut pass, Instant::now), Next::Done);
    assert_eq!(queue.turn(), Turn::Idle);
}

#[test]
fn only_small_frames_pass_between_turns() {
    let turn = Turn::Driver(Blocked::SocketFull);
    let mut queue = SendQueue { turn, ..SendQueue::default() };
    assert!(!push(&mut queue, 100));
    queue.handle_writable();
    assert_eq!(queue.turn(), Turn::Driver(Blocked::TurnOver));
    assert!(push(&mut queue, 100));
}

#[test]
fn remembered_calls_are_bounded_and_unique() {
    let mut queue = SendQueue::default();
    queue.abandon(1);
    assert_eq!(queue.abandoned, [0_u64; 0], "nothing is queued");
    let _ = push(&mut queue, 100);
    (0..3).for_each(|_| queue.abandon(1));
    assert_eq!(queue.abandoned, [1]);
    (0..10_000).for_each(|call| queue.abandon(call));
    assert_eq!(queue.abandoned.len(), ABANDONED_MAX);
    let mut pass = Pass::new(Writer::Sender);
    let _ = queue.next(&mut WriteScheduler::default(), &mut pass, Instant::now);
    assert_eq!(queue.abandoned, [0_u64; 0]);
}

#[test]
fn control_frames_wait_up_to_a_bound() {
    let mut queue = SendQueue::default();
    while queue.has_room() {
        let _ = push(&mut queue, SINGLE_LEN_MAX);
    }
    let record = [0; 44];
    for _ in 0..FLOOD_BYTES_MAX.saturating_sub(SMALL_BYTES_MAX) / record.len() {
        let _ = queue.push_bytes(&record);
    }
    assert!(!queue.is_flooded());
    let _ = queue.push_bytes(&record);
    assert!(queue.is_flooded());
    assert_eq!(FLOOD_BYTES_MAX - SMALL_BYTES_MAX, 16_777_216);
}

#[test]
fn a_chunk_ends_when_all_of_it_is_written() {
    let (mut queue, mut scheduler) = (SendQueue::default(), WriteScheduler::default());
    let mut pass = Pass::new(Writer::Sender);
    let memory = Pool::new(0).take(3 * CHUNK_LEN_MIN);
    let frame = LargeFrame::new(memory, bytes::Bytes::new(), LargeShare::unlimited());
    assert!(queue.push(Frame::Large(frame), 3 * CHUNK_LEN_MIN));
    assert_eq!(queue.next(&mut scheduler, &mut pass, Instant::now), Next::Write);
    let len = scheduler.slices().iter().map(|slice| slice.len()).sum::<usize>();
    scheduler.advance(len - 1);
    let begun = Instant::now();
    assert_eq!(queue.next(&mut scheduler, &mut pass, || begun), Next::Write);
    assert!(queue.chunk_len.is_writing());
    scheduler.advance(1);
    assert!(queue.chunk_len.is_writing() && queue.is_busy());
}

#[test]
fn queued_and_staged_frames_take_room() {
    let (mut queue, mut scheduler) = (SendQueue::default(), WriteScheduler::default());
    while queue.has_room() {
        let _ = push(&mut queue, SINGLE_LEN_MAX);
    }
    queue.await_room();
    let mut pass = Pass::new(Writer::Sender);
    assert_eq!(queue.next(&mut scheduler, &mut pass, Instant::now), Next::Write);
    let sent = queue.sent();
    assert_eq!((sent.small_count, sent.bytes), (64, SMALL_BYTES_MAX as u64));
    assert!(queue.is_busy() && !queue.has_room() && !queue.takes_waiters());
    let mut written = 0;
    while !queue.takes_waiters() {
        scheduler.advance(SINGLE_LEN_MAX);
        written += SINGLE_LEN_MAX;
        let _ = queue.next(&mut scheduler, &mut pass, Instant::now);
    }
    assert_eq!(written, SMALL_BYTES_MAX / 2);
    assert!(!queue.takes_waiters(), "they are told once");
}

/// Returns a large frame of `len` bytes that belongs to `call`.
fn large(call: u64, len: usize) -> Frame {
    let mut memory = Pool::new(0).take(RECORD_HEADER_LEN + len);
    let header = FrameHeader::bare(FrameKind::Request, call).to_bytes();
    memory[RECORD_HEADER_LEN..][..HEADER_LEN].copy_from_slice(&header);
    Frame::Large(LargeFrame::new(memory, bytes::Bytes::new(), LargeShare::unlimited()))
}

/// A queue with the state of a pass.
#[derive(Default)]
struct Writing {
    queue: SendQueue,
    scheduler: WriteScheduler,
}

impl Writing {
    fn next(&mut self, pass: &mut Pass) -> Next {
        let now = Instant::now();
        self.queue.next(&mut self.scheduler, pass, || now)
    }

    /// Writes everything that is staged.
    fn write(&mut self) -> usize {
        let len = self.scheduler.slices().iter().map(|slice| slice.len()).sum();
        self.scheduler.advance(len);
        len
    }
}

#[test]
fn a_sender_writes_its_large_frame_only_if_no_task_does() {
    let queue = |turn, cork| SendQueue { turn, cork, ..SendQueue::default() };
    assert!(queue(Turn::Idle, Cork::Out).push(large(1, 100), 100));
    assert!(queue(Turn::Anyone, Cork::Out).push(large(1, 100), 100));
    assert!(!queue(Turn::Idle, Cork::In).push(large(1, 100), 100));
    for blocked in [Blocked::SocketFull, Blocked::TurnOver, Blocked::WindowFull] {
        assert!(!queue(Turn::Driver(blocked), Cork::Out).push(large(1, 100), 100));
    }
}

#[test]
fn small_frames_wait_for_a_full_socket_and_the_cork() {
    for (turn, cork, expected) in [
        (Turn::Idle, Cork::Out, true),
        (Turn::Driver(Blocked::TurnOver), Cork::Out, true),
        (Turn::Driver(Blocked::WindowFull), Cork::Out, true),
        (Turn::Driver(Blocked::SocketFull), Cork::Out, false),
        (Turn::Idle, Cork::In, false),
        (Turn::Driver(Blocked::SocketFull), Cork::In, false),
    ] {
        let queue = || SendQueue { turn, cork, ..SendQueue::default() };
        assert_eq!(push(&mut queue(), 100), expected, "{turn:?} {cork:?}");
        assert_eq!(queue().push_ack(1), expected, "{turn:?} {cork:?}");
        let is_full = turn == Turn::Driver(Blocked::SocketFull);
        assert_eq!(push(&mut queue(), CORKED_BYTES_MAX), !is_full, "{turn:?} {cork:?}");
    }
}

#[test]
fn uncorking_writes_all_but_the_drivers_frames() {
    let queue = |turn| SendQueue { turn, ..SendQueue::default() };
    let with_ack = |turn| SendQueue { ack: Some(1), ..queue(turn) };
    let with_small = |turn| {
        let mut queue = queue(turn);
        queue.small.push_bytes(&[0; 44]);
        queue
    };
    let with_large = |turn| {
        let mut queue = queue(turn);
        let _ = queue.push(large(1, 100), 100);
        queue
    };
    let full = Turn::Driver(Blocked::SocketFull);
    for turn in [Turn::Anyone, Turn::Driver(Blocked::TurnOver), Turn::Driver(Blocked::WindowFull)] {
        assert!(with_ack(turn).uncork() && with_small(turn).uncork(), "{turn:?}");
        assert_eq!(with_large(turn).uncork(), turn == Turn::Anyone);
        assert!(!queue(turn).uncork(), "another task has taken it");
    }
    assert!(!with_ack(full).uncork() && !with_small(full).uncork());
    assert!(!queue(Turn::Idle).uncork());
}

#[test]
fn a_turn_ends_at_its_bytes() {
    let mut writing = Writing::default();
    let mut pass = Pass::new(Writer::Sender);
    let _ = push(&mut writing.queue, 100);
    pass.advance(TURN_BYTES - 1, false);
    assert_eq!(writing.next(&mut pass), Next::Write);
    pass.advance(1, false);
    assert_eq!(writing.next(&mut pass), Next::Yield);
    assert_eq!(writing.queue.turn(), Turn::Driver(Blocked::TurnOver));

    let mut writing = Writing::default();
    let _ = writing.queue.push(large(1, 300_000), 300_000);
    let mut pass = Pass::new(Writer::Driver);
    pass.advance(TURN_BYTES - 1, false);
    assert_eq!(writing.next(&mut pass), Next::Write);
    writing.write();
    pass.advance(1, false);
    assert_eq!(writing.next(&mut pass), Next::Yield);
}

#[test]
fn a_sender_leaves_the_drivers_chunks_alone() {
    let mut writing = Writing::default();
    let _ = writing.queue.push(large(1, 300_000), 300_000);
    writing.queue.turn = Turn::Driver(Blocked::TurnOver);
    assert_eq!(writing.next(&mut Pass::new(Writer::Sender)), Next::Yield);
    assert_eq!(writing.next(&mut Pass::new(Writer::Driver)), Next::Write);
}

#[test]
fn a_full_socket_is_left_to_the_driver() {
    let mut writing = Writing::default();
    let _ = push(&mut writing.queue, 100);
    let mut pass = Pass::new(Writer::Sender);
    assert_eq!(writing.next(&mut pass), Next::Write);
    writing.scheduler.advance(60);
    pass.advance(60, true);
    assert_eq!(writing.next(&mut pass), Next::Yield);
    assert_eq!(writing.queue.turn(), Turn::Driver(Blocked::SocketFull));
    assert_eq!(writing.next(&mut Pass::new(Writer::Sender)), Next::Yield, "it was told to before");
    assert!(!writing.queue.unblock(Blocked::WindowFull));
    writing.queue.handle_writable();
    assert_eq!(writing.next(&mut Pass::new(Writer::Driver)), Next::Write);
}

#[test]
fn the_backlog_of_a_full_socket_is_charged() {
    let mut writing = Writing::default();
    writing.queue.count_backlog(&MemoryShare::whole(1 << 20));
    let _ = push(&mut writing.queue, 100);
    let mut pass = Pass::new(Writer::Sender);
    assert_eq!(writing.next(&mut pass), Next::Write);
    assert_eq!(writing.queue.backlog.len(), 0, "what passes through is not counted");
    writing.scheduler.advance(60);
    pass.advance(60, true);
    assert_eq!(writing.next(&mut pass), Next::Yield);
    assert_eq!(writing.queue.backlog.len(), 100, "its memory stays until all of it is written");
    let _ = push(&mut writing.queue, 200);
    assert_eq!(writing.queue.backlog.len(), 300);
    writing.queue.handle_writable();
    let mut pass = Pass::new(Writer::Driver);
    assert_eq!(writing.next(&mut pass), Next::Write);
    assert_eq!(writing.queue.backlog.len(), 300, "it is not written yet");
    assert_eq!(writing.write(), 240);
    assert_eq!(writing.next(&mut pass), Next::Done);
    assert_eq!(writing.queue.backlog.len(), 0);
    // Closing leaves nothing.
    let _ = push(&mut writing.queue, 100);
    writing.queue.turn = Turn::Driver(Blocked::SocketFull);
    let _ = push(&mut writing.queue, 100);
    assert_eq!(writing.queue.backlog.len(), 200);
    writing.queue.close(CloseReason::Local);
    assert_eq!(writing.queue.backlog.len(), 0);
}

#[test]
fn chunks_are_paced_from_the_first_small_frame_on() {
    let mut writing = Writing::default();
    let mut pass = Pass::new(Writer::Driver);
    let _ = push(&mut writing.queue, 100);
    assert_eq!(writing.next(&mut pass), Next::Write);
    assert_eq!(writing.write(), 100);
    let _ = writing.queue.push(large(1, 300_000), 300_000);
    assert_eq!(writing.next(&mut pass), Next::Write);
    assert_eq!(writing.write(), RECORD_HEADER_LEN + FRAME_LEN_LEN + CHUNK_LEN_MIN);
    assert_eq!(writing.next(&mut pass), Next::Write);
    assert_eq!(writing.queue.window_bytes(), None, "large frames are alone");
    let _ = push(&mut writing.queue, 100);
    assert_eq!(writing.next(&mut pass), Next::Write);
    assert_eq!(writing.queue.window_bytes(), Some(writing.queue.window.len()));
}

#[test]
fn unbegun_large_frames_of_cancelled_calls_are_dropped() {
    let mut writing = Writing::default();
    let mut pass = Pass::new(Writer::Driver);
    for call in [1, 2] {
        let _ = writing.queue.push(large(call, 300_000), 300_000);
    }
    assert_eq!(writing.next(&mut pass), Next::Write);
    for call in [2, 3, 4, 3] {
        let _ = writing.queue.push(large(call, 300_000), 300_000);
    }
    [1, 2, 3].into_iter().for_each(|call| writing.queue.abandon(call));
    assert_eq!(writing.next(&mut pass), Next::Write);
    assert_eq!(pass.discarded.len(), 4, "both of 2, both of 3");
    assert_eq!(writing.queue.large.len(), 1);
    assert!(writing.queue.large[0].is_of(&[4]));
}

#[test]
fn a_backlog_at_the_bound_is_not_a_flood() {
    let mut queue = SendQueue::default();
    let record = vec![0; SINGLE_LEN_MAX];
    (0..FLOOD_BYTES_MAX / record.len()).for_each(|_| assert!(queue.push_bytes(&record)));
    assert_eq!(queue.small_bytes(), FLOOD_BYTES_MAX);
    assert!(!queue.is_flooded() && !queue.has_room() && queue.has_small());
    let _ = queue.push_bytes(&[0]);
    assert!(queue.is_flooded());
}

#[test]
fn a_draining_queue_writes_its_frames_without_acks() {
    let mut writing = Writing::default();
    assert!(!writing.queue.is_draining() && !writing.queue.is_over());
    let _ = writing.queue.push(large(1, 300_000), 300_000);
    writing.queue.window.handle_small();
    let mut pass = Pass::new(Writer::Driver);
    assert_eq!(writing.next(&mut pass), Next::Write);
    writing.write();
    assert_eq!(writing.next(&mut pass), Next::AwaitAck);
    assert_eq!(writing.queue.turn(), Turn::Driver(Blocked::WindowFull));
    writing.queue.drain();
    assert_eq!(writing.queue.close_reason(), Some(&CloseReason::Local));
    assert_eq!(writing.queue.turn(), Turn::Driver(Blocked::TurnOver));
    assert!(writing.queue.is_draining() && !writing.queue.is_over());
    let last = loop {
        match writing.next(&mut pass) {
            Next::Write => drop(writing.write()),
            last => break last,
        }
    };
    assert_eq!(last, Next::Yield, "the connection's task waits for it");
    assert!(writing.queue.is_over() && !writing.queue.is_busy());
    writing.queue.close(CloseReason::Peer);
    assert!(writing.queue.is_over() && !writing.queue.is_draining());
    writing.queue.drain();
    assert_eq!(writing.queue.close_reason(), Some(&CloseReason::Local));
    assert!(!writing.queue.is_draining());
}
