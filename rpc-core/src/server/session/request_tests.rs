//! Requests of a call that ends, and calls of another kind than their method's.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures::FutureExt;
use parking_lot::Mutex;
use prost::encoding::{DecodeContext, WireType};
use prost::{DecodeError, Message};
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Request, Response, Streaming};

use super::tests::serving;
use super::*;
use crate::handoff::Handoff;
use crate::method::with_detach;
use crate::payload::tail_field::{Detach, Detacher, with_fields};
use crate::server::call::record::CallStreams;
use crate::server::{ServerCall, Service};
use crate::transport::{Admission, Delivery, Handler, Withheld};
use crate::wire::HEADER_LEN;
use crate::{CallKind, Idempotency, MethodDescriptor, ServiceDescriptor};

/// Accessors of requests with a vector.
const VECTOR: Detacher = Detacher::new(|message, visit| {
    with_fields::<Vec<u8>>(message, |field| visit(&mut [(1, field)]));
});

const fn method(path: &'static str, kind: CallKind) -> MethodDescriptor {
    let method = MethodDescriptor::new(path, kind, Idempotency::Unknown);
    with_detach(method, Detach { request: Some(VECTOR), response: None })
}

static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    name: "test.Readers",
    methods: &[
        method("/test.Readers/HandOver", CallKind::ClientStreaming),
        method("/test.Readers/One", CallKind::Unary),
        method("/test.Readers/Unencodable", CallKind::Unary),
    ],
};

/// A message whose encoder panics.
#[derive(Debug, Default)]
struct Unencodable;

impl Message for Unencodable {
    fn encode_raw(&self, _: &mut impl BufMut) {
        panic!("on purpose");
    }

    fn merge_field(
        &mut self,
        _: u32,
        _: WireType,
        _: &mut impl Buf,
        _: DecodeContext,
    ) -> Result<(), DecodeError> {
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        1
    }

    fn clear(&mut self) {}
}

/// The end of the requests, as a task saw it.
type Seen = Result<Option<()>, Status>;

/// Hands the requests of a call to a task, which tells what it saw at their end, and answers when
/// it is told to.
#[derive(Debug)]
struct Readers {
    seen: mpsc::UnboundedSender<Seen>,
    answer: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Service for Readers {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &DESCRIPTOR
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let seen = self.seen.clone();
        if method == 1 {
            return call.unary(async move |_: Request<()>| {
                let _ = seen.send(Ok(Some(())));
                Ok(Response::new(()))
            });
        }
        if method == 2 {
            return call.unary(async |_: Request<()>| Ok(Response::new(Unencodable)));
        }
        let answer = self.answer.lock().take().unwrap();
        call.client_streaming(async move |request: Request<Streaming<()>>| {
            let mut requests = request.into_inner();
            tokio::spawn(async move { seen.send(requests.message().await) });
            let _ = answer.await;
            Ok(Response::new(()))
        })
    }
}

/// A router to that service, whose handler waits until `answer` is sent or dropped.
fn router() -> (Router, mpsc::UnboundedReceiver<Seen>, oneshot::Sender<()>) {
    let ((seen, seen_there), (answer, answer_there)) =
        (mpsc::unbounded_channel(), oneshot::channel());
    let mut router = Router::default();
    router.add(Arc::new(Readers { seen, answer: Mutex::new(Some(answer_there)) }));
    (router, seen_there, answer)
}

/// A session with a method, 0, whose requests are a stream.
pub(super) fn session() -> Arc<ServerSession> {
    serving(router().0).0
}

struct Rig {
    session: Arc<ServerSession>,
    seen: mpsc::UnboundedReceiver<Seen>,
    answer: Option<oneshot::Sender<()>>,
}

impl Rig {
    /// A session with a call of that method, whose requests are a stream.
    async fn with_call_of(method: u16) -> Self {
        let (router, seen, answer) = router();
        let rig = Self { session: serving(router).0, seen, answer: Some(answer) };
        let mut request = FrameHeader::bare(FrameKind::Request, 1);
        request.is_streaming = true;
        request.selector = method;
        rig.receive(&request);
        // The handler's task and the reader's come to where they wait.
        tokio::task::yield_now().await;
        rig
    }

    fn receive(&self, header: &FrameHeader) {
        self.session
            .handle_frame(
                Bytes::copy_from_slice(&header.to_bytes()),
                Delivery::Whole,
                &mut Handoff::none(),
            )
            .unwrap();
    }

    async fn seen(&mut self) -> Seen {
        let seen = tokio::time::timeout(Duration::from_secs(10), self.seen.recv());
        seen.await.expect("the reader is told").unwrap()
    }

    /// Returns the reader's observation, and checks that it has left nothing behind.
    async fn end(&mut self) -> Seen {
        let seen = self.seen().await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(&self.session.in_flight), 1, "neither task is left");
        assert!(self.session.state().calls.streams(1).is_none());
        seen
    }
}

#[tokio::test]
async fn a_reader_of_requests_is_told_when_the_call_is_given_up() {
    let mut rig = Rig::with_call_of(0).await;
    assert!(rig.seen.recv().now_or_never().is_none(), "it waits");
    rig.receive(&FrameHeader::bare(FrameKind::Cancel, 1));
    assert_eq!(rig.end().await.unwrap_err().code(), Code::Aborted);
}

#[tokio::test]
async fn a_reader_of_requests_is_told_when_the_call_is_answered() {
    let mut rig = Rig::with_call_of(0).await;
    rig.answer.take().unwrap().send(()).unwrap();
    assert_eq!(rig.end().await.unwrap_err().code(), Code::Aborted);
}

#[tokio::test]
async fn a_reader_of_requests_is_told_when_the_connection_ends() {
    let mut rig = Rig::with_call_of(0).await;
    rig.session.handle_closed(CloseReason::Peer);
    let status = rig.end().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    // As tonic's example of streaming looks for it.
    let source = status.source().and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::BrokenPipe));
}

#[tokio::test]
async fn a_connection_that_this_side_closes_is_no_broken_pipe() {
    let mut rig = Rig::with_call_of(0).await;
    rig.session.handle_closed(CloseReason::Local);
    let status = rig.end().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(matches!(CloseReason::of(&status), Some(CloseReason::Local)), "{status:?}");
    assert!(status.source().is_none_or(|source| !source.is::<io::Error>()), "{status:?}");
}

#[tokio::test]
async fn requests_that_have_all_come_end_as_they_did() {
    let mut rig = Rig::with_call_of(0).await;
    rig.receive(&FrameHeader::bare(FrameKind::HalfClose, 1));
    rig.receive(&FrameHeader::bare(FrameKind::Cancel, 1));
    assert_eq!(rig.end().await.unwrap(), None);
}

/// Without them, no transport receives a vector into memory of its own.
#[tokio::test]
async fn an_announced_request_has_the_accessors_of_its_message() {
    let session = session();
    for (call, method, detacher) in [(1, 1, Some(VECTOR)), (2, 0, None)] {
        let mut header = FrameHeader::bare(FrameKind::Request, call);
        header.selector = method;
        header.is_streaming = method == 0;
        // The messages of a stream come in frames of their own.
        match header.is_streaming {
            true => header.metadata_len = 5_000,
            false => header.message_len = 100_000,
        }
        let admission = session.handle_announced(&header.to_bytes(), header.frame_len()).unwrap();
        assert_eq!(admission, Admission::Accept { deadline: None, detacher }, "method {method}");
    }
}

/// A message that its client takes back comes before the word that the call is given up.
#[tokio::test]
async fn a_message_that_is_taken_back_is_no_end_of_the_requests() {
    let mut rig = Rig::with_call_of(0).await;
    let mut messages = FrameHeader::bare(FrameKind::Messages, 1);
    messages.message_len = 100_000;
    let prefix: [u8; HEADER_LEN] = messages.to_bytes();
    let admission = rig.session.handle_announced(&prefix, messages.frame_len()).unwrap();
    assert_eq!(admission, Admission::Accept { deadline: None, detacher: None });
    rig.session.handle_withheld(&prefix, Withheld::GivenUp).unwrap();
    assert_eq!(rig.seen().await.unwrap_err().code(), Code::Aborted);
}

#[tokio::test]
async fn a_stream_to_a_method_that_takes_one_message_does_not_run_it() {
    let mut rig = Rig::with_call_of(1).await;
    assert_eq!(rig.session.calls().in_flight, 0, "it is answered");
    assert!(rig.seen.recv().now_or_never().is_none(), "without its handler");
}

#[tokio::test]
async fn a_message_whose_encoder_panics_ends_its_call_alone() {
    let (session, transport) = serving(router().0);
    let mut request = FrameHeader::bare(FrameKind::Request, 1);
    request.selector = 2;
    let frame = Bytes::copy_from_slice(&request.to_bytes());
    session.handle_frame(frame, Delivery::Whole, &mut Handoff::none()).unwrap();
    assert_eq!(transport.sent_count(), 1, "its status");
    session.drained().now_or_never().expect("nothing is owed any more");
}

/// A header of messages of that length in all, and its frame.
fn messages_of(call: u64, len: usize) -> (FrameHeader, Bytes) {
    let mut header = FrameHeader::bare(FrameKind::Messages, call);
    header.message_len = len as u64;
    let mut frame = header.to_bytes().to_vec();
    frame.resize(HEADER_LEN + len, 0);
    (header, frame.into())
}

/// Frames that are dropped share a block with it: each message that waits would keep one.
#[tokio::test]
async fn a_short_message_that_waits_does_not_keep_its_frame() {
    let rig = Rig::with_call_of(0).await;
    for (seq, len, is_kept) in [(0, 0, false), (1, 64, false), (2, 400, true)] {
        // One message behind the four bytes of its length.
        let mut header = messages_of(1, 4 + len as usize).0;
        header.argument = seq;
        let parts = [&header.to_bytes()[..], &u32::to_le_bytes(len), &vec![0; len as usize]];
        let frame = Bytes::from(parts.concat());
        let ours = frame.clone();
        rig.session.handle_frame(frame, Delivery::Whole, &mut Handoff::none()).unwrap();
        assert_eq!(ours.is_unique(), !is_kept, "{len} bytes");
    }
}

/// The client sends its messages before it can know of the refusal, so that they are no violation.
#[tokio::test]
async fn what_follows_a_request_that_has_no_stream_is_dropped() {
    // A method that takes one message, one that does not exist, and one more call than may run.
    for method in [1, 7, 0] {
        let rig = Rig::with_call_of(0).await;
        let mut request = FrameHeader::bare(FrameKind::Request, 2);
        (request.is_streaming, request.selector) = (true, method);
        rig.receive(&request);
        assert_eq!(rig.session.calls().in_flight, 1, "it is answered");
        let (_, frame) = messages_of(2, 4);
        for _ in 0..100 {
            rig.session.handle_frame(frame.clone(), Delivery::Whole, &mut Handoff::none()).unwrap();
        }
        let (long, _) = messages_of(2, 100_000);
        let admission = rig.session.handle_announced(&long.to_bytes(), long.frame_len()).unwrap();
        assert_eq!(admission, Admission::Refuse);
        rig.receive(&FrameHeader::bare(FrameKind::HalfClose, 2));
        let state = rig.session.state();
        let has_streams = [1, 2].map(|call| state.calls.streams(call).is_some());
        assert_eq!(has_streams, [true, false], "only the call that runs");
        assert_eq!(state.receive_budget.bytes(), 0);
    }
}

/// Only the answer of such a method is a stream, of which the session keeps the client's window.
#[tokio::test]
async fn a_call_without_request_stream_takes_no_large_frames() {
    let rig = Rig::with_call_of(0).await;
    let streams = CallStreams {
        recv_stream: None,
        send_stream: Some(Arc::new(crate::stream::SendStream::new(
            crate::Limits::default().window(),
        ))),
    };
    let mut state = rig.session.state();
    let Start::Run(slot) = state.calls.start(2).unwrap() else { panic!("it is new") };
    *slot = streams;
    drop(state);
    let (long, _) = messages_of(2, 100_000);
    let admission = rig.session.handle_announced(&long.to_bytes(), long.frame_len()).unwrap();
    assert_eq!(admission, Admission::Refuse);
}
