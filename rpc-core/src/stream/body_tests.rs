//! Ends of response streams that fail on this side, as their readers see them.

use futures::FutureExt;
use tonic::Streaming;

use super::*;
use crate::call::options::MessageLimits;
use crate::calls::window::ReceiveWindow;
use crate::limits::memory::MemoryShare;
use crate::session::{Role, SessionCore, Settled};
use crate::stream::{Item, WindowMemory, response_streaming};
use crate::transport::inproc::InprocTransport;
use crate::transport::{Addresses, TransportError};
use crate::{CallKind, Idempotency, Limits, MayHaveExecuted, Method, MethodDescriptor, Negotiated};

static METHOD: MethodDescriptor =
    MethodDescriptor::new("/a.B/C", CallKind::ServerStreaming, Idempotency::Unknown);

/// Takes grants, which is all that a reader sends.
#[derive(Debug)]
struct Host(SessionCore);

impl Host {
    fn new(limits: Limits) -> Self {
        let settled = Settled {
            limits,
            peer_limits: limits,
            compression: Negotiated::default(),
            addresses: Addresses::default(),
            fallback: None,
            is_upgraded: false,
        };
        let (transport, _) = InprocTransport::pair("test");
        Self(SessionCore::new(Role::Client, Box::new(transport), settled, MemoryShare::default()))
    }
}

impl SessionIo for Host {
    fn core(&self) -> &SessionCore {
        &self.0
    }

    fn unsendable(&self, error: &TransportError) -> Status {
        panic!("a reader sends no frame: {error}")
    }
}

struct Kept;

impl OnComplete for Kept {
    fn complete(&mut self) {}
}

/// A stream whose first message, an empty one, has arrived.
fn stream(recv_stream: &Arc<RecvStream>) -> Streaming<()> {
    stream_with(recv_stream, Bytes::from_static(&[0; 4]), MessageLimits::NONE)
}

/// A stream of which one frame has arrived.
fn stream_with<M: Message + Default + 'static>(
    recv_stream: &Arc<RecvStream>,
    frame: Bytes,
    call_limits: MessageLimits,
) -> Streaming<M> {
    let limits = Limits::default();
    let _ = recv_stream.insert(0, Item::Headers(Bytes::new())).unwrap();
    let next = recv_stream
        .poll_next(&mut Context::from_waker(std::task::Waker::noop()), Counts::default());
    assert!(matches!(next, Poll::Ready(Next::Headers(_))));
    let _ = recv_stream.insert(1, Item::Messages(frame)).unwrap();
    let io = Arc::new(Host::new(limits));
    let (limit, method) = (call_limits.responses(), Method::Static(&METHOD));
    let receiving = Receiving { limit, method };
    let recv_stream = Arc::clone(recv_stream);
    response_streaming(MessageBody::new(recv_stream, io, 1, receiving, None, Some(Kept)))
}

fn next<M>(stream: &mut Streaming<M>) -> Result<Option<M>, Status> {
    stream.message().now_or_never().expect("it is there")
}

#[test]
fn a_cut_stream_fails_once_and_keeps_its_mark() {
    let recv_stream = Arc::new(RecvStream::responses(
        ReceiveWindow::new(Limits::default().window()),
        WindowMemory::default(),
    ));
    let mut stream = stream(&recv_stream);
    recv_stream.fail(MayHaveExecuted::mark(Status::unavailable("gone")));
    assert_eq!(next(&mut stream).unwrap(), Some(()));
    let status = next(&mut stream).unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::Unavailable, "gone"));
    assert!(MayHaveExecuted::matches(&status));
    assert_eq!(next(&mut stream).unwrap(), None);
    assert_eq!(next(&mut stream).unwrap(), None);
}

/// A frame of empty messages.
fn empty(count: usize) -> Bytes {
    vec![0; 4 * count].into()
}

fn responses(messages: u32) -> Arc<RecvStream> {
    let window = ReceiveWindow::new(Window { messages, bytes: 1 << 20 });
    Arc::new(RecvStream::responses(window, WindowMemory::default()))
}

/// Otherwise a sender may fill memory with what a slow reader has not taken.
#[test]
fn message_counts_as_read_when_the_reader_takes_it() {
    for (taken, has_room) in [(1, false), (2, true)] {
        let recv_stream = responses(4);
        let mut stream = stream_with::<()>(&recv_stream, empty(4), MessageLimits::NONE);
        (0..taken).for_each(|_| assert_eq!(next(&mut stream).unwrap(), Some(())));
        let inserted = recv_stream.insert(2, Item::Messages(empty(1)));
        assert_eq!(inserted.is_ok(), has_room, "{taken} of 4 are read");
    }
}

#[test]
fn frames_of_any_number_of_messages_are_read_whole() {
    for count in [1, CALLS_MAX - 1, CALLS_MAX, CALLS_MAX + 1, 5 * CALLS_MAX + 7] {
        let recv_stream = responses(1000);
        let mut stream = stream_with::<()>(&recv_stream, empty(count), MessageLimits::NONE);
        (0..count).for_each(|_| assert_eq!(next(&mut stream).unwrap(), Some(())));
        assert!(stream.message().now_or_never().is_none(), "{count}");
        let _ = recv_stream.insert(2, Item::Messages(empty(3))).unwrap();
        recv_stream.fail(Status::aborted("over"));
        (0..3).for_each(|_| assert_eq!(next(&mut stream).unwrap(), Some(())));
        assert_eq!(next(&mut stream).unwrap_err().code(), tonic::Code::Aborted);
    }
}

#[test]
fn long_message_fails_the_stream_after_those_before_it() {
    // Fields that the message does not know.
    let frame = [&[0; 4][..], &[2, 0, 0, 0, 8, 1], &[4, 0, 0, 0, 8, 1, 8, 1], &[0; 4]].concat();
    let limits = MessageLimits::NONE.with_max_decoding(2);
    let mut stream = stream_with::<()>(&responses(9), frame.into(), limits);
    (0..2).for_each(|_| assert_eq!(next(&mut stream).unwrap(), Some(())));
    assert!(next(&mut stream).unwrap_err().message().contains('4'));
    assert_eq!(next(&mut stream).unwrap(), None);
}
