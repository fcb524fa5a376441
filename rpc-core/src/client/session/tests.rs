//! Sessions whose transport has ended without telling them, and requests that are not sent.

use tokio::sync::oneshot;
use tonic::metadata::MetadataMap;

use super::request::Request;
use super::*;
use crate::Limits;
use crate::call::options::MessageLimits;
use crate::method::with_detach;
use crate::payload::encode::Split;
use crate::payload::tail_field::{Detach, with_fields};
use crate::transport::{Addresses, Admission, OutFrame, TransportStats};
use crate::wire::HEADER_LEN;
use crate::wire::hello::Hello;
use crate::wire::{FrameHeader, FrameKind};
use crate::{CallKind, Idempotency, MethodDescriptor, Readiness};

/// A transport that has ended without reporting it.
#[derive(Debug)]
struct Cut {
    /// True if it finds memory first, and lets a frame write itself.
    writes: bool,
}

fn cut() -> TransportError {
    TransportError::Closed { reason: CloseReason::Failed("it is cut".into()) }
}

impl Transport for Cut {
    fn name(&self) -> &'static str {
        "cut"
    }

    fn start(&self, _: Arc<dyn Handler>) {}

    fn try_send(&self, frame: OutFrame<'_>) -> Result<bool, TransportError> {
        let mut memory = vec![0; frame.len()];
        if self.writes {
            frame.write(&mut memory)?;
        }
        Err(cut())
    }

    fn send<'a>(&'a self, frame: OutFrame<'a>) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async { self.try_send(frame).map(drop) })
    }

    fn send_control(&self, _: [u8; HEADER_LEN]) -> Result<(), TransportError> {
        Err(cut())
    }

    fn close(&self) {}

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

fn session(transport: Cut) -> Arc<Session> {
    let limits = Limits::default();
    let mut peer = Hello::new(&limits);
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
    let session = session(Cut { writes: false });
    let header = FrameHeader::bare(FrameKind::Messages, 1);
    let mut parts = crate::transport::frames::Parts { header, block: &[], message: None };
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
    for writes in [false, true] {
        let session = session(Cut { writes });
        let refused = Arc::clone(&session).try_start(call).unwrap_err();
        let waited = Arc::clone(&session).start(call).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
        assert_eq!(waited.code(), tonic::Code::Unavailable, "{waited}");
        assert_eq!(session.info().calls_in_flight, 0);
    }
}

/// The caller that gives up between writing and sending, for a transport that waits there although
/// it may not; and a message whose encoding panics.
#[tokio::test]
async fn a_request_dropped_after_writing_is_in_no_table() {
    let (session, metadata) = (session(Cut { writes: true }), MetadataMap::new());
    let call = call(&metadata);
    let mut request = Request::new(&session, &call).unwrap();
    let frame = request.frame();
    let mut memory = vec![0; frame.len()];
    frame.write(&mut memory).unwrap();
    assert_eq!(session.info().calls_in_flight, 1);
    drop(request);
    assert_eq!(session.info().calls_in_flight, 0);
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
    let session = session(Cut { writes: true });
    let reply = || Route::Reply(oneshot::channel().0);
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
