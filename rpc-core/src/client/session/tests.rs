//! What a session knows of its transport's end before it is told.

use std::convert::Infallible;

use bytes::Bytes;

use super::*;
use crate::connect::ClientConfig;
use crate::transport::TransportStats;
use crate::wire::HEADER_LEN;
use crate::wire::hello::Hello;

/// Has ended, and has not said so.
#[derive(Debug)]
struct Cut;

fn cut() -> TransportError {
    TransportError::Closed { reason: CloseReason::Failed("it is cut".into()) }
}

impl Transport for Cut {
    type Buffer = Vec<u8>;
    type Tail = Infallible;

    fn name(&self) -> &'static str {
        "cut"
    }

    fn start(&self, _: Arc<dyn Handler>) {}

    fn try_reserve(&self, _: usize) -> Result<Option<Vec<u8>>, TransportError> {
        Err(cut())
    }

    async fn reserve(&self, _: usize) -> Result<Vec<u8>, TransportError> {
        Err(cut())
    }

    fn send(&self, _: Vec<u8>) -> Result<(), TransportError> {
        Err(cut())
    }

    fn claim_tail(&self, _: usize, _: &Bytes) -> Option<Infallible> {
        None
    }

    fn send_with_tail(&self, _: Vec<u8>, tail: Infallible) -> Result<(), TransportError> {
        match tail {}
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

/// Otherwise a call whose stream finds the end is not marked as one that may have been executed.
#[tokio::test]
async fn a_stream_that_cannot_be_sent_tells_the_session_of_the_end() {
    let limits = ClientConfig::default().limits;
    let setup = ClientSetup {
        limits,
        keepalive: None,
        progress_timeout: None,
        compression: crate::Negotiated::default(),
        peer: Hello::new(&limits),
        server: "nowhere".into(),
        addresses: Addresses::default(),
        fallback: None,
        is_upgraded: false,
    };
    let session = Session::start(Cut, setup);
    let header = FrameHeader::bare(FrameKind::Messages, 1);
    let parts = Parts { header, block: &[], message: None };
    assert!(session.is_open() && session.closed().is_none());
    let status = session.try_send(&parts).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(!session.is_open() && session.closed().is_some());
}
