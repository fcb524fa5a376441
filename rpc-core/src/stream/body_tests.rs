//! Ends of response streams that fail on this side, as their readers see them.

use futures::FutureExt;
use tonic::Streaming;

use super::*;
use crate::call::options::MessageLimits;
use crate::limits::memory::MemoryShare;
use crate::session::{Role, SessionCore, Settled};
use crate::stream::{Item, response_streaming};
use crate::transport::inproc::InprocTransport;
use crate::transport::{Addresses, TransportError};
use crate::{
    CallKind, Detach, Idempotency, Limits, MayHaveExecuted, Method, MethodDescriptor, Negotiated,
};

static METHOD: MethodDescriptor = MethodDescriptor {
    path: "/a.B/C",
    kind: CallKind::ServerStreaming,
    idempotency: Idempotency::Unknown,
    detach: Detach::NONE,
};

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
    let limits = Limits::default();
    let _ = recv_stream.insert(0, Item::Headers(Bytes::new())).unwrap();
    let next = recv_stream.poll_next(&mut Context::from_waker(std::task::Waker::noop()));
    assert!(matches!(next, Poll::Ready(Next::Headers(_))));
    let _ = recv_stream.insert(1, Item::Messages(Bytes::from_static(&[0; 4]))).unwrap();
    let io = Arc::new(Host::new(limits));
    let (limit, method) = (MessageLimits::NONE.of_responses(), Method::Static(&METHOD));
    let receiving = Receiving { limit, method };
    let recv_stream = Arc::clone(recv_stream);
    response_streaming(MessageBody::new(recv_stream, io, 1, receiving, None, Some(Kept)))
}

fn next(stream: &mut Streaming<()>) -> Result<Option<()>, Status> {
    stream.message().now_or_never().expect("it is there")
}

#[test]
fn a_stream_that_is_cut_says_so_once_and_keeps_what_marks_its_status() {
    let recv_stream = Arc::new(RecvStream::responses(Limits::default().window()));
    let mut stream = stream(&recv_stream);
    recv_stream.fail(MayHaveExecuted::mark(Status::unavailable("gone")));
    assert_eq!(next(&mut stream).unwrap(), Some(()));
    let status = next(&mut stream).unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::Unavailable, "gone"));
    assert!(MayHaveExecuted::is_said_by(&status));
    assert_eq!(next(&mut stream).unwrap(), None);
    assert_eq!(next(&mut stream).unwrap(), None);
}
