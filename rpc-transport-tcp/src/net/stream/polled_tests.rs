//! Connections over badly behaved streams: no byte is lost or reordered, and nothing hangs.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use rpc_core::handoff::Handoff;
use rpc_core::pool::Pool;
use rpc_core::transport::{
    Admission, CloseReason, Delivery, Handler, OutFrame, Transport, TransportError, Withdrawn,
    Withheld, WriteHead,
};
use rpc_core::wire::{HEADER_LEN, ProtocolError};
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf,
};
use tokio::sync::mpsc;

use super::awkward::{Awkward, Deed, Manners};
use super::polled::PolledStream;
use crate::codec::record::{RECORD_HEADER_LEN, SINGLE_LEN_MAX};
use crate::connection::transport::SocketTransport;
use crate::send::frame::LARGE_BYTES_MAX;

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// An event at one end of a connection.
#[derive(Debug)]
enum Heard {
    Frame(Bytes),
    Closed(CloseReason),
}

/// A handler that forwards its events.
#[derive(Debug)]
struct Ear(mpsc::UnboundedSender<Heard>);

impl Handler for Ear {
    fn handle_announced(&self, _: &[u8; HEADER_LEN], _: u64) -> Result<Admission, ProtocolError> {
        Ok(Admission::Accept { deadline: None, detacher: None })
    }

    fn handle_frame(
        &self,
        frame: Bytes,
        _: Delivery,
        _: &mut Handoff,
    ) -> Result<(), ProtocolError> {
        let _ = self.0.send(Heard::Frame(frame));
        Ok(())
    }

    fn handle_withheld(&self, _: &[u8; HEADER_LEN], _: Withheld) -> Result<(), ProtocolError> {
        Ok(())
    }

    fn handle_closed(&self, reason: CloseReason) {
        let _ = self.0.send(Heard::Closed(reason));
    }
}

/// One end of a connection.
struct StreamEnd<IO> {
    transport: Arc<SocketTransport<PolledStream<IO>>>,
    heard: mpsc::UnboundedReceiver<Heard>,
}

impl<IO: AsyncRead + AsyncWrite + Send + Unpin + 'static> StreamEnd<IO> {
    fn start(stream: IO) -> Self {
        let transport = SocketTransport::new(PolledStream::new(stream), Pool::new(0));
        let (sender, heard) = mpsc::unbounded_channel();
        transport.start(Arc::new(Ear(sender)));
        Self { transport: Arc::new(transport), heard }
    }

    async fn send(&self, frame: &[u8]) -> Result<(), TransportError> {
        self.transport.send(OutFrame::new(frame.len(), None, &mut { frame })).await
    }

    async fn next(&mut self) -> Heard {
        let heard = tokio::time::timeout(LIMIT, self.heard.recv()).await;
        heard.expect("nothing hangs").expect("the connection tells its end")
    }

    /// Receives all `expected` frames. Small frames and large frames each keep their order.
    async fn receive(&mut self, expected: &[Bytes]) {
        let mut received = Vec::new();
        while received.len() < expected.len() {
            match self.next().await {
                Heard::Frame(frame) => received.push(frame),
                Heard::Closed(reason) => panic!("ended: {reason}"),
            }
        }
        let small = |frames: &[Bytes]| -> Vec<Bytes> {
            frames.iter().filter(|frame| frame.len() <= SINGLE_LEN_MAX).cloned().collect()
        };
        assert!(small(&received) == small(expected), "small frames keep their order");
        // Large frames take turns, so their lengths decide which one ends first.
        received.sort();
        let mut expected = expected.to_vec();
        expected.sort();
        assert!(received == expected, "every byte comes once");
    }
}

/// Returns a frame of unique bytes.
fn frame(seed: u64, len: usize) -> Bytes {
    let numbers = (seed << 32..).flat_map(|number: u64| number.wrapping_mul(0x9e37).to_le_bytes());
    numbers.take(len).collect()
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        2 => Just(Deed::Refuse),
        1 => Just(Deed::RefuseForLater),
        4 => (1..100_usize).prop_map(Deed::Move),
        2 => Just(Deed::Move(100_000)),
    ]
}

fn manners() -> impl Strategy<Value = Manners> {
    let deeds = prop::collection::vec(deed(), 0..7);
    (deeds, any::<bool>(), prop_oneof![Just(0), 1..5000_usize]).prop_map(
        |(mut deeds, is_vectored, gathered_max)| {
            // At least one reaction makes progress.
            deeds.push(Deed::Move(20_000));
            Manners { deeds, is_vectored, gathered_max }
        },
    )
}

/// Returns lengths of frames, most of them short.
fn lens() -> impl Strategy<Value = Vec<usize>> {
    let len = prop_oneof![
        6 => HEADER_LEN..300,
        2 => HEADER_LEN..30_000,
        1 => SINGLE_LEN_MAX..3 * SINGLE_LEN_MAX,
    ];
    prop::collection::vec(len, 1..10)
}

/// Sends frames of these lengths in both directions at once.
async fn exchange(
    [one, other]: [DuplexStream; 2],
    [our_manners, their_manners]: [Manners; 2],
    lens: &[usize],
) {
    let mut one = StreamEnd::start(Awkward::new(one, our_manners));
    let mut other = StreamEnd::start(Awkward::new(other, their_manners));
    let frames = |seed: u64| -> Vec<Bytes> {
        lens.iter().zip(seed..).map(|(len, seed)| frame(seed, *len)).collect()
    };
    let (ours, theirs) = (frames(1), frames(1000));
    let sending = async {
        for (our, their) in ours.iter().zip(&theirs) {
            one.send(our).await.unwrap();
            other.send(their).await.unwrap();
        }
    };
    tokio::time::timeout(LIMIT, sending).await.expect("nothing hangs");
    other.receive(&ours).await;
    one.receive(&theirs).await;
    // Frames sent before the end arrive before it.
    let last = frame(7, 1000);
    one.send(&last).await.unwrap();
    one.transport.close();
    other.receive(&[last]).await;
    assert!(matches!(other.next().await, Heard::Closed(CloseReason::Peer)));
    other.transport.close();
    assert!(matches!(one.next().await, Heard::Closed(CloseReason::Local)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn no_byte_is_lost_and_nothing_hangs(
        manners in [manners(), manners()],
        capacity in prop_oneof![1..50_usize, 1..100_000_usize],
        lens in lens(),
        thread_count in 1..3_usize,
    ) {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(thread_count).enable_time().build().unwrap();
        runtime.block_on(async {
            let (one, other) = tokio::io::duplex(capacity);
            // A small pipe is slow.
            let len_max = HEADER_LEN + 200 * capacity;
            let lens: Vec<_> = lens.iter().map(|len| (*len).min(len_max)).collect();
            exchange([one, other], manners, &lens).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_bytes_between_refusals_get_through() {
    let deeds = vec![Deed::Refuse, Deed::Move(1)];
    for gathered_max in [0, 10] {
        let manners = Manners { deeds: deeds.clone(), is_vectored: true, gathered_max };
        let (one, other) = tokio::io::duplex(1);
        exchange([one, other], [manners.clone(), manners], &[32, 5000, 100, 70_000]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_senders_share_a_stream() {
    let (one, other) = tokio::io::duplex(1000);
    let (one, mut other) = (StreamEnd::start(one), StreamEnd::start(other));
    let transport = one.transport;
    let mut senders = tokio::task::JoinSet::new();
    let mut expected = Vec::new();
    for seed in 0..20_u64 {
        let frames: Vec<_> = (0..50).map(|number| frame(seed * 100 + number, 100)).collect();
        expected.extend_from_slice(&frames);
        let transport = Arc::clone(&transport);
        senders.spawn(async move {
            for frame in frames {
                let mut whole = &frame[..];
                transport.send(OutFrame::new(frame.len(), None, &mut whole)).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
    }
    senders.join_all().await;
    let mut received = Vec::new();
    while received.len() < expected.len() {
        match other.next().await {
            Heard::Frame(frame) => received.push(frame),
            Heard::Closed(reason) => panic!("ended: {reason}"),
        }
    }
    received.sort();
    expected.sort();
    assert!(received == expected);
}

/// A frame that withdraws while it is being written.
struct GivenUp;

impl WriteHead for GivenUp {
    fn write_head(&mut self, _: &mut [u8]) -> Result<(), Withdrawn> {
        Err(Withdrawn)
    }
}

#[tokio::test]
async fn a_withdrawn_frame_is_not_sent_and_frees_its_room() {
    let (one, other) = tokio::io::duplex(1 << 20);
    let (one, mut other) = (StreamEnd::start(one), StreamEnd::start(other));
    // More frames than there is room for at a time.
    for len in [SINGLE_LEN_MAX, LARGE_BYTES_MAX / 2, 2 * LARGE_BYTES_MAX] {
        for _ in 0..100 {
            let sent = one.transport.try_send(OutFrame::new(len, None, &mut GivenUp));
            assert_eq!(sent, Err(TransportError::Withdrawn));
            let sent = one.transport.send(OutFrame::new(len, None, &mut GivenUp)).await;
            assert_eq!(sent, Err(TransportError::Withdrawn));
        }
    }
    let next = frame(1, 100);
    one.send(&next).await.unwrap();
    assert!(matches!(other.next().await, Heard::Frame(heard) if heard == next));
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_owed_a_bounded_amount() {
    let (one, other) = tokio::io::duplex(1000);
    let mut one = StreamEnd::start(one);
    let mut other = other;
    let small = frame(1, 10_000);
    let mut taken = 0;
    while one.transport.try_send(OutFrame::new(small.len(), None, &mut &small[..])).unwrap() {
        taken += small.len();
    }
    let max = crate::send::queue::SMALL_BYTES_MAX + 2 * SINGLE_LEN_MAX;
    assert!((1..=max).contains(&taken), "{taken} bytes, where {max} are the most");
    assert!(!one.transport.is_flushed());
    // Once the peer reads, senders continue and everything arrives.
    let reader = tokio::spawn(async move {
        let mut received = Vec::new();
        other.read_to_end(&mut received).await.unwrap();
        received
    });
    one.send(&small).await.unwrap();
    one.transport.close();
    assert!(matches!(one.next().await, Heard::Closed(CloseReason::Local)));
    let received = reader.await.unwrap();
    assert!(received.len() > taken + small.len());
    assert!(received.ends_with(&small));
}

#[tokio::test]
async fn the_end_of_a_stream_is_reported_with_its_reason() {
    // Between frames.
    let (one, other) = tokio::io::duplex(1000);
    let mut one = StreamEnd::start(one);
    drop(other);
    assert!(matches!(one.next().await, Heard::Closed(CloseReason::Peer)));
    // Inside a frame.
    let (one, mut other) = tokio::io::duplex(1000);
    let mut one = StreamEnd::start(one);
    other.write_all(&[0; 3]).await.unwrap();
    drop(other);
    let Heard::Closed(CloseReason::Failed(reason)) = one.next().await else { panic!("frames") };
    assert!(reason.contains("inside a frame"), "{reason}");
}

/// The connection drops the stream, so the peer need not wait for handles.
#[tokio::test]
async fn an_aborted_connection_drops_its_stream() {
    let (one, mut other) = tokio::io::duplex(1000);
    let mut one = StreamEnd::start(one);
    one.transport.abort(CloseReason::Failed("enough".into()));
    assert!(matches!(one.next().await, Heard::Closed(CloseReason::Failed(_))));
    assert_eq!(other.read(&mut [0; 10]).await.unwrap(), 0);
}

/// A stream's failure, or its violation of tokio's traits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Reports more written bytes than it was given.
    WritesMore,
    /// Fails with `WouldBlock` instead of returning `Pending`, and wakes no task.
    WouldBlock,
    /// Panics.
    Panic,
    /// Accepts bytes but fails to flush them. This violates nothing.
    NoFlush,
}

/// A stream with a fault in one direction that stays silent in the other.
struct Faulty {
    fault: Fault,
    is_reading: bool,
    poll_count: usize,
    flush_count: usize,
}

impl Faulty {
    fn poll(&mut self, is_reading: bool, len: usize) -> Poll<io::Result<usize>> {
        if self.is_reading != is_reading {
            return Poll::Pending;
        }
        self.poll_count += 1;
        assert!(self.poll_count < 1000, "it is tried without a break");
        match self.fault {
            Fault::WritesMore => Poll::Ready(Ok(len + 1000)),
            Fault::WouldBlock => Poll::Ready(Err(io::ErrorKind::WouldBlock.into())),
            Fault::Panic => panic!("a fault of the stream's own"),
            Fault::NoFlush => Poll::Ready(Ok(len)),
        }
    }
}

impl AsyncRead for Faulty {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll(true, 0).map_ok(drop)
    }
}

impl AsyncWrite for Faulty {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(false, buf.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.fault != Fault::NoFlush {
            return Poll::Ready(Ok(()));
        }
        self.flush_count += 1;
        if self.flush_count == 1 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Err(io::Error::other("the far end is gone")))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Returns the reason with which a connection over a faulty stream ends.
async fn end_over(fault: Fault, is_reading: bool) -> String {
    let mut one = StreamEnd::start(Faulty { fault, is_reading, poll_count: 0, flush_count: 0 });
    if !is_reading {
        one.send(&frame(1, 100)).await.unwrap();
    }
    match one.next().await {
        Heard::Closed(CloseReason::Failed(reason)) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_stream_that_overreports_writes_has_failed() {
    let reason = end_over(Fault::WritesMore, false).await;
    assert!(reason.contains("more bytes written than it was given"), "{reason}");
}

#[tokio::test]
async fn a_stream_that_fails_with_would_block_has_failed() {
    for is_reading in [true, false] {
        let reason = end_over(Fault::WouldBlock, is_reading).await;
        assert!(reason.contains("Poll::Pending"), "{reason}");
    }
}

#[tokio::test]
async fn a_stream_that_panics_has_failed() {
    for is_reading in [true, false] {
        let reason = end_over(Fault::Panic, is_reading).await;
        assert!(reason.contains("panicked"), "{reason}");
    }
}

#[tokio::test]
async fn a_late_flush_failure_is_reported_with_its_reason() {
    assert_eq!(end_over(Fault::NoFlush, false).await, "the far end is gone");
}

/// Another task has written the sender's frame and is flushing it.
#[tokio::test]
async fn a_late_sender_leaves_the_flush_to_the_driver() {
    let manners = Manners { deeds: vec![Deed::Move(1000)], is_vectored: true, gathered_max: 1000 };
    let (one, other) = tokio::io::duplex(10);
    let (one, mut other) = (StreamEnd::start(Awkward::new(one, manners)), StreamEnd::start(other));
    let sent = frame(1, 100);
    one.send(&sent).await.unwrap();
    // The behavior of `push` for a frame that another task has taken in the meantime.
    one.transport.shared.push(|_| true).unwrap();
    other.receive(&[sent]).await;
}

/// tokio's streams refuse a task that has used up its budget, and wake it when its thread runs
/// another task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sent_frames_leave_although_the_sender_blocks() {
    let (one, mut other) = tokio::io::duplex(1 << 20);
    let one = StreamEnd::start(one);
    let transport = Arc::clone(&one.transport);
    let (release, released) = std::sync::mpsc::channel();
    let sender = tokio::spawn(async move {
        for _ in 0..200 {
            assert!(transport.try_send(OutFrame::new(100, None, &mut &[0; 100][..])).unwrap());
        }
        released.recv_timeout(LIMIT).expect("all that was sent comes");
    });
    let mut received = vec![0; 200 * (RECORD_HEADER_LEN + 100)];
    other.read_exact(&mut received).await.unwrap();
    // The sender has panicked if this took too long.
    let _ = release.send(());
    sender.await.unwrap();
}
