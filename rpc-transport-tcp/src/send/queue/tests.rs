//! What single steps of the queue do.

use rpc_core::pool::Pool;

use super::*;
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
    assert_eq!(queue.uncork(), (3, true));
    assert!(push(&mut queue, 100));
}

#[test]
fn no_task_writes_to_a_full_socket_and_small_frames_go_between_turns() {
    let turn = Turn::Driver(Blocked::SocketFull);
    let mut queue = SendQueue { turn, ..SendQueue::default() };
    assert!(!push(&mut queue, 100));
    queue.handle_writable();
    assert_eq!(queue.turn(), Turn::Driver(Blocked::TurnOver));
    assert!(push(&mut queue, 100));
}

#[test]
fn no_more_calls_are_remembered_than_a_bound_and_none_twice() {
    let mut queue = SendQueue::default();
    queue.abandon(1);
    assert_eq!(queue.abandoned, [], "nothing is queued");
    let _ = push(&mut queue, 100);
    (0..3).for_each(|_| queue.abandon(1));
    assert_eq!(queue.abandoned, [1]);
    (0..10_000).for_each(|call| queue.abandon(call));
    assert_eq!(queue.abandoned.len(), ABANDONED_MAX);
    let mut pass = Pass::new(Writer::Sender);
    let _ = queue.next(&mut WriteScheduler::default(), &mut pass, Instant::now);
    assert_eq!(queue.abandoned, []);
}

#[test]
fn headers_take_their_place_up_to_a_bound() {
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
}

#[test]
fn a_chunk_is_over_when_all_of_it_is_written() {
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
fn room_is_what_is_neither_queued_nor_staged() {
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
