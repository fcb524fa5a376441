//! Sessions whose transport has ended without telling them, requests that are not sent, callers
//! that wait for a place, and answers that wait for their callers.

use std::future::Future;

use futures::future::{BoxFuture, FutureExt};
use proptest::prelude::*;
use tonic::Code;
use tonic::metadata::MetadataMap;

use super::request::Request;
use super::*;
use crate::Limits;
use crate::call::options::MessageLimits;
use crate::client::{Outgoing, Started};
use crate::handoff::Handoff;
use crate::method::with_detach;
use crate::payload::encode::Split;
use crate::payload::tail_field::{Detach, with_fields};
use crate::transport::{Addresses, Admission, Delivery, OutFrame, TransportStats};
use crate::wire::HEADER_LEN;
use crate::wire::hello::Hello;
use crate::wire::{FrameHeader, FrameKind};
use crate::{CallKind, Idempotency, MethodDescriptor, Readiness};

/// A transport that remembers what it takes.
#[derive(Debug, Clone)]
struct Link {
    takes: Takes,
    taken: Arc<Mutex<Vec<Taken>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// It has ended without reporting it.
    Nothing,
    /// The same, and it finds memory first, and lets a frame write itself.
    Memory,
    Everything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Frame(FrameKind, u64),
    Close,
}

impl Link {
    fn new(takes: Takes) -> Self {
        Self { takes, taken: Arc::default() }
    }

    fn taken(&self) -> Vec<Taken> {
        std::mem::take(&mut *self.taken.lock())
    }

    fn take(&self, frame: &[u8]) -> Result<(), TransportError> {
        if self.takes != Takes::Everything {
            return Err(cut());
        }
        let header = FrameHeader::parse(frame).unwrap();
        self.taken.lock().push(Taken::Frame(header.kind, header.call));
        Ok(())
    }
}

fn cut() -> TransportError {
    TransportError::Closed { reason: CloseReason::Failed("it is cut".into()) }
}

impl Transport for Link {
    fn name(&self) -> &'static str {
        "link"
    }

    fn start(&self, _: Arc<dyn Handler>) {}

    fn try_send(&self, frame: OutFrame<'_>) -> Result<bool, TransportError> {
        let mut memory = vec![0; frame.len()];
        if self.takes == Takes::Nothing {
            return Err(cut());
        }
        frame.write(&mut memory)?;
        self.take(&memory).map(|()| true)
    }

    fn send<'a>(&'a self, frame: OutFrame<'a>) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async { self.try_send(frame).map(drop) })
    }

    fn send_control(&self, frame: [u8; HEADER_LEN]) -> Result<(), TransportError> {
        self.take(&frame)
    }

    fn close(&self) {
        self.taken.lock().push(Taken::Close);
    }

    fn abort(&self, _: CloseReason) {}

    fn stats(&self) -> TransportStats {
        TransportStats::default()
    }
}

static METHOD: Method = Method::Static(&MethodDescriptor::new(
    "/test.Service/Method",
    CallKind::Unary,
    Idempotency::Unknown,
));

fn call(metadata: &MetadataMap) -> Outgoing<'_> {
    Outgoing {
        method: &METHOD,
        metadata,
        deadline: None,
        readiness: Readiness::FailFast,
        limits: MessageLimits::NONE,
        explain: None,
        message: None,
    }
}

fn session(transport: impl Transport + 'static) -> Arc<Session> {
    session_of(transport, Limits::default().max_calls)
}

/// A session with a server that takes `calls_max` calls.
fn session_of(transport: impl Transport + 'static, calls_max: u32) -> Arc<Session> {
    let limits = Limits::default();
    let mut peer = Hello::new(&Limits { max_calls: calls_max, ..limits });
    peer.methods = [METHOD.path().to_owned()].into();
    let setup = ClientSetup {
        limits,
        keepalive: crate::Keepalive::off(),
        progress_timeout: None,
        compression: crate::Negotiated::default(),
        peer,
        server: "nowhere".into(),
        addresses: Addresses::default(),
        fallback: None,
        is_upgraded: false,
    };
    Session::start(Box::new(transport), setup)
}

/// Otherwise a call whose stream finds the end is not marked as one that may have been executed.
#[tokio::test]
async fn a_stream_that_cannot_be_sent_tells_the_session_of_the_end() {
    let session = session(Link::new(Takes::Nothing));
    let header = FrameHeader::bare(FrameKind::Messages, 1);
    let mut parts = crate::transport::frames::Parts::new(header, &[], None);
    assert!(session.is_open() && session.closed().is_none());
    let status = session.try_send(&mut parts).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(!session.is_open() && session.closed().is_some());
}

/// Otherwise it would keep a draining session from its end.
#[tokio::test]
async fn a_request_that_was_written_and_not_sent_is_in_no_table() {
    let (message, metadata) = (Split::new((), None), MetadataMap::new());
    let call = Outgoing { message: Some(&message), ..call(&metadata) };
    for takes in [Takes::Nothing, Takes::Memory] {
        let session = session(Link::new(takes));
        let refused = session.try_start(&call).unwrap_err();
        let waited = session.start_call(&call).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
        assert_eq!(waited.code(), tonic::Code::Unavailable, "{waited}");
        assert_eq!(session.info().calls_in_flight, 0);
    }
}

/// Returns a request that is written and not sent, and the id of its call.
fn written<'a>(session: &'a Arc<Session>, call: &'a Outgoing<'a>) -> (Request<'a>, u64) {
    let mut request = Request::new(session, call, None);
    request.prepare().unwrap();
    let frame = request.frame();
    let mut memory = vec![0; frame.len()];
    frame.write(&mut memory).unwrap();
    (request, FrameHeader::parse(&memory).unwrap().call)
}

/// The caller that gives up between writing and sending, for a transport that waits there although
/// it may not; and a message whose encoding panics.
#[tokio::test]
async fn a_request_dropped_after_writing_is_in_no_table() {
    let (session, metadata) = (session(Link::new(Takes::Memory)), MetadataMap::new());
    let call = call(&metadata);
    let (request, _) = written(&session, &call);
    assert_eq!(session.info().calls_in_flight, 1);
    drop(request);
    assert_eq!(session.info().calls_in_flight, 0);
}

impl Session {
    /// The frame comes from the server.
    fn hear(&self, kind: FrameKind, call: u64) {
        let frame = FrameHeader::bare(kind, call).to_bytes();
        let frame = frame.to_vec().into();
        self.handle_frame(frame, Delivery::Whole, &mut Handoff::none()).unwrap();
    }
}

/// Polls a future once.
fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    future.now_or_never()
}

/// The caller may be polled late: the answer is its own, whatever becomes of the connection.
#[tokio::test]
async fn an_answer_outlives_the_drained_connection() {
    let (transport, metadata) = (Link::new(Takes::Everything), MetadataMap::new());
    let session = session(transport.clone());
    let call = call(&metadata);
    let mut started = session.try_start(&call).unwrap().unwrap();
    let id = started.guard.id();
    let mut reply = Box::pin(started.reply());
    assert!(poll(&mut reply).is_none());
    session.hear(FrameKind::GoAway, 0);
    assert_eq!(transport.taken(), [Taken::Frame(FrameKind::Request, id)]);
    session.hear(FrameKind::Response, id);
    assert_eq!(transport.taken(), [Taken::Close], "no call is in flight");
    session.handle_closed(CloseReason::Local);
    assert_eq!(poll(&mut reply).unwrap().unwrap().code, 0);
    drop(reply);
    drop(started);
    assert_eq!(transport.taken(), [], "nothing is cancelled");
}

#[tokio::test]
async fn an_answer_that_no_caller_takes_is_dropped() {
    let (transport, metadata) = (Link::new(Takes::Everything), MetadataMap::new());
    let session = session(transport.clone());
    let call = call(&metadata);
    let mut ids = Vec::new();
    for _ in 0..100 {
        let started = session.try_start(&call).unwrap().unwrap();
        ids.push(started.guard.id());
        session.hear(FrameKind::Response, started.guard.id());
        drop(started);
    }
    assert_eq!(session.info().calls_in_flight, 0);
    assert!(ids.iter().all(|id| id & 0xffff_ffff == 0), "its entry is used again: {ids:x?}");
    assert!(!transport.taken().iter().any(|it| matches!(it, Taken::Frame(FrameKind::Cancel, _))));
}

#[tokio::test]
async fn every_call_in_flight_hears_of_the_end() {
    let (transport, metadata) = (Link::new(Takes::Everything), MetadataMap::new());
    let session = session(transport.clone());
    let call = call(&metadata);
    let mut started: Vec<_> = (0..3).map(|_| session.try_start(&call).unwrap().unwrap()).collect();
    session.hear(FrameKind::Response, started[1].guard.id());
    session.handle_closed(CloseReason::Local);
    let replies: Vec<_> = started.iter_mut().map(|it| it.reply().now_or_never()).collect();
    let codes = replies.into_iter().map(|it| it.unwrap().map_or_else(|it| it.code(), |_| Code::Ok));
    assert_eq!(codes.collect::<Vec<_>>(), [Code::Unavailable, Code::Ok, Code::Unavailable]);
}

/// The server ends the connection of a client that exceeds its limit.
#[tokio::test]
async fn a_place_is_free_when_the_server_knows_that_it_is() {
    let (transport, metadata) = (Link::new(Takes::Everything), MetadataMap::new());
    let session = session_of(transport.clone(), 1);
    let call = call(&metadata);
    let first = session.try_start(&call).unwrap().unwrap();
    let first_id = first.guard.id();
    assert!(session.try_start(&call).unwrap().is_none());
    let mut second = Box::pin(session.start_call(&call));
    let mut third = Box::pin(session.start_call(&call));
    assert!(poll(&mut second).is_none() && poll(&mut third).is_none());
    drop(first);
    let second_id = poll(&mut second).unwrap().unwrap().guard.id();
    // It was dropped with the assertion, so that the third has its place.
    assert!(session.try_start(&call).unwrap().is_none(), "the third came earlier");
    let third = poll(&mut third).unwrap().unwrap();
    let frame = |kind, id| Taken::Frame(kind, id);
    let calls = [first_id, second_id, third.guard.id()];
    let taken = [
        frame(FrameKind::Request, calls[0]),
        frame(FrameKind::Cancel, calls[0]),
        frame(FrameKind::Request, calls[1]),
        frame(FrameKind::Cancel, calls[1]),
        frame(FrameKind::Request, calls[2]),
    ];
    assert_eq!(transport.taken(), taken);
}

/// In the order in which they came, those that have gone left out.
#[tokio::test]
async fn callers_that_wait_are_given_places_in_order() {
    let (transport, metadata) = (Link::new(Takes::Everything), MetadataMap::new());
    let session = session_of(transport.clone(), 2);
    let call = call(&metadata);
    let started = || session.try_start(&call).unwrap().unwrap();
    let running = [started(), started()];
    let mut waiting: Vec<_> = (0..6).map(|_| Box::pin(session.start_call(&call))).collect();
    assert!(waiting.iter_mut().all(|it| poll(it).is_none()));
    drop(waiting.remove(1));
    for call in &running {
        session.hear(FrameKind::Response, call.guard.id());
    }
    // The first has been woken, and goes: its turn is the next one's.
    drop(waiting.remove(0));
    assert!(session.try_start(&call).unwrap().is_none(), "others came earlier");
    let [first, second] = [0, 1].map(|at| poll(&mut waiting[at]).unwrap().unwrap());
    assert!(poll(&mut waiting[2]).is_none() && poll(&mut waiting[3]).is_none());
    session.hear(FrameKind::Response, second.guard.id());
    let third = poll(&mut waiting[2]).unwrap().unwrap();
    session.hear(FrameKind::Response, first.guard.id());
    session.hear(FrameKind::Response, third.guard.id());
    assert!(poll(&mut waiting[3]).unwrap().is_ok());
    drop(waiting);
    drop(started());
    assert_eq!(session.state().line.len(), 0);
}

/// A caller may have its future, and not poll it.
#[tokio::test]
async fn a_caller_that_is_not_polled_keeps_one_place() {
    let (transport, metadata) = (Link::new(Takes::Everything), MetadataMap::new());
    let session = session_of(transport.clone(), 2);
    let call = call(&metadata);
    let running = [(); 2].map(|()| session.try_start(&call).unwrap().unwrap());
    let mut idle = Box::pin(session.start_call(&call));
    assert!(poll(&mut idle).is_none());
    drop(running);
    // One is its own. The other is anyone's, with a wait and without.
    drop(session.try_start(&call).unwrap().unwrap());
    drop(poll(&mut Box::pin(session.start_call(&call))).unwrap().unwrap());
    let _other = session.try_start(&call).unwrap().unwrap();
    assert!(session.try_start(&call).unwrap().is_none());
    assert!(poll(&mut idle).unwrap().is_ok());
}

#[tokio::test]
async fn callers_that_wait_hear_of_the_end() {
    let (transport, metadata) = (Link::new(Takes::Everything), MetadataMap::new());
    let session = session_of(transport.clone(), 1);
    let call = call(&metadata);
    let _running = session.try_start(&call).unwrap().unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(session.start_call(&call))).collect();
    assert!(waiting.iter_mut().all(|it| poll(it).is_none()));
    session.hear(FrameKind::GoAway, 0);
    for caller in &mut waiting {
        assert_eq!(poll(caller).unwrap().unwrap_err().code(), Code::Unavailable);
    }
    assert_eq!(session.state().line.len(), 0);
}

/// Whatever callers and the server do, and in whatever order: no place is lost, and none is given
/// twice.
#[test]
fn no_place_is_lost() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let steps = prop::collection::vec((0u8..5, any::<usize>()), 0..120);
    proptest!(|(steps in steps, max in 1u32..4)| runtime.block_on(async {
        let (transport, metadata) = (Link::new(Takes::Everything), MetadataMap::new());
        let session = session_of(transport, max);
        let call = call(&metadata);
        let (mut running, mut waiting) = (Vec::new(), Vec::new());
        for (step, pick) in steps {
            match step {
                0 => running.extend(session.try_start(&call).unwrap()),
                1 => waiting.push(Box::pin(session.start_call(&call))),
                2 if !waiting.is_empty() => drop(waiting.remove(pick % waiting.len())),
                3 if !running.is_empty() => drop(running.remove(pick % running.len())),
                4 if !running.is_empty() => {
                    let answered: Started = running.remove(pick % running.len());
                    session.hear(FrameKind::Response, answered.guard.id());
                }
                _ => {}
            }
            waiting.retain_mut(|caller| match poll(caller) {
                Some(started) => {
                    running.push(started.unwrap());
                    false
                }
                None => true,
            });
            let (in_flight, waits) = (running.len(), session.state().line.len());
            assert_eq!((session.info().calls_in_flight, waits), (in_flight, waiting.len()));
            assert!(in_flight <= max as usize);
            assert!(waiting.is_empty() || in_flight == max as usize, "a place is not used");
        }
    }));
}

/// The connection may end, and answer it with that, before the transport has failed to send it.
#[tokio::test]
async fn a_request_dropped_after_the_end_leaves_no_answer() {
    let (session, metadata) = (session(Link::new(Takes::Memory)), MetadataMap::new());
    let call = call(&metadata);
    let (request, id) = written(&session, &call);
    session.handle_closed(CloseReason::Local);
    drop(request);
    assert!(session.state().calls.take(id).is_none());
}

/// Accessors of responses with a vector.
const VECTOR: Detacher = Detacher::new(|message, visit| {
    with_fields::<Vec<u8>>(message, |field| visit(&mut [(1, field)]));
});

static OF_VECTORS: MethodDescriptor = with_detach(
    MethodDescriptor::new("/test.Service/Vectors", CallKind::Unary, Idempotency::Unknown),
    Detach { request: None, response: Some(VECTOR) },
);

/// Without them, no transport receives a vector into memory of its own.
#[tokio::test]
async fn an_announced_response_has_the_accessors_of_its_message() {
    let session = session(Link::new(Takes::Memory));
    let reply = || Route::Waiting(None);
    let stream = || Route::Stream(Arc::new(session.responses()));
    for (route, method, detacher) in [
        (reply(), Some(&OF_VECTORS), Some(VECTOR)),
        (stream(), Some(&OF_VECTORS), None),
        (reply(), None, None),
    ] {
        let in_flight = InFlight { route, send_stream: None, explain: None, method };
        let call = session.state().calls.start(in_flight);
        let mut header = FrameHeader::bare(FrameKind::Response, call);
        header.message_len = 100_000;
        let admission = session.handle_announced(&header.to_bytes(), header.frame_len()).unwrap();
        assert_eq!(admission, Admission::Accept { deadline: None, detacher });
    }
}
