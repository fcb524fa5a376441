//! The context of a call, and the earlier of its limits.

use super::*;
use crate::transport::Addresses;
use crate::{CallKind, Idempotency};

static METHOD: MethodDescriptor =
    MethodDescriptor::new("/t.T/M", CallKind::Unary, Idempotency::Unknown);

const SECOND: Duration = Duration::from_secs(1);
const SECOND_US: u64 = 1_000_000;

fn running() -> CallScope {
    let peer = PeerInfo::new("none", Addresses::default());
    CallScope::new(&METHOD, TimeLimit::None, Arc::new(peer))
}

#[tokio::test]
async fn there_is_a_context_inside_a_call_only() {
    assert!(CallContext::current().is_none());
    assert!(PeerInfo::current().is_none());
    let handler = async {
        assert_eq!(CallContext::current().map(|call| call.method().path), Some("/t.T/M"));
        assert_eq!(PeerInfo::current().map(|peer| peer.transport), Some("none"));
    };
    running().scope(handler).await;
}

#[tokio::test]
async fn dropping_the_handler_fires_the_token_and_ending_does_not() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let handler = |wait| {
        let sender = sender.clone();
        running().scope(async move {
            let cancel_on_drop = CancelOnDrop::new();
            sender.send(CallContext::current().unwrap()).unwrap();
            if wait {
                std::future::pending::<()>().await;
            }
            cancel_on_drop.finish();
        })
    };
    {
        let mut dropped = Box::pin(handler(true));
        assert!(futures::poll!(&mut dropped).is_pending());
    }
    handler(false).await;
    let [dropped, ended] = [receiver.recv().unwrap(), receiver.recv().unwrap()];
    assert!(dropped.is_cancelled());
    assert!(!ended.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn the_earlier_limit_of_a_unary_call_counts() {
    let at = |count| Deadline::after(Instant::now(), count * SECOND);
    let of = |client_us| TimeLimit::new(client_us, CallKind::Unary, Some(2 * SECOND));
    assert_eq!(of(0), TimeLimit::UnaryTimeout(at(2), 2 * SECOND));
    assert_eq!(of(SECOND_US), TimeLimit::Client(at(1), SECOND));
    assert_eq!(of(3 * SECOND_US), TimeLimit::UnaryTimeout(at(2), 2 * SECOND));
    let message = "the call did not end within 2s (the server's unary_timeout)";
    assert_eq!(of(0).exceeded().message(), message);
    let message = "the call did not end within 1s (the client's deadline)";
    assert_eq!(of(SECOND_US).exceeded().message(), message);
}

#[tokio::test(start_paused = true)]
async fn streams_have_the_clients_deadline_only() {
    let client = TimeLimit::Client(Deadline::after(Instant::now(), 3 * SECOND), 3 * SECOND);
    for kind in [CallKind::ClientStreaming, CallKind::ServerStreaming, CallKind::Streaming] {
        let of = |client_us| TimeLimit::new(client_us, kind, Some(SECOND));
        assert_eq!((of(0), of(3 * SECOND_US)), (TimeLimit::None, client));
    }
}
