//! The reading half of the driver, which is the connection's task.
//!
//! The send queue is corked while the frames of a read are delivered, so that replies made in place
//! go out together. Frames that only wake a task, such as replies that wake their callers, keep it
//! corked until the woken tasks have run. Their next requests can then go out together, too. The
//! unary reply to a frame that came alone does not wait.
//!
//! A driver that another thread could replace delivers each frame together with itself, in a
//! [`Handoff`]. If the frame's handler blocks, another task takes over the connection, and this one
//! ends when the handler returns.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::time::Instant;

use rpc_core::handoff::{Handoff, displace_lifo_slot, yield_now};
use rpc_core::transport::{CloseReason, Counters, Delivery, Handler};
use tokio::runtime::Handle;

use crate::codec::decoder::{Decoder, DecoderEvent};
use crate::connection::driver::{ConnectionDriver, Ended};
use crate::connection::shared::ConnectionShared;
use crate::connection::socket::{Moved, Socket};
use crate::send::turn::Turn;

/// Bytes read before other tasks get their turn: about 30 us.
const TURN_BYTES: usize = 128 << 10;

impl<S: Socket> ConnectionShared<S> {
    /// Reads until the connection ends, and returns the reason.
    pub(crate) async fn read(
        &self,
        driver: Box<ConnectionDriver<S>>,
        handler: &dyn Handler,
    ) -> Ended {
        match self.read_on(driver, handler).await {
            Err(ended) => ended,
            Ok(never) => match never {},
        }
    }

    async fn read_on(
        &self,
        mut driver: Box<ConnectionDriver<S>>,
        handler: &dyn Handler,
    ) -> Result<Infallible, Ended> {
        // A delivery that was taken over has left its replies corked, and frames in the buffer.
        self.uncork();
        let mut read = Moved { len: 0, is_exhausted: true };
        let mut turn_bytes = 0;
        // True if this poll has woken a task, which may be in the worker's LIFO slot.
        let mut has_woken = false;
        loop {
            // The first round has read nothing: it delivers the frames that a taken-over delivery
            // left.
            self.counters.received_bytes.add(read.len as u64);
            turn_bytes += read.len;
            let woken;
            (driver, woken) = self.deliver(driver, handler, &mut has_woken)?;
            let decoder = &mut driver.decoder;
            self.chunks_received.update(decoder);
            // With large frames in flight, all cores are busy. Arriving bytes wake the runtime's
            // next thread, which gets the core of this one and continues with the connection. A
            // task in this thread's LIFO slot then waits for a slice of the scheduler: 0.4 ms for
            // three small calls in a hundred, 1.4 ms for one, against 0.06 ms for the others (two
            // cores, Linux 6.18). Woken tasks therefore run first, not after the next write, since
            // a thread loses its core in the kernel.
            let is_shared = woken.count > 0 && woken.is_beside_large;
            if is_shared {
                displace_lifo_slot(&Handle::current());
                yield_now().await;
            }
            let is_over = turn_bytes >= TURN_BYTES;
            // An ack is cumulative. One at the end of the turn replaces one per read.
            if is_over || read.is_exhausted {
                self.send_ack(decoder);
            }
            let is_gathering = woken.count > 1;
            // A peer that never pauses must not starve the thread's other tasks.
            if !is_shared && (is_gathering || is_over) {
                yield_now().await;
            }
            // After a yield this is a new poll, and the woken tasks have run.
            if is_shared || is_gathering || is_over {
                (turn_bytes, has_woken) = (0, false);
            }
            // The woken tasks have had their chance to send. Whatever they queued leaves in one
            // write.
            if is_gathering {
                self.uncork();
            }
            let next = if read.is_exhausted { None } else { self.read_some(decoder)? };
            read = match next {
                Some(read) => read,
                None => {
                    turn_bytes = 0;
                    self.read_next(decoder, &mut has_woken).await?
                }
            };
        }
    }

    /// Waits until the socket is readable, and reads once. Waiting ends the poll that `has_woken`
    /// refers to.
    async fn read_next(
        &self,
        decoder: &mut Decoder,
        has_woken: &mut bool,
    ) -> Result<Moved, CloseReason> {
        loop {
            self.send_ack(decoder);
            decoder.release_if_empty();
            let readable = poll_fn(|cx| {
                let readable = self.socket.poll_readable(cx);
                *has_woken &= readable.is_ready();
                readable
            });
            if let Err(error) = readable.await {
                return Err(CloseReason::Failed(error.into()));
            }
            if let Some(read) = self.read_some(decoder)? {
                return Ok(read);
            }
        }
    }

    /// Queues an ack for the bytes read so far, if the peer wants one.
    fn send_ack(&self, decoder: &mut Decoder) {
        if let Some(read) = decoder.acks.take() {
            // Fails only if this side has closed. No ack is needed then.
            let _ = self.push(|queue| queue.push_ack(read));
        }
    }

    /// Reads once. Returns `None` if there is nothing to read.
    fn read_some(&self, decoder: &mut Decoder) -> Result<Option<Moved>, CloseReason> {
        let is_between_frames = decoder.is_between_frames();
        self.counters.kernel_reads.add(1);
        let read = if let Some((tail, len)) = decoder.tail() {
            let read = self.socket.try_append(tail, len);
            decoder.filled_tail(read.as_ref().map_or(0, |moved| moved.len));
            read
        } else {
            let [direct, buffer] = decoder.read_slices();
            let read = if direct.is_empty() {
                self.socket.try_read(&mut [IoSliceMut::new(buffer)])
            } else {
                self.socket.try_read(&mut [IoSliceMut::new(direct), IoSliceMut::new(buffer)])
            };
            decoder.filled(read.as_ref().map_or(0, |moved| moved.len));
            read
        };
        // Between frames, an end is a clean close. Anywhere else, part of a frame is lost.
        match read {
            Ok(Moved { len: 0, .. }) if is_between_frames => Err(CloseReason::Peer),
            Ok(Moved { len: 0, .. }) => {
                let message = "the peer closed the connection inside a frame";
                Err(CloseReason::Failed(message.into()))
            }
            Ok(moved) => Ok(Some(moved)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(CloseReason::Failed(error.into())),
        }
    }

    /// Delivers the received frames. If several have woken a task, the queue stays corked.
    fn deliver(
        &self,
        mut driver: Box<ConnectionDriver<S>>,
        handler: &dyn Handler,
        has_woken: &mut bool,
    ) -> Result<(Box<ConnectionDriver<S>>, Woken), Ended> {
        let mut received = Received::default();
        let mut is_unblocked = false;
        let (mut is_first, mut is_last) = (true, false);
        while !is_last && let Some(event) = driver.decoder.next()? {
            if std::mem::take(&mut is_first) {
                // A unary reply that nothing can join is written where it is made.
                is_last = driver.decoder.is_between_frames() && !driver.decoder.acks.is_due();
                self.queue().begin_delivery(is_last);
            }
            match event {
                DecoderEvent::Announced { prefix, len } => {
                    driver.decoder.admit(handler.handle_announced(&prefix, len)?);
                }
                DecoderEvent::Frame { frame, delivery } => {
                    received.count(&delivery);
                    let had_woken = *has_woken || S::WAKES;
                    if !driver.can_be_replaced() {
                        let mut handoff = Handoff::without_driver(had_woken);
                        handler.handle_frame(frame, delivery, &mut handoff)?;
                        *has_woken = handoff.has_woken();
                    } else {
                        let mut handoff = Handoff::new(driver, had_woken);
                        let result = handler.handle_frame(frame, delivery, &mut handoff);
                        *has_woken = handoff.has_woken();
                        let Some(returned) = handoff.into_driver() else {
                            // The other task has uncorked the queue, and now reads and writes.
                            received.add_to(&self.counters);
                            return Err(Ended::TakenOver);
                        };
                        driver = returned;
                        result?;
                    }
                }
                DecoderEvent::Ack { read } => {
                    is_unblocked |= self.queue().handle_ack(read, Instant::now())?;
                }
            }
        }
        received.add_to(&self.counters);
        let decoder = &mut driver.decoder;
        self.counters.copied_bytes.add(decoder.take_copied_bytes());
        // The writing half runs in this same task, so one notification after the delivery is
        // enough.
        if is_unblocked {
            self.driver_wakeup.notify_one();
        }
        if decoder.acks.is_due() && self.queue().has_small() {
            // The write happens anyway, so the ack is free.
            self.send_ack(decoder);
        }
        let is_shared = driver.is_on_several_threads();
        let (count, turn) = self.uncork_delivered(received.sum(), is_shared);
        if count > 1 {
            self.queue().cork();
        }
        let is_beside_large = driver.decoder.has_transfers() || matches!(turn, Turn::Driver(_));
        Ok((driver, Woken { count, is_beside_large }))
    }
}

/// The delivered frames that woke a task and have no reply yet.
#[derive(Debug)]
struct Woken {
    count: u64,
    /// True if large frames are in flight in either direction. A full socket also counts.
    is_beside_large: bool,
}

/// The number of frames in one delivery.
#[derive(Debug, Default)]
struct Received {
    small_count: u64,
    large_count: u64,
}

impl Received {
    fn count(&mut self, delivery: &Delivery) {
        let is_small = matches!(delivery, Delivery::Whole);
        self.small_count += u64::from(is_small);
        self.large_count += u64::from(!is_small);
    }

    fn sum(&self) -> u64 {
        self.small_count + self.large_count
    }

    fn add_to(&self, counters: &Counters) {
        counters.small_received.add(self.small_count);
        counters.large_received.add(self.large_count);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt;
    use std::future::Future as _;
    use std::io::{Read, Write};
    use std::pin::pin;
    use std::sync::{Arc, mpsc};
    use std::task::{Context, Waker};
    use std::time::Duration;

    use bytes::Bytes;
    use parking_lot::Mutex;
    use rpc_core::pool::Pool;
    use rpc_core::transport::{Admission, OutFrame, Transport as _, Withheld};
    use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN, ProtocolError};
    use tokio::net::UnixStream;

    use super::*;
    use crate::codec::record::{self, RECORD_HEADER_LEN, RecordHeader, RecordKind};
    use crate::connection::transport::SocketTransport;

    /// Far more than anything here takes.
    const LIMIT: Duration = Duration::from_secs(20);

    /// Accepts everything, and calls the function with each complete frame.
    pub(in crate::connection) struct OnFrame<F>(pub(in crate::connection) F);

    impl<F> fmt::Debug for OnFrame<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("OnFrame")
        }
    }

    impl<F: Fn(Bytes, &mut Handoff) + Send + Sync + 'static> Handler for OnFrame<F> {
        fn handle_announced(
            &self,
            _: &[u8; HEADER_LEN],
            _: u64,
        ) -> Result<Admission, ProtocolError> {
            Ok(Admission::Accept { deadline: None, detacher: None })
        }

        fn handle_frame(
            &self,
            frame: Bytes,
            _: Delivery,
            handoff: &mut Handoff,
        ) -> Result<(), ProtocolError> {
            (self.0)(frame, handoff);
            Ok(())
        }

        fn handle_withheld(&self, _: &[u8; HEADER_LEN], _: Withheld) -> Result<(), ProtocolError> {
            Ok(())
        }

        fn handle_closed(&self, _: CloseReason) {}
    }

    /// Returns a driver whose handler is another than the one that a test reads for.
    fn driver(shared: &Arc<ConnectionShared<UnixStream>>) -> Box<ConnectionDriver<UnixStream>> {
        ConnectionDriver::new(Arc::clone(shared), Arc::new(OnFrame(|_, _: &mut Handoff| {})))
    }

    /// Sends the header of `frame` back.
    fn echo(transport: &SocketTransport<UnixStream>, frame: &Bytes) {
        transport.send_control(*frame.first_chunk().unwrap()).unwrap();
    }

    /// Encodes a chunk that asks for an ack and does not complete its frame, and a small frame.
    fn chunk_and_frame() -> Vec<u8> {
        let body = [0; HEADER_LEN];
        let len = size_of::<u64>() + body.len();
        let chunk = RecordHeader { kind: RecordKind::First, len, transfer: 1, wants_ack: true };
        let frame = RecordHeader::new(RecordKind::Single, body.len());
        let parts: [&[u8]; 5] =
            [&chunk.to_bytes(), &100_000_u64.to_le_bytes(), &body, &frame.to_bytes(), &body];
        parts.concat()
    }

    #[tokio::test]
    async fn with_large_frames_a_woken_task_runs_before_writes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut theirs = theirs.into_std().unwrap();
        theirs.write_all(&chunk_and_frame()).unwrap();
        let shared = SocketTransport::new(ours, Pool::new(0)).shared;
        let count = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&count);
        let taker = OnFrame(move |_, _: &mut Handoff| *counted.lock() += 1);
        let mut context = Context::from_waker(Waker::noop());
        shared.socket.readable().await.unwrap();
        let mut reading = pin!(shared.read(driver(&shared), &taker));
        let mut received = [0; 64];
        assert!(reading.as_mut().poll(&mut context).is_pending());
        assert_eq!(*count.lock(), 1);
        let nothing = theirs.read(&mut received).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert!(reading.as_mut().poll(&mut context).is_pending());
        let len = theirs.read(&mut received).unwrap();
        assert_eq!(received[..len], record::ack(HEADER_LEN as u64));
    }

    /// Without this, a handler that blocks would keep a task from running that a delivery of the
    /// same poll has spawned.
    #[tokio::test]
    async fn a_wake_is_known_to_later_deliveries_of_the_same_poll() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut theirs = theirs.into_std().unwrap();
        // Two of them exceed a read.
        let frame = [&RecordHeader::new(RecordKind::Single, 40_000).to_bytes()[..], &[0; 40_000]];
        let frame = frame.concat();
        theirs.write_all(&[&frame[..], &frame].concat()).unwrap();
        let shared = SocketTransport::new(ours, Pool::new(0)).shared;
        shared.socket.readable().await.unwrap();
        // For each frame, if an earlier one of the same poll has woken a task.
        let known = Arc::new(Mutex::new(Vec::new()));
        let knows = Arc::clone(&known);
        let waking = OnFrame(move |_, handoff: &mut Handoff| {
            knows.lock().push(handoff.has_woken());
            handoff.woke();
        });
        let mut reading = pin!(shared.read(driver(&shared), &waking));
        let mut context = Context::from_waker(Waker::noop());
        assert!(reading.as_mut().poll(&mut context).is_pending());
        assert_eq!(*known.lock(), [false, true]);
        theirs.write_all(&frame).unwrap();
        shared.socket.readable().await.unwrap();
        assert!(reading.as_mut().poll(&mut context).is_pending());
        assert_eq!(*known.lock(), [false, true, false], "another poll");
    }

    /// Returns a small frame filled with one byte.
    fn frame(byte: u8) -> Vec<u8> {
        let header = RecordHeader::new(RecordKind::Single, HEADER_LEN);
        [&header.to_bytes()[..], &[byte; HEADER_LEN]].concat()
    }

    #[tokio::test]
    async fn an_answer_that_none_can_join_leaves_at_once() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let peer = Arc::new(theirs.into_std().unwrap());
        let transport = SocketTransport::new(ours, Pool::new(0));
        let shared = Arc::clone(&transport.shared);
        // The frames of each answer, and for each delivery, if a part has reached the peer by then.
        let answer = Arc::new(Mutex::new(Vec::new()));
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let (at_peer, arrives) = (Arc::clone(&peer), Arc::clone(&arrived));
        let kinds = Arc::clone(&answer);
        let answering = OnFrame(move |_, _: &mut Handoff| {
            for kind in &*kinds.lock() {
                let header = FrameHeader::bare(*kind, 1).to_bytes();
                let mut head = &header[..];
                let frame = OutFrame::new(HEADER_LEN, None, &mut head);
                assert_eq!(transport.try_send(frame), Ok(true));
            }
            arrives.lock().push((&*at_peer).read(&mut [0; 1000]).is_ok());
        });
        let mut reading = pin!(shared.read(driver(&shared), &answering));
        let mut context = Context::from_waker(Waker::noop());
        let stream = [FrameKind::Headers, FrameKind::Messages, FrameKind::Response];
        for (kinds, frames, has_arrived) in [
            (&stream[2..], frame(1), vec![true]),
            (&stream[2..], [frame(2), frame(3)].concat(), vec![false, false]),
            (&stream[..], frame(4), vec![false]),
            (&stream[2..], frame(5), vec![true]),
        ] {
            *answer.lock() = kinds.to_vec();
            (&*peer).write_all(&frames).unwrap();
            shared.socket.readable().await.unwrap();
            let writes = shared.counters.snapshot().kernel_writes;
            assert!(reading.as_mut().poll(&mut context).is_pending());
            assert_eq!(std::mem::take(&mut *arrived.lock()), has_arrived);
            // What has gathered leaves by the end of the read.
            assert_eq!((&*peer).read(&mut [0; 1000]).is_ok(), has_arrived != [true]);
            assert_eq!(shared.counters.snapshot().kernel_writes, writes + 1);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn frames_around_a_blocking_handler_are_answered() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (release, let_go) = mpsc::channel();
        let transport = SocketTransport::new(ours, Pool::new(0));
        let shared = Arc::clone(&transport.shared);
        let answering = SocketTransport { shared: Arc::clone(&shared) };
        let (count, let_go) = (Mutex::new(0), Mutex::new(let_go));
        let blocking = OnFrame(move |frame, handoff: &mut Handoff| {
            let number = {
                let mut count = count.lock();
                *count += 1;
                *count
            };
            handoff.release();
            if number == 2 {
                let_go.lock().recv_timeout(LIMIT).unwrap();
            }
            echo(&answering, &frame);
        });
        let mut theirs = theirs.into_std().unwrap();
        theirs.write_all(&[frame(1), frame(2), frame(3)].concat()).unwrap();
        transport.start(Arc::new(blocking));
        theirs.set_nonblocking(false).unwrap();
        theirs.set_read_timeout(Some(LIMIT)).unwrap();
        let reader = tokio::task::spawn_blocking(move || {
            let mut answer = [0; 2 * (RECORD_HEADER_LEN + HEADER_LEN)];
            theirs.read_exact(&mut answer).expect("the answers before and behind it");
            assert_eq!(answer[..], [frame(1), frame(3)].concat());
            // Later frames are read, too, and the end is noticed.
            theirs.write_all(&frame(4)).unwrap();
            let answer = &mut answer[..RECORD_HEADER_LEN + HEADER_LEN];
            theirs.read_exact(answer).expect("the answer to what came later");
            release.send(()).unwrap();
            theirs.read_exact(answer).expect("the answer of the handler that blocked");
            assert_eq!(answer[..], frame(2));
        });
        reader.await.unwrap();
        let over = async {
            while !shared.queue().is_over() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, over).await.expect("the end is noticed");
        // The blocked delivery counts its frames when its handler returns, possibly after the
        // connection has ended.
        let counted = async {
            while shared.counters.snapshot().small_received < 4 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, counted).await.expect("all frames are counted");
        assert_eq!(shared.counters.snapshot().small_received, 4);
    }

    #[tokio::test]
    async fn bytes_in_the_kernel_are_unread() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let transport = SocketTransport::new(ours, Pool::new(0));
        assert!(!transport.has_unread());
        theirs.into_std().unwrap().write_all(&frame(1)).unwrap();
        assert!(transport.has_unread());
    }
}
