//! Large messages by READ.

use std::collections::VecDeque;
use std::sync::Arc;

use rpc_transport_rdma::memory::{Access, LargeBuffer, RegionPool, Sink};
use rpc_transport_rdma::verbs::{Done, RemoteKey, RemoteMemory, Work, WorkStatus};

use crate::rig::{End, connected, drive_until, pattern, routes};

const MIB: usize = 1 << 20;

/// READs of `len` bytes in chunks into one sink.
fn reads(end: &End, remote: RemoteMemory, len: usize, chunk: usize) -> VecDeque<Work> {
    let sink = Arc::new(Sink::new(end.sinks.try_take(len).unwrap()));
    let starts = (0..len).step_by(chunk);
    starts
        .map(|offset| Work::Read {
            sink: Arc::clone(&sink),
            offset,
            len: chunk.min(len - offset) as u32,
            remote: remote.offset(offset as u64).unwrap(),
        })
        .collect()
}

/// The buffers of all sinks that are whole again.
fn buffers(done: &mut Vec<Done>) -> Vec<LargeBuffer> {
    let sinks = done.drain(..).filter_map(|done| match done.work {
        Work::Read { sink, .. } => Arc::into_inner(sink),
        _ => None,
    });
    sinks.map(Sink::into_buffer).collect()
}

#[tokio::test]
async fn pipelined_reads_fetch_a_large_message() {
    // A kernel that cannot have them reordered writes them in order.
    let accesses = [Access::Sink, Access::RelaxedSink];
    for (route, access) in routes().iter().flat_map(|route| accesses.map(|it| (route, it))) {
        let mut ends = connected(route);
        ends[0].sinks = RegionPool::new(&ends[0].port.device, access, 64 << 20);
        let len = 8 * MIB - 4321;
        let expected = pattern(len, 5);
        let mut source = ends[1].sources.try_take(len).unwrap();
        source.copy_from_slice(&expected);
        let batch = reads(&ends[0], source.remote(), len, MIB);
        assert_eq!(batch.len(), 8);
        ends[0].post_all(batch);
        drive_until(&mut ends, |ends| ends[0].done.len() == 8).await;
        assert!(ends[0].done.iter().all(|done| done.outcome.is_ok()));
        assert_eq!(ends[0].send_completions, 1);
        let buffers = buffers(&mut ends[0].done);
        assert_eq!(buffers.len(), 1);
        assert!(buffers[0][..] == expected[..], "the message differs");
    }
}

/// Fails to READ from the second end and expects everything back; returns the first error.
async fn refused(ends: &mut [End; 2], remote: RemoteMemory, len: usize) -> WorkStatus {
    let mut batch = reads(&ends[0], remote, len, len.div_ceil(3));
    batch.push_back(ends[0].send(b"behind the READs"));
    let count = batch.len();
    ends[0].post_all(batch);
    drive_until(ends, |ends| ends[0].done.len() == count).await;
    assert!(!ends[0].queue_pair.is_ready());
    assert!(ends[0].done.iter().all(|done| done.outcome.is_err()));
    let errors = ends[0].done.iter().filter_map(|done| done.outcome.err());
    let causes: Vec<_> = errors.filter(|error| !error.is_flush()).collect();
    // The cause may itself show as a flush on newer kernels, but there is never a second one.
    assert!(causes.len() <= 1, "{causes:?}");
    let status = causes.first().map_or(WorkStatus::Flushed, |error| error.status);
    assert_eq!(buffers(&mut ends[0].done).len(), 1);
    assert!(ends[0].has_all_slots());
    assert_eq!(ends[0].sinks.bytes_in_use(), 0);
    assert!(ends[1].messages.is_empty());
    status
}

fn assert_refusal(status: WorkStatus) {
    assert!(matches!(status, WorkStatus::RemoteAccess | WorkStatus::Flushed), "{status}");
}

#[tokio::test]
async fn a_bad_key_is_refused_and_everything_comes_back() {
    for route in routes() {
        let mut ends = connected(&route);
        let source = ends[1].sources.try_take(MIB).unwrap();
        let remote =
            RemoteMemory { key: RemoteKey(source.remote().key.0 ^ 0x55), ..source.remote() };
        assert_refusal(refused(&mut ends, remote, 3000).await);
    }
}

#[tokio::test]
async fn a_read_past_the_end_is_refused() {
    for route in routes() {
        let mut ends = connected(&route);
        let source = ends[1].sources.try_take(8192).unwrap();
        let remote = source.remote().offset(8192 - 10).unwrap();
        assert_refusal(refused(&mut ends, remote, 3000).await);
    }
}

#[tokio::test]
async fn a_key_opens_one_buffer_only() {
    for route in routes() {
        let mut ends = connected(&route);
        let source = ends[1].sources.try_take(8192).unwrap();
        let other = ends[1].sources.try_take(8192).unwrap();
        let remote = RemoteMemory { key: source.remote().key, ..other.remote() };
        assert_refusal(refused(&mut ends, remote, 3000).await);
    }
}

#[tokio::test]
async fn memory_that_is_received_into_cannot_be_read_by_the_peer() {
    for route in routes() {
        let mut ends = connected(&route);
        let sink = ends[1].sinks.try_take(8192).unwrap();
        assert_refusal(refused(&mut ends, sink.remote(), 3000).await);
    }
}

#[tokio::test]
async fn an_evicted_source_cannot_be_read_any_more() {
    for route in routes() {
        let mut ends = connected(&route);
        let source = ends[1].sources.try_take(8192).unwrap();
        let remote = source.remote();
        drop(source);
        // The whole budget in one buffer leaves no room for the cached one.
        drop(ends[1].sources.try_take(64 << 20).unwrap());
        assert_refusal(refused(&mut ends, remote, 3000).await);
    }
}
