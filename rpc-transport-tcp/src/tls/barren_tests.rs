//! Records with little or no content, which a peer may send without end.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use tokio::io::AsyncReadExt as _;

use super::pair::Both;
use super::session::BARREN_LEN_MAX;
use super::socket::TlsSocket;
use crate::connection::socket::{Moved, Socket as _};

/// Overhead of a record in bytes.
const RECORD_EXTRA: usize = 22;

/// Number of bytes that rustls takes at a time.
const STEP: usize = 4 << 10;

/// Number of one-byte records: they fit the kernel's buffers, and exceed a turn.
const RECORDS: usize = 4 * BARREN_LEN_MAX / (RECORD_EXTRA - 1);

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

async fn flooded() -> [TlsSocket; 2] {
    let [client, server] = Both::new().session().await.unwrap();
    for _ in 0..RECORDS {
        let moved = client.try_write(&[IoSlice::new(b"x")]).unwrap();
        assert_eq!(moved, Moved { len: 1, is_exhausted: false });
    }
    [client, server]
}

/// One call would decrypt for as long as the peer sends, under the session's lock, on a thread that
/// other tasks need.
#[tokio::test]
async fn a_read_yields_to_other_tasks_and_loses_nothing() {
    let [_client, server] = flooded().await;
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut cx = Context::from_waker(&waker);
    let (mut memory, mut read, mut turns) = (vec![0; 64 << 10], 0, 0);
    while read < RECORDS {
        if server.poll_readable(&mut cx).is_pending() {
            match count.0.swap(0, Ordering::Relaxed) {
                0 => tokio::task::yield_now().await,
                _ => turns += 1,
            }
            continue;
        }
        let moved = match server.try_read(&mut [IoSliceMut::new(&mut memory)]) {
            Ok(moved) => moved,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => panic!("{error}"),
        };
        assert!(moved.len * (RECORD_EXTRA - 1) <= BARREN_LEN_MAX + STEP, "{moved:?}");
        assert!(memory[..moved.len].iter().all(|byte| *byte == b'x'));
        read += moved.len;
    }
    assert!(turns >= 3, "there were {turns} turns");
}

#[tokio::test]
async fn reading_into_an_empty_buffer_ends_at_once() {
    let [_client, mut server] = flooded().await;
    assert_eq!(server.read(&mut []).await.unwrap(), 0);
}
