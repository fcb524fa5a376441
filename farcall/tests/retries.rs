//! Retries and hedging over real servers.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farcall::balance::{BalanceConfig, Policy};
use farcall::client::unary;
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::retry::{HedgingPolicy, MethodConfig, RetryPolicy};
use farcall::{
    CallKind, Caller, Channel, ChannelBuilder, Code, Idempotency, MethodDescriptor, Request,
    Response, Server, Service, ServiceDescriptor, Status,
};
use tokio::sync::Semaphore;
use tower::ServiceBuilder;

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "t.Flaky",
    methods: &[MethodDescriptor::new("/t.Flaky/Get", CallKind::Unary, Idempotency::NoSideEffects)],
};

/// A server whose first calls fail, and whose others wait for permits. It answers with how many
/// attempts preceded a call's.
struct Flaky {
    calls: AtomicU32,
    failures: u32,
    permits: Semaphore,
}

/// The same, shared with its test.
struct Shared(Arc<Flaky>);

impl Service for Shared {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        let flaky = Arc::clone(&self.0);
        call.unary(async move |request: Request<()>| {
            if flaky.calls.fetch_add(1, Ordering::Relaxed) < flaky.failures {
                let mut status = Status::unavailable("not yet");
                status.metadata_mut().insert("grpc-retry-pushback-ms", "1".parse().unwrap());
                return Err(status);
            }
            let _permit = flaky.permits.acquire().await;
            let previous = request.metadata().get("grpc-previous-rpc-attempts");
            let previous = previous.map_or(Ok("0"), |value| value.to_str());
            Ok(Response::new(previous.unwrap().to_owned()))
        })
    }
}

async fn server(failures: u32, permits: usize) -> (Arc<Flaky>, String) {
    let (calls, permits) = (AtomicU32::new(0), Semaphore::new(permits));
    let flaky = Arc::new(Flaky { calls, failures, permits });
    let builder = Server::builder().add_service(Shared(Arc::clone(&flaky)));
    let listener = builder.bind("tcp://127.0.0.1:0").await.expect("a port of loopback");
    let address = listener.local_address().to_string();
    tokio::spawn(async move { drop(listener.serve().await) });
    (flaky, address)
}

/// A policy whose own delays would take longer than the test may.
fn patient() -> RetryPolicy {
    let hour = Duration::from_secs(3600);
    RetryPolicy::default().with_initial_backoff(hour).with_max_backoff(hour)
}

fn retrying(address: &str, policy: RetryPolicy) -> ChannelBuilder {
    let config = MethodConfig::default().with_retry(policy);
    Channel::builder(address).expect("it is an address").method("*", config)
}

async fn get(caller: &impl Caller) -> Result<String, Status> {
    let call = unary(caller, &SERVICE.methods[0], Request::new(()));
    let reply = tokio::time::timeout(Duration::from_secs(30), call).await;
    reply.expect("the call ends").map(Response::into_inner)
}

#[tokio::test]
async fn a_server_that_asks_for_another_attempt_gets_it_and_knows() {
    let (flaky, address) = server(2, 1).await;
    let channel = retrying(&address, patient()).connect_lazy();
    assert_eq!(get(&channel).await.unwrap(), "2");
    assert_eq!(flaky.calls.load(Ordering::Relaxed), 3);
    // Under layers as well.
    let (_flaky, address) = server(1, 1).await;
    let channel = retrying(&address, patient()).connect_lazy();
    let layered = channel.layer(ServiceBuilder::new().concurrency_limit(1));
    assert_eq!(get(&layered).await.unwrap(), "1");
}

#[tokio::test]
async fn the_next_attempt_goes_to_another_server() {
    let ((failing, first), (healthy, second)) = (server(u32::MAX, 1).await, server(0, 1).await);
    let balance = BalanceConfig::default().with_policy(Policy::RoundRobin);
    let builder = retrying(&format!("{first},{second}"), patient().with_max_attempts(2));
    let channel = builder.balance(balance).connect_lazy();
    // Whichever is first, one of two attempts finds the one that answers.
    for _ in 0..8 {
        let previous = get(&channel).await.unwrap();
        assert!(previous == "0" || previous == "1");
    }
    assert_eq!(healthy.calls.load(Ordering::Relaxed), 8);
    assert!(failing.calls.load(Ordering::Relaxed) <= 8);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_hedged_by_another_one() {
    let ((stuck, first), (healthy, second)) = (server(0, 0).await, server(0, 8).await);
    let policy = HedgingPolicy::default().with_hedging_delay(Duration::from_millis(1));
    let config = MethodConfig::default().with_hedging(policy.with_max_attempts(2));
    let builder = Channel::builder(format!("{first},{second}")).unwrap().method("t.Flaky", config);
    let balance = BalanceConfig::default().with_policy(Policy::RoundRobin);
    let channel = builder.balance(balance).connect().await.unwrap();
    for _ in 0..8 {
        get(&channel).await.unwrap();
    }
    assert!(healthy.calls.load(Ordering::Relaxed) >= 8);
    assert!(stuck.calls.load(Ordering::Relaxed) <= 8);
}

#[tokio::test]
async fn a_timeout_of_the_service_config_is_named() {
    let (_stuck, address) = server(0, 0).await;
    let config = MethodConfig::default().with_timeout(Duration::from_millis(20));
    let channel = Channel::builder(address).unwrap().method("t.Flaky/Get", config).connect_lazy();
    let status = get(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let message = "(the timeout of the channel's service config)";
    assert!(status.message().contains(message), "{}", status.message());
}

#[test]
#[should_panic(expected = "retry.max_attempts is 1: from 2 to 5")]
fn a_policy_out_of_its_range_panics_where_it_is_set() {
    let _ = retrying("tcp://127.0.0.1:1", RetryPolicy::default().with_max_attempts(1));
}
