//! A channel's report of its path after its connection has gone, to callers and to tower.

use futures::poll;
use rpc_core::client::{ClientCall, Path};
use rpc_core::server::ServerParts;
use rpc_core::{Channel, Request};
use tower::ServiceExt;

use crate::numbers::{Numbers, NumbersStub};
use crate::serving::Serving;

/// Ends the server without a word to its clients, of which one notices that.
async fn lose(serving: Serving, channel: &Channel) {
    drop(serving);
    while channel.path().transport().is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_says_why_the_last_connection_failed() {
    let serving = Serving::start(ServerParts::default().add_service(Numbers::new().0));
    let channel = serving.channel();
    NumbersStub(channel.clone()).double_request(Request::new(4)).await.unwrap();
    assert_eq!(channel.path(), Path::Direct { transport: "inproc" });
    lose(serving, &channel).await;
    let path = channel.path();
    assert!(path.reason().is_some(), "{path:?}");
    assert_eq!(path.retry_in(), None);
}

#[tokio::test(start_paused = true)]
async fn a_channel_with_a_lost_connection_is_not_ready_again() {
    let serving = Serving::start(ServerParts::default().add_service(Numbers::new().0));
    let channel = serving.channel();
    let mut polled = channel.clone();
    let is_pending = poll!(ServiceExt::<ClientCall>::ready(&mut polled)).is_pending();
    assert!(is_pending, "the attempt has begun");
    NumbersStub(channel.clone()).double_request(Request::new(4)).await.unwrap();
    lose(serving, &channel).await;
    assert!(poll!(ServiceExt::<ClientCall>::ready(&mut polled)).is_pending());
}
