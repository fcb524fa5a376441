//! Memory windows: what they open, and how their keys die.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpc_transport_rdma::check_windows;
use rpc_transport_rdma::memory::{LargeBuffer, Sink};
use rpc_transport_rdma::verbs::{
    Binding, Done, QueuePair, QueuePairConfig, RemoteKey, RemoteMemory, Work, WorkStatus,
};

use crate::rig::{End, connected, drive_until, pattern, routes};

const LEN: usize = 100_000;

/// Far less than the 50 s that Soft-RoCE takes for a queue pair with a bound window, and far more
/// than the milliseconds that it takes otherwise.
const TEARDOWN_MAX: Duration = Duration::from_secs(10);

/// A filled buffer of the second end and a binding to it, not posted yet.
fn binding(end: &mut End) -> (Binding, LargeBuffer) {
    let mut buffer = end.windowed.try_take(LEN).unwrap();
    buffer.copy_from_slice(&pattern(LEN, 3));
    let window = end.queue_pair.allocate_window().unwrap();
    (buffer.bind(window), buffer)
}

/// Posts work to one end and gives what came back of it.
async fn post(ends: &mut [End; 2], at: usize, batch: impl IntoIterator<Item = Work>) -> Vec<Done> {
    let batch: VecDeque<_> = batch.into_iter().collect();
    let count = batch.len();
    ends[at].post_all(batch);
    drive_until(ends, |ends| ends[at].done.len() == count).await;
    std::mem::take(&mut ends[at].done)
}

fn bound(done: Vec<Done>) -> Binding {
    let mut done = done.into_iter().inspect(|done| assert!(done.outcome.is_ok(), "{done:?}"));
    let binding = done.find_map(|done| match done.work {
        Work::Bind(binding) | Work::Invalidate(binding) => Some(binding),
        _ => None,
    });
    binding.expect("a binding came back")
}

/// Binds a window of the second end.
async fn bind(ends: &mut [End; 2]) -> (Binding, LargeBuffer) {
    let (binding, buffer) = binding(&mut ends[1]);
    let done = post(ends, 1, [Work::Bind(binding)]).await;
    (bound(done), buffer)
}

fn read(end: &End, remote: RemoteMemory) -> Work {
    let sink = Arc::new(Sink::new(end.sinks.try_take(LEN).unwrap()));
    Work::Read { sink, offset: 0, len: LEN as u32, remote }
}

/// READs from the first end; gives the bytes or the status.
async fn try_read(ends: &mut [End; 2], remote: RemoteMemory) -> Result<LargeBuffer, WorkStatus> {
    let work = read(&ends[0], remote);
    let done = post(ends, 0, [work]).await.remove(0);
    done.outcome.map_err(|error| error.status)?;
    let Work::Read { sink, .. } = done.work else { panic!("not a READ: {:?}", done.work) };
    Ok(Arc::into_inner(sink).expect("the READ held the last handle").into_buffer())
}

async fn assert_reads(ends: &mut [End; 2], remote: RemoteMemory) {
    let bytes = try_read(ends, remote).await.expect("the window is bound");
    assert!(bytes[..] == pattern(LEN, 3)[..], "the bytes differ");
}

async fn assert_refused(ends: &mut [End; 2], remote: RemoteMemory) {
    let status = try_read(ends, remote).await.expect_err("the key is dead");
    // The cause may itself show as a flush on newer kernels.
    assert!(matches!(status, WorkStatus::RemoteAccess | WorkStatus::Flushed), "{status}");
}

/// A message of the first end that takes a key of the second away.
fn invalidating(end: &End, key: RemoteKey) -> Work {
    let Work::Send { slot, len, .. } = end.send(b"done with it") else { panic!("no send") };
    Work::Send { slot, len, invalidate: Some(key) }
}

#[tokio::test]
async fn the_devices_pass_the_check_of_their_windows() {
    for [port, _] in routes() {
        let begin = Instant::now();
        check_windows(&port).unwrap();
        println!("checked in {:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn a_message_takes_the_key_away_and_its_receiver_is_told() {
    for route in routes() {
        let mut ends = connected(&route);
        let (mut binding, _buffer) = bind(&mut ends).await;
        let remote = binding.remote();
        assert_reads(&mut ends, remote).await;
        let work = invalidating(&ends[0], remote.key);
        assert!(post(&mut ends, 0, [work]).await[0].outcome.is_ok());
        drive_until(&mut ends, |ends| ends[1].messages.len() == 1).await;
        assert_eq!(ends[1].messages[0], b"done with it");
        assert_eq!(ends[1].invalidated, [Some(remote.key)]);
        assert!(binding.handle_invalidated(remote.key));
        binding.into_window().expect("the key is dead");
        assert_refused(&mut ends, remote).await;
    }
}

#[tokio::test]
async fn a_plain_message_takes_no_key_away() {
    for route in routes() {
        let mut ends = connected(&route);
        let work = ends[0].send(b"plain");
        post(&mut ends, 0, [work]).await;
        drive_until(&mut ends, |ends| ends[1].messages.len() == 1).await;
        assert_eq!(ends[1].invalidated, [None]);
    }
}

#[tokio::test]
async fn a_local_invalidation_takes_the_key_away() {
    for route in routes() {
        let mut ends = connected(&route);
        let (binding, _buffer) = bind(&mut ends).await;
        let remote = binding.remote();
        assert_reads(&mut ends, remote).await;
        let done = post(&mut ends, 1, [Work::Invalidate(binding)]).await;
        bound(done).into_window().expect("the key is dead");
        assert_refused(&mut ends, remote).await;
    }
}

#[tokio::test]
async fn a_rebound_window_has_a_new_key_and_the_old_stays_dead() {
    for route in routes() {
        let mut ends = connected(&route);
        let (mut binding, buffer) = bind(&mut ends).await;
        let first = binding.remote();
        for _ in 0..300 {
            let done = post(&mut ends, 1, [Work::Invalidate(binding)]).await;
            let window = bound(done).into_window().expect("the key is dead");
            let next = buffer.bind(window);
            binding = bound(post(&mut ends, 1, [Work::Bind(next)]).await);
        }
        assert_ne!(binding.remote(), first);
        let now = binding.remote();
        assert_reads(&mut ends, now).await;
        assert_refused(&mut ends, first).await;
    }
}

#[tokio::test]
async fn a_bind_and_the_message_that_tells_of_it_go_out_in_one_post() {
    for route in routes() {
        let mut ends = connected(&route);
        for round in 0..50 {
            let (binding, _buffer) = binding(&mut ends[1]);
            let remote = binding.remote();
            let tell = ends[1].send(&remote.address.to_le_bytes());
            ends[1].post_all(VecDeque::from([Work::Bind(binding), tell]));
            drive_until(&mut ends, |ends| ends[0].messages.len() == round + 1).await;
            assert_reads(&mut ends, remote).await;
            let work = invalidating(&ends[0], remote.key);
            post(&mut ends, 0, [work]).await;
            drive_until(&mut ends, |ends| ends[1].messages.len() == round + 1).await;
            // The device may tell of the message before it tells of the bind.
            drive_until(&mut ends, |ends| ends[1].done.len() == 2).await;
            let mut binding = bound(std::mem::take(&mut ends[1].done));
            assert!(binding.handle_invalidated(remote.key));
        }
    }
}

#[tokio::test]
async fn a_deallocated_window_cannot_be_read_through() {
    for route in routes() {
        let mut ends = connected(&route);
        let (binding, _buffer) = bind(&mut ends).await;
        let remote = binding.remote();
        assert_reads(&mut ends, remote).await;
        ends[1].queue_pair.deallocate_window(binding).unwrap();
        assert_refused(&mut ends, remote).await;
    }
}

#[tokio::test]
async fn a_window_is_for_the_peer_of_its_queue_pair_alone() {
    for route in routes() {
        let mut ends = connected(&route);
        let (binding, _buffer) = bind(&mut ends).await;
        let remote = binding.remote();
        // A second connection between the same two devices.
        let mut others = connected(&route);
        assert_refused(&mut others, remote).await;
        assert_reads(&mut ends, remote).await;
    }
}

/// Soft-RoCE's driver (`rxe_check_invalidate_mw`) does not look at the queue pair of a window whose
/// key is taken away.
#[tokio::test]
async fn the_key_of_a_window_is_its_own_peers_to_take_away() {
    for route in routes() {
        if route.iter().any(|port| port.device.name().starts_with("rxe")) {
            continue;
        }
        let mut ends = connected(&route);
        let (binding, _buffer) = bind(&mut ends).await;
        let remote = binding.remote();
        let mut others = connected(&route);
        let work = invalidating(&others[0], remote.key);
        others[0].post_all(VecDeque::from([work]));
        let probe = others[1].send(b"still there?");
        drive_until(&mut others, |others| others[0].done.len() == 1).await;
        others[1].post_all(VecDeque::from([probe]));
        drive_until(&mut others, |others| others[1].done.len() == 1).await;
        assert!(others[1].done[0].outcome.is_err(), "its queue pair has failed");
        assert_reads(&mut ends, remote).await;
    }
}

#[tokio::test]
async fn windowed_memory_cannot_be_read_by_the_key_of_its_region() {
    for route in routes() {
        let mut ends = connected(&route);
        let (binding, buffer) = bind(&mut ends).await;
        let remote = RemoteMemory { key: buffer.remote().key, ..binding.remote() };
        assert_refused(&mut ends, remote).await;
    }
}

#[tokio::test]
async fn a_meaningless_key_costs_the_receivers_connection() {
    for route in routes() {
        let mut ends = connected(&route);
        // No window and no region is so young.
        let work = invalidating(&ends[0], RemoteKey(0x00ff_ff00));
        ends[0].post_all(VecDeque::from([work]));
        let probe = ends[1].send(b"still there?");
        drive_until(&mut ends, |ends| ends[0].done.len() == 1).await;
        ends[1].post_all(VecDeque::from([probe]));
        drive_until(&mut ends, |ends| ends[1].done.len() == 1).await;
        assert!(ends[1].done[0].outcome.is_err(), "its queue pair has failed");
        assert!(!ends[1].queue_pair.is_ready());
    }
}

#[tokio::test]
async fn a_queue_pair_with_bound_windows_ends_fast_however_it_ends() {
    for route in routes() {
        for is_halted in [true, false] {
            let mut ends = connected(&route);
            let (bound, buffer) = bind(&mut ends).await;
            // One more is being bound when the end comes.
            let (other, other_buffer) = binding(&mut ends[1]);
            ends[1].post_all(VecDeque::from([Work::Bind(other)]));
            if is_halted {
                ends[1].queue_pair.halt().unwrap();
                drive_until(&mut ends, |ends| ends[1].queue_pair.is_drained()).await;
            }
            let attachment = ends[1].receives.attachment();
            let next = QueuePair::new(&attachment, &route[1], &QueuePairConfig::default()).unwrap();
            let begin = Instant::now();
            // Assigning drops the old queue pair with its windows.
            ends[1].queue_pair = next;
            ends[1].done.clear();
            drop((bound, buffer, other_buffer));
            // The whole budget in one buffer leaves no room for the cached regions.
            drop(ends[1].windowed.try_take(64 << 20).unwrap());
            assert!(begin.elapsed() < TEARDOWN_MAX, "it took {:?}", begin.elapsed());
        }
    }
}
