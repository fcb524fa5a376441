//! Timeouts that end unary calls and leave streams alone.

use std::time::Duration;

use rpc_core::client::{CallRules, Caller};
use rpc_core::server::{ServerParts, ServerSettings};
use rpc_core::{Code, Deadline, Request};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::numbers::{Numbers, NumbersStub, STEP, collect, slowly};
use crate::serving::Serving;

/// A stream that lasts longer than the timeout has this many messages.
const COUNT: u64 = 10;

async fn check_streams(stub: &NumbersStub<impl Caller>) {
    let expected: Vec<_> = (0..COUNT).collect();
    let (numbers, status) = collect(stub.count(COUNT).await.unwrap()).await;
    assert_eq!((numbers, status.is_none()), (expected, true));
    assert_eq!(stub.sum(slowly(0..COUNT)).await.unwrap(), (0..COUNT).sum::<u64>());
    let (sums, status) = collect(stub.sums(slowly(0..COUNT)).await.unwrap()).await;
    assert_eq!((sums.len() as u64, status.is_none()), (COUNT, true));
}

async fn check_unary(stub: &NumbersStub<impl Caller>, dropped: &mut UnboundedReceiver<()>) {
    let start = Instant::now();
    let status = stub.wait().await.unwrap_err();
    assert_eq!((status.code(), start.elapsed()), (Code::DeadlineExceeded, 2 * STEP), "{status}");
    dropped.recv().await.unwrap();
    assert_eq!(stub.double(4).await.unwrap(), 8);
}

/// Serves with a timeout of two steps.
fn serving(numbers: Numbers) -> Serving {
    let mut settings = ServerSettings::default();
    settings.unary_timeout = Some(2 * STEP);
    Serving::start_with(ServerParts::default().add_service(numbers), settings)
}

#[tokio::test(start_paused = true)]
async fn a_servers_timeout_ends_unary_calls_and_no_streams() {
    let (numbers, mut dropped) = Numbers::new();
    let serving = serving(numbers);
    let stub = NumbersStub(serving.channel());
    check_unary(&stub, &mut dropped).await;
    let status = stub.wait().await.unwrap_err();
    assert!(status.message().contains("the server's unary_timeout"), "{status}");
    check_streams(&stub).await;
}

/// The client's deadline counts where it comes first, and does not extend the server's.
#[tokio::test(start_paused = true)]
async fn the_earlier_of_a_servers_timeout_and_the_deadline_counts() {
    let (numbers, _dropped) = Numbers::new();
    let serving = serving(numbers);
    for (timeout, expected) in [(STEP, STEP), (4 * STEP, 2 * STEP)] {
        let rules = CallRules { timeout: Some(timeout), ..CallRules::DEFAULT };
        let (stub, start) = (NumbersStub(serving.channel().with_rules(rules)), Instant::now());
        let status = stub.wait().await.unwrap_err();
        assert_eq!((status.code(), start.elapsed()), (Code::DeadlineExceeded, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_channels_unary_timeout_ends_unary_calls_and_no_streams() {
    let (numbers, mut dropped) = Numbers::new();
    let serving = Serving::start(ServerParts::default().add_service(numbers));
    let rules = CallRules { unary_timeout: Some(2 * STEP), ..CallRules::DEFAULT };
    let channel = serving.channel().with_rules(rules);
    check_unary(&NumbersStub(channel.clone()), &mut dropped).await;
    check_streams(&NumbersStub(channel.clone())).await;
    // Through layers it is the channel's, too.
    let layered = channel.layer(tower::layer::util::Identity::new());
    check_unary(&NumbersStub(layered.clone()), &mut dropped).await;
    check_streams(&NumbersStub(layered)).await;
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_call_has_its_own_timeout() {
    let (numbers, mut dropped) = Numbers::new();
    let serving = Serving::start(ServerParts::default().add_service(numbers));
    for (unary, all) in [(2 * STEP, 4 * STEP), (2 * STEP, STEP)] {
        let (timeout, unary_timeout) = (Some(all), Some(unary));
        let rules = CallRules { timeout, unary_timeout, ..CallRules::DEFAULT };
        let channel = serving.channel().with_rules(rules);
        let stub = NumbersStub(channel);
        check_unary(&stub, &mut dropped).await;
        let start = Instant::now();
        let (_, status) = collect(stub.count(COUNT).await.unwrap()).await;
        assert_eq!(status.unwrap().code(), Code::DeadlineExceeded);
        assert_eq!(start.elapsed(), all);
    }
}

/// A deadline of the call's own takes the place of the channel's timeout.
#[tokio::test(start_paused = true)]
async fn a_calls_own_deadline_takes_the_place_of_the_unary_timeout() {
    let (numbers, _dropped) = Numbers::new();
    let serving = Serving::start(ServerParts::default().add_service(numbers));
    let rules = CallRules { unary_timeout: Some(Duration::ZERO), ..CallRules::DEFAULT };
    let channel = serving.channel().with_rules(rules);
    let mut request = Request::new(4);
    request.extensions_mut().insert(Deadline::after(Instant::now(), STEP));
    let stub = NumbersStub(channel);
    assert_eq!(stub.double_request(request).await.unwrap().into_inner(), 8);
    assert_eq!(stub.double(4).await.unwrap_err().code(), Code::DeadlineExceeded);
}

/// Otherwise a handler that calls through layers would wait for as long as its own caller does.
#[tokio::test(start_paused = true)]
async fn layers_combine_channel_timeout_and_inherited_deadline() {
    let (numbers, _dropped) = Numbers::new();
    let serving = Serving::start(ServerParts::default().add_service(numbers));
    let rules = CallRules { timeout: Some(2 * STEP), ..CallRules::DEFAULT };
    let channel = serving.channel().with_rules(rules);
    let stub = NumbersStub(channel.layer(tower::layer::util::Identity::new()));
    let (start, inherited) = (Instant::now(), Deadline::after(Instant::now(), 10 * STEP));
    let status = Deadline::scope(Some(inherited), stub.wait()).await.unwrap_err();
    assert_eq!(status.message(), "the call did not end within 2s (the channel's timeout)");
    assert_eq!(start.elapsed(), 2 * STEP);
    let inherited = Deadline::after(Instant::now(), STEP);
    let status = Deadline::scope(Some(inherited), stub.wait()).await.unwrap_err();
    let message = "within 1s (the time left to the handler that made the call)";
    assert!(status.message().ends_with(message), "{status}");
}

/// The timer of a stream is another one than that of its headers.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_over_its_time_names_the_timeout() {
    let (numbers, _dropped) = Numbers::new();
    let serving = Serving::start(ServerParts::default().add_service(numbers));
    let rules = CallRules { timeout: Some(3 * STEP), ..CallRules::DEFAULT };
    let stub = NumbersStub(serving.channel().with_rules(rules));
    let (_, status) = collect(stub.count(COUNT).await.unwrap()).await;
    let message = "the call did not end within 3s (the channel's timeout)";
    assert_eq!(status.unwrap().message(), message);
}
