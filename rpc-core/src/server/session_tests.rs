//! What a draining session still owes its client.

use std::sync::OnceLock;

use bytes::Bytes;
use futures::FutureExt;

use super::*;
use crate::transport::{CloseReason, TransportStats};
use crate::wire::{FrameKind, HEADER_LEN};

/// A transport that asks its session, at the moment of sending, whether it counts as drained.
#[derive(Debug, Default)]
struct Curious {
    session: OnceLock<Weak<ServerSession<Curious>>>,
    was_drained: Mutex<Vec<bool>>,
}

impl Transport for Curious {
    type Buffer = Vec<u8>;

    fn name(&self) -> &'static str {
        "curious"
    }

    fn start(&self, _: Arc<dyn Handler>) {}

    fn try_reserve(&self, len: usize) -> Result<Option<Vec<u8>>, TransportError> {
        Ok(Some(vec![0; len]))
    }

    async fn reserve(&self, len: usize) -> Result<Vec<u8>, TransportError> {
        Ok(vec![0; len])
    }

    fn send(&self, _: Vec<u8>) -> Result<(), TransportError> {
        let session = self.session.get().and_then(Weak::upgrade).unwrap();
        let is_drained = session.drained().now_or_never().is_some();
        self.was_drained.lock().unwrap().push(is_drained);
        Ok(())
    }

    fn send_control(&self, _: [u8; HEADER_LEN]) -> Result<(), TransportError> {
        Ok(())
    }

    fn close(&self) {}

    fn abort(&self, _: CloseReason) {}

    fn stats(&self) -> TransportStats {
        TransportStats::default()
    }
}

#[tokio::test]
async fn a_session_is_not_drained_before_the_transport_has_the_last_answer() {
    let setup = ServerSetup {
        limits: Limits::default(),
        peer_limits: Limits::default(),
        addresses: Addresses::default(),
        fallback: None,
        is_upgraded: false,
        router: Arc::default(),
        load: Load::new(1),
    };
    let session = ServerSession::start(Curious::default(), setup);
    session.transport.session.set(Arc::downgrade(&session)).unwrap();
    // Nothing is served, so the call is answered in place, with a refusal.
    let request = FrameHeader::bare(FrameKind::Request, 1).to_bytes();
    session.handle_frame(Bytes::copy_from_slice(&request)).unwrap();
    assert_eq!(*session.transport.was_drained.lock().unwrap(), [false]);
    session.drained().now_or_never().expect("nothing is owed any more");
}
