//! Channels as services of tower's: when they are ready, and which of them a balancer calls.

use std::future::poll_fn;
use std::time::Duration;

use futures::future::join_all;
use rpc_core::client::{CallRules, Caller, ClientCall, LayeredChannel};
use rpc_core::server::ServerParts;
use rpc_core::{Channel, Code, NotExecuted};
use tower::balance::p2c::Balance;
use tower::discover::ServiceList;
use tower::load::{CompleteOnResponse, PendingRequestsDiscover};
use tower::{Service, ServiceBuilder};

use crate::numbers::{Numbers, NumbersStub};
use crate::serving::{Serving, channel};

/// Longer than any delay between two attempts to connect.
const LONGEST_BACKOFF: Duration = Duration::from_secs(200);

fn serve() -> Serving {
    Serving::start(server())
}

fn server() -> ServerParts {
    ServerParts::default().add_service(Numbers::new().0)
}

fn balanced(channels: Vec<Channel>) -> NumbersStub<impl Caller + Clone> {
    let servers = ServiceList::new(channels);
    let servers = PendingRequestsDiscover::new(servers, CompleteOnResponse::default());
    let balance = Balance::new(servers);
    NumbersStub(LayeredChannel::new(ServiceBuilder::new().buffer(1024).service(balance)))
}

/// Calls at the same time and one after the other, all of which succeed.
async fn check(stub: &NumbersStub<impl Caller>) {
    let answers = join_all((0..50).map(|number| stub.double(number))).await;
    let answers: Result<Vec<_>, _> = answers.into_iter().collect();
    assert_eq!(answers.unwrap(), (0..50).map(|number| 2 * number).collect::<Vec<_>>());
    for number in 0..50 {
        assert_eq!(stub.double(number).await.unwrap(), 2 * number);
    }
}

async fn ready(channel: &mut Channel) {
    poll_fn(|cx| Service::<ClientCall>::poll_ready(channel, cx)).await.unwrap();
}

fn is_ready(channel: &mut Channel) -> bool {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    Service::<ClientCall>::poll_ready(channel, &mut cx).is_ready()
}

/// Waits until the channel knows that its server is gone.
async fn lost(channel: &Channel) {
    while channel.info().is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_fails_after_the_death_of_a_server_was_seen() {
    let [alive, dead] = [serve(), serve()];
    let channels = [alive.channel(), dead.channel()];
    let stub = balanced(channels.to_vec());
    check(&stub).await;
    assert_eq!([&alive, &dead].map(Serving::connection_count), [1, 1], "both are used");
    let name = dead.name().to_owned();
    drop(dead);
    lost(&channels[1]).await;
    // Attempts to connect become due meanwhile, and fail.
    for _ in 0..5 {
        check(&stub).await;
        tokio::time::sleep(LONGEST_BACKOFF).await;
    }
    let again = Serving::start_at(name, server());
    tokio::time::sleep(LONGEST_BACKOFF).await;
    check(&stub).await;
    assert_eq!(again.connection_count(), 1, "the server that came back is used again");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_never_there_fails_no_call() {
    let alive = serve();
    let stub = balanced(vec![channel("balance-never-there"), alive.channel()]);
    check(&stub).await;
    tokio::time::sleep(LONGEST_BACKOFF).await;
    check(&stub).await;
}

#[tokio::test(start_paused = true)]
async fn without_any_server_calls_wait_for_the_first_that_comes() {
    let names = ["balance-comes-late", "balance-never-comes"];
    let stub = balanced(names.map(channel).to_vec());
    let late = async {
        tokio::time::sleep(LONGEST_BACKOFF).await;
        Serving::start_at(names[0].to_owned(), server())
    };
    let (_serving, answer) = tokio::join!(late, stub.double(4));
    assert_eq!(answer.unwrap(), 8);
    // Their deadlines count meanwhile.
    let alone = balanced(vec![channel(names[1])]);
    let waiting = tokio::time::timeout(LONGEST_BACKOFF, alone.double(4)).await;
    waiting.expect_err("no server has come");
}

#[tokio::test(start_paused = true)]
async fn a_channel_is_ready_while_it_has_a_connection() {
    let serving = serve();
    let mut channel = serving.channel();
    assert!(!is_ready(&mut channel), "it connects first");
    ready(&mut channel).await;
    assert!(channel.info().is_some() && is_ready(&mut channel) && is_ready(&mut channel.clone()));
    assert_eq!(NumbersStub(channel.clone()).double(4).await.unwrap(), 8);
    let name = serving.name().to_owned();
    drop(serving);
    lost(&channel).await;
    assert!(!is_ready(&mut channel));
    // The attempt that it makes fails, and those after it, until there is a server again.
    tokio::time::timeout(LONGEST_BACKOFF, ready(&mut channel)).await.unwrap_err();
    let _serving = Serving::start_at(name, server());
    ready(&mut channel).await;
    assert!(channel.info().is_some());
}

/// Under its own layers a channel is alone: there its calls decide whether to wait.
#[tokio::test(start_paused = true)]
async fn layers_of_one_channel_do_not_make_its_calls_wait() {
    let layers = || ServiceBuilder::new().load_shed().concurrency_limit(8);
    let dead = channel("layers-of-one-channel");
    let stub = NumbersStub(dead.clone().layer(layers()));
    for _ in 0..3 {
        let status = stub.double(4).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(NotExecuted::matches(&status));
    }
    let rules = CallRules { wait_for_ready: true, ..CallRules::DEFAULT };
    let patient = NumbersStub(dead.with_rules(rules).layer(layers()));
    let late = async {
        tokio::time::sleep(LONGEST_BACKOFF).await;
        Serving::start_at("layers-of-one-channel".to_owned(), server())
    };
    let (_serving, answer) = tokio::join!(late, patient.double(4));
    assert_eq!(answer.unwrap(), 8);
}

/// A call that is made without asking does as its own rule says.
#[tokio::test(start_paused = true)]
async fn plain_calls_do_not_ask_whether_the_channel_is_ready() {
    let mut dead = channel("plain-calls");
    assert!(!is_ready(&mut dead));
    let status = NumbersStub(dead.clone()).double(4).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let rules = CallRules { wait_for_ready: true, ..CallRules::DEFAULT };
    let patient = NumbersStub(dead.with_rules(rules));
    let late = async {
        tokio::time::sleep(LONGEST_BACKOFF).await;
        Serving::start_at("plain-calls".to_owned(), server())
    };
    let (_serving, answer) = tokio::join!(late, patient.double(4));
    assert_eq!(answer.unwrap(), 8);
}
