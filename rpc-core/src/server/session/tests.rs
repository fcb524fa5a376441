//! The remaining work of a draining session, and its entries of announced calls.

use std::sync::OnceLock;

use bytes::Bytes;
use futures::FutureExt;
use parking_lot::Mutex;

use super::in_flight::{Phase, Response};
use super::*;
use crate::Limits;
use crate::handoff::Handoff;
use crate::limits::log::LogLimit;
use crate::limits::memory::MemoryShare;
use crate::server::call::record::Answer;
use crate::server::serve::limits::PeerLimit;
use crate::transport::{
    Addresses, Admission, CloseReason, Delivery, Handler, OutFrame, TransportError, TransportStats,
    Withheld,
};
use crate::wire::{FrameKind, HEADER_LEN};

/// A transport that asks its session at the moment of sending: at an answer, whether it counts as
/// drained, and at a control frame, whether it refuses calls.
#[derive(Debug, Default)]
pub(super) struct Curious {
    session: OnceLock<Weak<ServerSession>>,
    was_drained: Mutex<Vec<bool>>,
    was_refusing: Mutex<Vec<bool>>,
}

impl Curious {
    fn session(&self) -> Arc<ServerSession> {
        self.session.get().and_then(Weak::upgrade).unwrap()
    }

    pub(super) fn sent_count(&self) -> usize {
        self.was_drained.lock().len()
    }
}

impl Transport for Arc<Curious> {
    fn name(&self) -> &'static str {
        "curious"
    }

    fn start(&self, _: Arc<dyn Handler>) {}

    fn try_send(&self, frame: OutFrame<'_>) -> Result<bool, TransportError> {
        let mut memory = vec![0; frame.len()];
        frame.write(&mut memory)?;
        let is_drained = self.session().drained().now_or_never().is_some();
        self.was_drained.lock().push(is_drained);
        Ok(true)
    }

    fn send<'a>(&'a self, frame: OutFrame<'a>) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move { self.try_send(frame).map(drop) })
    }

    fn send_control(&self, _: [u8; HEADER_LEN]) -> Result<(), TransportError> {
        let session = self.session();
        let state =
            session.in_flight.state.try_lock().expect("nothing is sent under the session's lock");
        self.was_refusing.lock().push(state.phase != Phase::Open);
        Ok(())
    }

    fn close(&self) {}

    fn abort(&self, _: CloseReason) {}

    fn stats(&self) -> TransportStats {
        TransportStats::default()
    }
}

/// A session that serves by `router`, and its transport.
pub(super) fn serving(router: Router) -> (Arc<ServerSession>, Arc<Curious>) {
    let setup = ServerSetup {
        limits: Limits::default(),
        peer_limits: Limits::default(),
        compression: crate::Negotiated::default(),
        addresses: Addresses::default(),
        fallback: None,
        is_upgraded: false,
        router: Arc::new(router),
        calls: PeerLimit::on_calls(1, None).share(&Addresses::default(), 1),
        memory: MemoryShare::default(),
        log: LogLimit::default(),
        compress_from: Arc::default(),
    };
    let transport = Arc::<Curious>::default();
    let session = ServerSession::new(Box::new(Arc::clone(&transport)), setup);
    transport.session.set(Arc::downgrade(&session)).unwrap();
    (session, transport)
}

/// A client that is refused without knowing why makes its call again on the same connection.
#[tokio::test]
async fn no_call_is_refused_before_the_client_is_sent_away() {
    let (session, transport) = serving(Router::default());
    session.go_away();
    assert_eq!(*transport.was_refusing.lock(), [false]);
    assert!(session.state().phase != Phase::Open);
}

#[tokio::test]
async fn a_session_drains_after_the_transport_has_the_last_answer() {
    let (session, transport) = serving(Router::default());
    // Nothing is served, so the call is answered in place, with a refusal.
    let request = FrameHeader::bare(FrameKind::Request, 1).to_bytes();
    session
        .handle_frame(Bytes::copy_from_slice(&request), Delivery::Whole, &mut Handoff::none())
        .unwrap();
    assert_eq!(*transport.was_drained.lock(), [false]);
    session.drained().now_or_never().expect("nothing is owed any more");
}

/// A transport may lose a frame between writing and sending it, for example by a panic.
#[tokio::test]
async fn an_answer_dropped_after_writing_leaves_the_session_drained() {
    let (session, _transport) = serving(Router::default());
    session.go_away();
    assert!(matches!(session.state().calls.start(1), Ok(Start::Run(_))));
    let (answer, mut record) = (Answer::bare(0, 0), None);
    let mut response = Response::new(&session.in_flight, 1, &answer, &mut record);
    let frame = response.frame();
    let mut memory = vec![0; frame.len()];
    frame.write(&mut memory).unwrap();
    assert!(session.drained().now_or_never().is_none(), "the transport may have it");
    drop(response);
    session.drained().now_or_never().expect("nothing is owed any more");
}

/// A direct link may deliver one that was sent when the link still stood. Nothing would end its
/// call.
#[tokio::test]
async fn a_request_behind_the_end_of_the_link_is_not_handled() {
    let (session, transport) = serving(Router::default());
    session.handle_closed(CloseReason::Peer);
    let request = FrameHeader::bare(FrameKind::Request, 1).to_bytes();
    session
        .handle_frame(Bytes::copy_from_slice(&request), Delivery::Whole, &mut Handoff::none())
        .unwrap();
    assert_eq!(session.calls().in_flight, 0);
    assert!(transport.was_drained.lock().is_empty(), "nothing is answered");
}

/// A transport may drop the application's objects while it sends, and those may ask for the
/// connection.
#[tokio::test]
async fn a_ping_is_answered_without_the_sessions_lock() {
    let (session, transport) = serving(Router::default());
    let ping = FrameHeader::bare(FrameKind::Ping, 0).to_bytes();
    session
        .handle_frame(Bytes::copy_from_slice(&ping), Delivery::Whole, &mut Handoff::none())
        .unwrap();
    assert_eq!(*transport.was_refusing.lock(), [false]);
}

/// The header of an announced request whose messages follow as a stream, and its length.
fn long_request(call: u64) -> ([u8; HEADER_LEN], u64) {
    let mut header = FrameHeader::bare(FrameKind::Request, call);
    header.is_streaming = true;
    header.metadata_len = 10_000;
    (header.to_bytes(), header.frame_len())
}

/// The refusal of the second would answer the call of the first, which is still on its way.
#[tokio::test]
async fn a_second_announcement_is_a_violation() {
    let session = super::request_tests::session();
    let (prefix, len) = long_request(7);
    let admission = session.handle_announced(&prefix, len).unwrap();
    assert!(matches!(admission, Admission::Accept { .. }), "{admission:?}");
    let mut too_long = FrameHeader::bare(FrameKind::Request, 7);
    too_long.metadata_len = Limits::default().max_metadata_len + 1;
    let again = session.handle_announced(&too_long.to_bytes(), too_long.frame_len());
    assert_eq!(again, Err(ProtocolError::DuplicateCall { id: 7 }));
    assert_eq!(session.state().calls.in_flight_count(), 1, "the first is on its way");
}

/// It would be taken for the first, whose memory would no longer be counted. It would be answered,
/// and the first would be started when it arrives.
#[tokio::test]
async fn a_whole_request_is_not_an_announced_one() {
    let session = super::request_tests::session();
    let request = |selector| {
        let mut header = FrameHeader::bare(FrameKind::Request, 7);
        (header.selector, header.is_streaming) = (selector, true);
        header
    };
    let announced = request(0);
    let admission = session.handle_announced(&announced.to_bytes(), announced.frame_len()).unwrap();
    assert!(matches!(admission, Admission::Accept { .. }), "{admission:?}");
    let whole = Bytes::copy_from_slice(&request(9).to_bytes());
    let error = session.handle_frame(whole, Delivery::Whole, &mut Handoff::none()).unwrap_err();
    assert!(matches!(error, ProtocolError::Invalid { value: 7, .. }), "{error}");
    assert_eq!(session.state().calls.in_flight_count(), 1, "the first is on its way");
}

/// Over RDMA a peer can change a frame after it was announced, since it is read later.
#[tokio::test]
async fn a_frame_arrives_as_what_it_was_announced_as() {
    let mut announced = FrameHeader::bare(FrameKind::Request, 7);
    announced.is_streaming = true;
    let kinds = [(FrameKind::Request, 8), (FrameKind::Messages, 7), (FrameKind::Cancel, 7)];
    for (kind, call) in kinds {
        let session = super::request_tests::session();
        let prefix = announced.to_bytes();
        let admission = session.handle_announced(&prefix, announced.frame_len()).unwrap();
        assert!(matches!(admission, Admission::Accept { .. }), "{admission:?}");
        let mut other = FrameHeader::bare(kind, call);
        if kind == FrameKind::Messages {
            other.message_len = 4;
        }
        let mut frame = other.to_bytes().to_vec();
        frame.resize(usize::try_from(other.frame_len()).unwrap(), 0);
        let mut handoff = Handoff::none();
        let result = session.handle_frame(Bytes::from(frame), Delivery::Announced, &mut handoff);
        assert!(result.is_err(), "{kind:?} of {call}");
    }
}

/// Messages are shorter than such a request, so that they may overtake it.
#[tokio::test]
async fn a_stream_exists_from_its_announcement_on() {
    let session = super::request_tests::session();
    // The last is answered, with which the transport here begins to drain the session.
    let ends = [(false, Withheld::GivenUp), (true, Withheld::GivenUp), (false, Withheld::Expired)];
    for (is_cancelled, reason) in ends {
        let (prefix, len) = long_request(1);
        let admission = session.handle_announced(&prefix, len).unwrap();
        assert_eq!(admission, Admission::Accept { deadline: None, detacher: None });
        let mut early = FrameHeader::bare(FrameKind::HalfClose, 1);
        early.argument = 1;
        session
            .handle_frame(
                Bytes::copy_from_slice(&early.to_bytes()),
                Delivery::Whole,
                &mut Handoff::none(),
            )
            .unwrap();
        assert!(session.state().calls.streams(1).unwrap().recv_stream.is_some());
        if is_cancelled {
            let cancel = FrameHeader::bare(FrameKind::Cancel, 1).to_bytes();
            session
                .handle_frame(
                    Bytes::copy_from_slice(&cancel),
                    Delivery::Whole,
                    &mut Handoff::none(),
                )
                .unwrap();
        }
        session.handle_withheld(&prefix, reason).unwrap();
        assert!(session.state().calls.streams(1).is_none());
        assert_eq!(session.calls().in_flight, 0);
    }
}

/// To receive it would cost memory and bandwidth for nothing.
#[tokio::test]
async fn a_large_request_to_no_method_is_refused_before_it_comes() {
    let (session, _) = serving(Router::default());
    let (prefix, len) = long_request(1);
    assert_eq!(session.handle_announced(&prefix, len).unwrap(), Admission::Refuse);
    assert!(session.state().calls.streams(1).is_none());
    assert_eq!(session.calls().in_flight, 0, "it is answered");
}
