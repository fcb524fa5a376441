//! A direct link: what it delivers, and how it ends.

use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::transport::Withheld;
use crate::wire::{FrameHeader, FrameKind, ProtocolError};

/// Counts what comes, and refuses pongs. It ends its own link with a GOAWAY.
#[derive(Debug, Default)]
struct Counting {
    frames: Mutex<Vec<FrameKind>>,
    announced: Mutex<Vec<u64>>,
    closed: Mutex<Vec<CloseReason>>,
    is_closed: CancellationToken,
}

impl Counting {
    fn frames(&self) -> Vec<FrameKind> {
        self.frames.lock().clone()
    }

    /// Why the link has ended, once it has.
    async fn closed(&self) -> Vec<CloseReason> {
        let ended = timeout(Duration::from_secs(30), self.is_closed.cancelled()).await;
        ended.expect("the link ends");
        self.closed.lock().clone()
    }
}

impl Handler for Counting {
    fn handle_announced(&self, _: &[u8; HEADER_LEN], len: u64) -> Result<Admission, ProtocolError> {
        self.announced.lock().push(len);
        Ok(Admission::Refuse)
    }

    fn handle_frame(
        &self,
        frame: Bytes,
        _: Delivery,
        _: &mut Handoff,
    ) -> Result<(), ProtocolError> {
        let kind = FrameHeader::parse_whole(&frame)?.kind;
        self.frames.lock().push(kind);
        match kind {
            FrameKind::Pong => Err(ProtocolError::UnexpectedFrame { kind, role: "test" }),
            _ => Ok(()),
        }
    }

    fn handle_withheld(&self, _: &[u8; HEADER_LEN], _: Withheld) -> Result<(), ProtocolError> {
        Ok(())
    }

    fn handle_closed(&self, reason: CloseReason) {
        self.closed.lock().push(reason);
        self.is_closed.cancel();
    }
}

fn direct() -> [(InprocTransport, Arc<Counting>); 2] {
    let (left, right) = InprocTransport::direct_pair("test");
    [left, right].map(|end| {
        let handler = Arc::<Counting>::default();
        end.start(Arc::clone(&handler) as Arc<dyn Handler>);
        (end, handler)
    })
}

fn bare(kind: FrameKind) -> [u8; HEADER_LEN] {
    FrameHeader::bare(kind, 0).to_bytes()
}

#[tokio::test]
async fn a_direct_link_has_delivered_what_it_has_sent() {
    let [(left, at_left), (right, at_right)] = direct();
    left.send_control(bare(FrameKind::Ping)).unwrap();
    assert_eq!(at_right.frames(), [FrameKind::Ping]);
    right.send_control(bare(FrameKind::GoAway)).unwrap();
    assert_eq!(at_left.frames(), [FrameKind::GoAway]);
    // One that is refused is not delivered.
    left.push(left.pool.take(LARGE_LEN).freeze()).unwrap();
    assert_eq!(*at_right.announced.lock(), [LARGE_LEN as u64]);
    assert_eq!(at_right.frames(), [FrameKind::Ping]);
    assert!(!right.has_unread() && !left.has_unread());
}

#[tokio::test]
async fn a_direct_link_that_is_closed_delivers_nothing() {
    let [(left, at_left), (right, at_right)] = direct();
    left.close();
    for (end, reason) in [(&left, CloseReason::Local), (&right, CloseReason::Peer)] {
        let error = end.send_control(bare(FrameKind::Ping)).unwrap_err();
        assert!(matches!(&error, TransportError::Closed { reason: said } if *said == reason));
    }
    assert_eq!(at_left.closed().await, [CloseReason::Local]);
    assert_eq!(at_right.closed().await, [CloseReason::Peer]);
    assert!(at_left.frames().is_empty() && at_right.frames().is_empty());
}

#[tokio::test]
async fn a_frame_that_cannot_be_ends_a_direct_link() {
    let [(left, at_left), (_right, at_right)] = direct();
    left.send_control(bare(FrameKind::Pong)).unwrap();
    let closed = at_right.closed().await;
    assert!(matches!(closed[..], [CloseReason::Protocol(_)]), "{closed:?}");
    assert_eq!(at_left.closed().await, [CloseReason::Peer]);
    assert!(left.send_control(bare(FrameKind::Ping)).is_err());
}

/// Each session has its transport, which knows the other session.
#[tokio::test]
async fn ended_direct_links_keep_nothing_of_each_other() {
    let [(left, at_left), (right, at_right)] = direct();
    left.close();
    at_left.closed().await;
    at_right.closed().await;
    drop((left, right));
    for handler in [at_left, at_right] {
        while Arc::strong_count(&handler) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
