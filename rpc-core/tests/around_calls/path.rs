//! What a channel says of its path once its connection has gone.

use rpc_core::client::Path;
use rpc_core::{Request, Server};

use crate::numbers::{Numbers, NumbersStub};
use crate::serving::Serving;

#[tokio::test(start_paused = true)]
async fn a_path_says_why_the_last_connection_failed() {
    let serving = Serving::start(Server::builder().add_service(Numbers::new().0).build());
    let channel = serving.channel();
    NumbersStub(channel.clone()).double_request(Request::new(4)).await.unwrap();
    assert_eq!(channel.path(), Path::Direct { transport: "inproc" });
    // Without a word to its clients.
    drop(serving);
    while channel.path().transport().is_some() {
        tokio::task::yield_now().await;
    }
    let path = channel.path();
    assert!(path.reason().is_some(), "{path:?}");
    assert_eq!(path.retry_in(), None);
}
