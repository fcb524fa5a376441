//! The reading half of the driver, which is the connection's task.
//!
//! What a read brings is delivered with the queue of what goes out corked: answers that are made in
//! place go out together. Frames that only wake somebody, as answers wake their callers, keep it
//! corked until those who were woken have had their turn, since what they send next can go out
//! together too.

use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::Shutdown;
use std::time::Duration;

use rpc_core::transport::{CloseReason, Handler};
use rpc_core::wire::ProtocolError;

use crate::giving_way::give_way;
use crate::incoming::{Event, Incoming};
use crate::socket::{Moved, Socket};
use crate::transport::Shared;

/// How much is read before other tasks have their turn: about 30 us.
const TURN_BYTES: usize = 128 << 10;

/// How long a closing connection waits for the peer to close too.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// What is read at a time only to be thrown away.
const SINK_LEN: usize = 16 << 10;

impl<S: Socket> Shared<S> {
    /// Reads until the connection ends, and says why it did.
    pub(crate) async fn read(&self, handler: &dyn Handler) -> CloseReason {
        let mut incoming = Incoming::new(self.pool.clone());
        loop {
            incoming.rest();
            if let Err(error) = poll_fn(|cx| self.socket.poll_readable(cx)).await {
                return CloseReason::Failed(error.to_string());
            }
            match self.read_available(&mut incoming, handler).await {
                Ok(()) => {}
                Err(reason) => return reason,
            }
        }
    }

    async fn read_available(
        &self,
        incoming: &mut Incoming,
        handler: &dyn Handler,
    ) -> Result<(), CloseReason> {
        let mut turn_bytes = 0;
        while let Some(Moved { len, is_exhausted }) = self.read_some(incoming)? {
            incoming.filled(len);
            self.counters.received_bytes.add(len as u64);
            turn_bytes += len;
            let woken_count = self.deliver(incoming, handler)?;
            self.pieces_received.update(incoming);
            let is_shared = woken_count > 0 && self.has_large_under_way(incoming);
            if is_shared {
                give_way().await;
            }
            let is_over = turn_bytes >= TURN_BYTES;
            if is_over || is_exhausted {
                self.send_receipt(incoming);
            }
            let is_gathering = woken_count > 1;
            // A peer that never pauses must not keep this thread from anybody else.
            if !is_shared && (is_gathering || is_over) {
                tokio::task::yield_now().await;
            }
            if is_shared || is_gathering || is_over {
                turn_bytes = 0;
            }
            if is_gathering {
                self.uncork();
            }
            if is_exhausted {
                return Ok(());
            }
        }
        self.send_receipt(incoming);
        Ok(())
    }

    /// Tells the peer what has been read, if it wants to know.
    fn send_receipt(&self, incoming: &mut Incoming) {
        if let Some(read) = incoming.receipts.take() {
            // Whoever has closed need not be told.
            let _ = self.push(|queue| queue.push_receipt(read));
        }
    }

    /// Reads once; `None` when there is nothing to read.
    fn read_some(&self, incoming: &mut Incoming) -> Result<Option<Moved>, CloseReason> {
        let is_between_frames = incoming.is_between_frames();
        let [direct, buffer] = incoming.spare();
        self.counters.kernel_calls.add(1);
        let read = if direct.is_empty() {
            self.socket.try_read(&mut [IoSliceMut::new(buffer)])
        } else {
            self.socket.try_read(&mut [IoSliceMut::new(direct), IoSliceMut::new(buffer)])
        };
        match read {
            Ok(Moved { len: 0, .. }) if is_between_frames => Err(CloseReason::Peer),
            Ok(Moved { len: 0, .. }) => {
                let words = "the peer closed the connection inside a frame";
                Err(CloseReason::Failed(words.into()))
            }
            Ok(moved) => Ok(Some(moved)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(CloseReason::Failed(error.to_string())),
        }
    }

    /// Whether large frames share the way, in either direction. A socket that is full counts too.
    fn has_large_under_way(&self, incoming: &Incoming) -> bool {
        incoming.has_transfers() || self.queue().hold.is_some()
    }

    /// Delivers what has arrived. Says how many frames have woken somebody who has not answered
    /// yet; with several of them the queue stays corked.
    fn deliver(
        &self,
        incoming: &mut Incoming,
        handler: &dyn Handler,
    ) -> Result<u64, ProtocolError> {
        self.queue().cork();
        let [mut small_count, mut large_count] = [0; 2];
        let mut is_let_on = false;
        while let Some(event) = incoming.next()? {
            match event {
                Event::Announced { prefix, len } => {
                    incoming.admit(handler.handle_announced(&prefix, len)?);
                }
                Event::Frame { frame, large } => {
                    let count = if large { &mut large_count } else { &mut small_count };
                    *count += 1;
                    handler.handle_frame(frame)?;
                }
                Event::Receipt { read } => is_let_on |= self.queue().handle_receipt(read)?,
            }
        }
        self.counters.small_received.add(small_count);
        self.counters.large_received.add(large_count);
        self.counters.copied_bytes.add(incoming.take_copied_bytes());
        if is_let_on {
            self.held.notify_one();
        }
        if self.queue().has_small() {
            // It costs nothing in a write that is made anyway.
            self.send_receipt(incoming);
        }
        let answered_count = self.uncork() as u64;
        let woken_count = (small_count + large_count).saturating_sub(answered_count);
        if woken_count > 1 {
            self.queue().cork();
        }
        Ok(woken_count)
    }

    /// Says that nothing more will come, and throws away what the peer still sends until it has
    /// closed too, within bounds. A socket that is closed with bytes unread resets the connection,
    /// which takes from the peer what it has not read yet.
    pub(crate) async fn linger(&self) {
        if socket2::SockRef::from(&self.socket).shutdown(Shutdown::Write).is_err() {
            return;
        }
        let closed_by_peer = async {
            let mut sink = self.pool.take(SINK_LEN);
            while poll_fn(|cx| self.socket.poll_readable(cx)).await.is_ok() {
                match self.socket.try_read(&mut [IoSliceMut::new(&mut sink)]) {
                    Ok(Moved { len: 0, .. }) => return,
                    Ok(_) => tokio::task::consume_budget().await,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        let _ = tokio::time::timeout(LINGER_TIMEOUT, closed_by_peer).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::io::{Read, Write};
    use std::pin::pin;
    use std::sync::Mutex;
    use std::task::{Context, Waker};

    use bytes::Bytes;
    use rpc_core::pool::Pool;
    use rpc_core::transport::{Admission, Withheld};
    use rpc_core::wire::HEADER_LEN;
    use tokio::net::UnixStream;

    use super::*;
    use crate::record::{self, RecordHeader, RecordKind};
    use crate::transport::SocketTransport;

    /// Takes everything, and knows how many frames came whole.
    #[derive(Debug, Default)]
    struct Taker(Mutex<usize>);

    impl Handler for Taker {
        fn handle_announced(
            &self,
            _: &[u8; HEADER_LEN],
            _: u64,
        ) -> Result<Admission, ProtocolError> {
            Ok(Admission::Accept { deadline: None })
        }

        fn handle_frame(&self, _: Bytes) -> Result<(), ProtocolError> {
            *self.0.lock().unwrap() += 1;
            Ok(())
        }

        fn handle_withheld(&self, _: &[u8; HEADER_LEN], _: Withheld) -> Result<(), ProtocolError> {
            Ok(())
        }

        fn handle_closed(&self, _: CloseReason) {}
    }

    /// A piece that asks for a receipt, of a frame that is not whole with it, and a small frame.
    fn piece_and_frame() -> Vec<u8> {
        let body = [0; HEADER_LEN];
        let len = size_of::<u64>() + body.len();
        let piece = RecordHeader { kind: RecordKind::First, len, transfer: 1, asks: true };
        let frame = RecordHeader::new(RecordKind::Whole, body.len());
        let parts: [&[u8]; 5] =
            [&piece.to_bytes(), &100_000_u64.to_le_bytes(), &body, &frame.to_bytes(), &body];
        parts.concat()
    }

    #[tokio::test]
    async fn beside_large_frames_whom_a_frame_woke_runs_before_anything_is_written() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut theirs = theirs.into_std().unwrap();
        theirs.write_all(&piece_and_frame()).unwrap();
        let shared = SocketTransport::new(ours, Pool::new(0)).shared;
        let taker = Taker::default();
        let mut context = Context::from_waker(Waker::noop());
        shared.socket.readable().await.unwrap();
        let mut reading = pin!(shared.read(&taker));
        let mut received = [0; 64];
        assert!(reading.as_mut().poll(&mut context).is_pending());
        assert_eq!(*taker.0.lock().unwrap(), 1);
        let nothing = theirs.read(&mut received).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert!(reading.as_mut().poll(&mut context).is_pending());
        let len = theirs.read(&mut received).unwrap();
        assert_eq!(received[..len], record::receipt(HEADER_LEN as u64));
    }
}
