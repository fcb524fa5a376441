//! Work in progress when a peer goes silent, and that both ends notice, whatever silences it.

use std::time::{Duration, Instant};

use farcall::{Channel, Server, Status};
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::proto::{DownloadRequest, ParkRequest, ProduceRequest};
use farcall_suite::{Watch, WatchEvent};
use tokio::task::JoinHandle;

/// The bound on every wait that is not for what is under test.
const LIMIT: Duration = Duration::from_secs(60);

/// Between two looks at a condition that nothing announces.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until client and server have noticed, within `bound`.
pub(crate) async fn both_notice(what: &str, channel: &Channel, server: &Server, bound: Duration) {
    let start = Instant::now();
    let client = async {
        until(|| channel.info().is_none()).await;
        start.elapsed()
    };
    let served = async {
        until(|| server.connections().is_empty()).await;
        start.elapsed()
    };
    let both = async { tokio::join!(client, served) };
    let (client, server) = tokio::time::timeout(bound, both).await.expect("both ends notice");
    println!("{what}: the client noticed after {client:?}, the server after {server:?}");
}

/// A call whose handler waits; gives how it ends.
pub(crate) async fn call_in_flight(stub: &ProbeStub, watch: &mut Watch) -> JoinHandle<Status> {
    let stub = stub.clone();
    let request = ParkRequest { tag: 1, ..Default::default() };
    let call =
        tokio::spawn(
            async move { stub.park(request).await.expect_err("the server could not answer") },
        );
    assert_eq!(within("the handler", watch.next()).await, Some(WatchEvent::Entered(1)));
    call
}

/// The server does not go on with the call of a client that is gone.
pub(crate) async fn handler_is_dropped(watch: &mut Watch) {
    assert_eq!(within("the handler", watch.next()).await, Some(WatchEvent::Dropped(1)));
}

/// A stream without an end that is being read; gives how it ends.
pub(crate) async fn stream_in_progress(stub: &ProbeStub) -> JoinHandle<Status> {
    let message = ProduceRequest { seed: 1, len: 1000 };
    let request =
        DownloadRequest { messages: vec![message], rounds: u32::MAX, ..Default::default() };
    let mut stream = within("a stream", stub.download(request)).await.expect("one").into_inner();
    for _ in 0..10 {
        let message = within("a message", stream.message()).await.expect("the stream goes on");
        assert!(message.is_some(), "the stream has an end");
    }
    tokio::spawn(async move {
        loop {
            if let Err(status) = stream.message().await {
                return status;
            }
        }
    })
}

/// Returns the status of a call that a silent peer must end.
pub(crate) async fn ended(what: JoinHandle<Status>) -> Status {
    within("the end", what).await.expect("no panic")
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(LIMIT, future).await;
    result.unwrap_or_else(|_| panic!("{what} did not happen within {LIMIT:?}"))
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
