//! Attempts through a channel whose answers are scripted.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use proptest::prelude::*;
use prost::Message;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Request, Response, Status};

use super::*;
use crate::client::call::ReplyBody;
use crate::client::{server_streaming, streaming, unary};
use crate::policy::retry_config::{HedgingPolicy, RetryBudget, RetryPolicy};
use crate::stream::StreamPart;
use crate::{CallKind, MayHaveExecuted, MethodDescriptor};

const MS: Duration = Duration::from_millis(1);

static PUT_METHOD: MethodDescriptor =
    MethodDescriptor::new("/shop.Cart/Put", CallKind::Unary, Idempotency::Unknown);

static GET_METHOD: MethodDescriptor = MethodDescriptor {
    path: "/shop.Cart/Get",
    idempotency: Idempotency::NoSideEffects,
    ..PUT_METHOD
};

static WATCH_METHOD: MethodDescriptor =
    MethodDescriptor { path: "/shop.Cart/Watch", kind: CallKind::ServerStreaming, ..GET_METHOD };

static CHAT_METHOD: MethodDescriptor =
    MethodDescriptor { path: "/shop.Cart/Chat", kind: CallKind::Streaming, ..GET_METHOD };

/// The answer to each attempt by its number, and its delay.
type Script = Box<dyn Fn(u32) -> (Duration, Result<ReplyBody, Status>) + Send + Sync>;

/// A channel whose answers a test scripts.
struct Scripted {
    script: Mutex<Arc<Script>>,
    /// The metadata and deadline of each attempt.
    attempts: Mutex<Vec<(MetadataMap, Option<Deadline>)>>,
    running: AtomicU32,
}

/// Counts an attempt as running.
struct Running<'a>(&'a AtomicU32);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Caller for Scripted {
    async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
        let deadline = call.deadline();
        let (metadata, _, _) = call.into_parts();
        let number = {
            let mut attempts = self.attempts.lock();
            attempts.push((metadata, deadline));
            u32::try_from(attempts.len() - 1).unwrap()
        };
        self.running.fetch_add(1, Relaxed);
        let _running = Running(&self.running);
        let (delay, result) = (self.script.lock().clone())(number);
        tokio::time::sleep(delay).await;
        result.map(|body| ClientReply::new(MetadataMap::new(), Extensions::new(), body))
    }
}

/// A channel under a service config.
struct Client {
    attempts: PolicyAttempts,
    channel: Scripted,
    rules: CallRules,
}

impl Caller for Client {
    async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
        self.attempts.call(&self.channel, &self.rules, call).await
    }
}

fn message(message: u64) -> ReplyBody {
    ReplyBody::Message(bytes::Bytes::from(message.encode_to_vec()).into())
}

impl Client {
    fn new(config: ServiceConfig) -> Self {
        config.check().unwrap();
        let script: Script = Box::new(|_| (Duration::ZERO, Err(unavailable())));
        let channel = Scripted {
            script: Mutex::new(Arc::new(script)),
            attempts: Mutex::default(),
            running: AtomicU32::new(0),
        };
        Self { attempts: PolicyAttempts::new(config), channel, rules: CallRules::DEFAULT }
    }

    fn retrying(policy: RetryPolicy) -> Self {
        Self::new(ServiceConfig::new().with_method("*", MethodConfig::default().with_retry(policy)))
    }

    fn hedging(policy: HedgingPolicy) -> Self {
        Self::new(
            ServiceConfig::new().with_method("*", MethodConfig::default().with_hedging(policy)),
        )
    }

    /// Sets the answers to attempts, by their number from 0 on, and after how long each comes.
    fn answer(
        &self,
        answer: impl Fn(u32) -> (Duration, Result<u64, Status>) + Send + Sync + 'static,
    ) {
        self.script(move |number| {
            let (delay, result) = answer(number);
            (delay, result.map(message))
        });
    }

    fn script(
        &self,
        script: impl Fn(u32) -> (Duration, Result<ReplyBody, Status>) + Send + Sync + 'static,
    ) {
        *self.channel.script.lock() = Arc::new(Box::new(script));
    }

    /// Returns the number of attempts made.
    fn made(&self) -> usize {
        self.channel.attempts.lock().len()
    }

    async fn get(&self) -> Result<u64, Status> {
        unary(self, &GET_METHOD, Request::new(1_u64)).await.map(Response::into_inner)
    }

    async fn put(&self) -> Result<u64, Status> {
        unary(self, &PUT_METHOD, Request::new(1_u64)).await.map(Response::into_inner)
    }

    /// Returns each attempt's note of those before it.
    fn previous(&self) -> Vec<Option<String>> {
        let text = |value: &tonic::metadata::AsciiMetadataValue| value.to_str().unwrap().to_owned();
        let attempts = self.channel.attempts.lock();
        attempts.iter().map(|(metadata, _)| metadata.get(ATTEMPTS_KEY).map(text)).collect()
    }
}

fn unavailable() -> Status {
    Status::unavailable("away")
}

/// An attempt that is executed, and answered at once.
fn at_once(result: Result<u64, Status>) -> (Duration, Result<u64, Status>) {
    (Duration::ZERO, result)
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_call_is_retried_until_success_with_a_count() {
    let client = Client::retrying(RetryPolicy::default());
    client.answer(|number| at_once(if number < 2 { Err(unavailable()) } else { Ok(7) }));
    let start = Instant::now();
    assert_eq!(client.get().await.unwrap(), 7);
    let took = start.elapsed();
    assert!((240 * MS..=360 * MS + 2 * MS).contains(&took), "100 and 200 ms by a fifth: {took:?}");
    assert_eq!(client.previous(), [None, Some("1".to_owned()), Some("2".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_call_is_repeated_only_if_idempotent() {
    let client = Client::retrying(RetryPolicy::default());
    client.answer(|_| at_once(Err(unavailable())));
    assert_eq!(client.put().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(client.made(), 1);
    // By its service config.
    let policy = MethodConfig::default().with_retry(RetryPolicy::default()).with_idempotent(true);
    let client = Client::new(ServiceConfig::new().with_method("shop.Cart", policy));
    client.answer(|_| at_once(Err(unavailable())));
    assert_eq!(client.put().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(client.made(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_no_handler_has_seen_is_repeated_whatever_it_does() {
    let policy = RetryPolicy::default().with_retryable_codes([Code::ResourceExhausted]);
    let client = Client::retrying(policy);
    let full = || NotExecuted::mark(Status::resource_exhausted("full"));
    client.answer(move |number| at_once(if number == 0 { Err(full()) } else { Ok(7) }));
    assert_eq!(client.put().await.unwrap(), 7);
    assert_eq!(client.made(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_unexecuted_last_attempt_leaves_a_call_ambiguous() {
    for client in
        [Client::retrying(RetryPolicy::default()), Client::hedging(HedgingPolicy::default())]
    {
        client.answer(|number| {
            let never = NotExecuted::mark(unavailable());
            at_once(Err(if number == 0 { unavailable() } else { never }))
        });
        let status = client.get().await.unwrap_err();
        assert!(MayHaveExecuted::matches(&status) && !NotExecuted::matches(&status));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_says_when_and_whether() {
    let client = Client::retrying(RetryPolicy::default());
    let pushed = |ms: &'static str| {
        let mut status = unavailable();
        status.metadata_mut().insert(PUSHBACK_KEY, ms.parse().unwrap());
        status
    };
    client.answer(move |number| at_once(if number == 0 { Err(pushed("7")) } else { Ok(7) }));
    let start = Instant::now();
    client.get().await.unwrap();
    assert_eq!(start.elapsed().as_millis(), 7);
    let client = Client::retrying(RetryPolicy::default());
    client.answer(move |_| at_once(Err(pushed("-1"))));
    client.get().await.unwrap_err();
    assert_eq!(client.made(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_timeout_covers_all_attempts() {
    let policy = RetryPolicy::default().with_max_attempts(5).with_initial_backoff(1000 * MS);
    let config = MethodConfig::default().with_retry(policy.with_max_backoff(1000 * MS));
    let config = config.with_timeout(2500 * MS);
    let client = Client::new(ServiceConfig::new().with_method("*", config));
    client.answer(|_| at_once(Err(unavailable())));
    let start = Instant::now();
    let status = client.get().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "away"));
    assert!(start.elapsed() < 2500 * MS);
    // The first, and one or two a second later: a delay is longer or shorter by a fifth.
    assert!((2..=4).contains(&client.made()));
    let attempts = client.channel.attempts.lock();
    let deadlines: Vec<_> = attempts.iter().map(|(_, deadline)| deadline.unwrap()).collect();
    assert!(deadlines.windows(2).all(|pair| pair[0] == pair[1]), "{deadlines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_the_request_or_the_channel_counts_once_too() {
    let mut client = Client::retrying(RetryPolicy::default());
    client.answer(|_| at_once(Err(unavailable())));
    client.rules.timeout = Some(150 * MS);
    let start = Instant::now();
    client.get().await.unwrap_err();
    assert!(start.elapsed() < 150 * MS);
    let mut request = Request::new(1_u64);
    request.set_timeout(10 * MS);
    let reply: Result<Response<u64>, _> = unary(&client, &GET_METHOD, request).await;
    reply.unwrap_err();
    let attempts = client.channel.attempts.lock();
    let (metadata, deadline) = attempts.last().unwrap();
    assert!(metadata.get("grpc-timeout").is_none() && deadline.is_some());
}

#[tokio::test(start_paused = true)]
async fn only_response_streams_are_retried_until_their_first_answer() {
    let client = Client::retrying(RetryPolicy::default());
    client.script(|number| match number {
        0 => (Duration::ZERO, Err(unavailable())),
        _ => {
            let message = StreamPart::Message(1_u64.encode_to_vec().into());
            let messages = [Ok(message), Err(unavailable())];
            (Duration::ZERO, Ok(ReplyBody::Scripted(futures::stream::iter(messages).boxed())))
        }
    });
    let reply = server_streaming::<u64, u64>(&client, &WATCH_METHOD, Request::new(1)).await;
    let mut stream = reply.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap(), Some(1));
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(client.made(), 2);
    client.answer(|_| at_once(Err(unavailable())));
    let requests = Request::new(futures::stream::iter([1_u64]));
    let reply = streaming::<_, u64>(&client, &CHAT_METHOD, requests).await;
    assert_eq!(reply.unwrap_err().code(), Code::Unavailable);
    assert_eq!(client.made(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_slow_attempt_is_hedged_and_the_first_answer_counts() {
    let policy = HedgingPolicy::default().with_max_attempts(3).with_hedging_delay(10 * MS);
    let client = Client::hedging(policy);
    client.answer(|number| match number {
        0 => (1000 * MS, Ok(0)),
        number => (5 * MS, Ok(number.into())),
    });
    let start = Instant::now();
    assert_eq!(client.get().await.unwrap(), 1);
    assert_eq!(start.elapsed().as_millis(), 15);
    assert_eq!(client.previous(), [None, Some("1".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_hedges_at_once_and_a_fatal_one_ends_the_call() {
    let client = Client::hedging(HedgingPolicy::default().with_max_attempts(3));
    client.answer(|number| at_once(if number == 0 { Err(unavailable()) } else { Ok(7) }));
    let start = Instant::now();
    assert_eq!(client.get().await.unwrap(), 7);
    assert!(start.elapsed() < 10 * MS);
    let client = Client::hedging(HedgingPolicy::default().with_max_attempts(3));
    client.answer(|_| at_once(Err(Status::not_found("none"))));
    assert_eq!(client.get().await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.made(), 1);
    // One that is not idempotent is made once.
    client.answer(|_| (1000 * MS, Err(unavailable())));
    assert_eq!(client.put().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(client.made(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_budget_ends_repetitions_of_both_kinds() {
    let none = RetryBudget::default().with_ratio(0.0).with_min_per_second(0);
    let tokens = RetryBudget::throttling(2, 0.5);
    for budget in [none, tokens] {
        let retries = MethodConfig::default().with_retry(RetryPolicy::default());
        let hedging =
            MethodConfig::default().with_hedging(HedgingPolicy::default().with_max_attempts(3));
        for config in [retries, hedging] {
            let config = ServiceConfig::new().with_method("*", config).with_budget(budget);
            let client = Client::new(config);
            client.answer(|_| at_once(Err(unavailable())));
            assert_eq!(client.get().await.unwrap_err().code(), Code::Unavailable);
            assert_eq!(client.made(), 1, "{budget:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_all_calls_gets_a_fifth_more_of_them() {
    let client = Client::retrying(RetryPolicy::default().with_max_attempts(5));
    client.answer(|_| at_once(Err(unavailable())));
    let calls = (0..2000).map(|_| client.get());
    futures::future::join_all(calls).await;
    let attempts = client.made();
    // A fifth of 2,000, and 10 a second for the 10 s that the budget looks back, and what comes in
    // the seconds of the backoffs.
    assert!((2400..=2600).contains(&attempts), "{attempts}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_ends_its_attempts() {
    let client = Client::hedging(HedgingPolicy::default().with_hedging_delay(MS));
    client.answer(|_| (1000 * MS, Ok(7)));
    let call = tokio::time::timeout(10 * MS, client.get()).await;
    assert!(call.is_err());
    assert_eq!((client.made(), client.channel.running.load(Relaxed)), (2, 0));
}

fn statuses() -> impl Strategy<Value = (i32, bool)> {
    (prop_oneof![Just(14), Just(8), 1..17], any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the statuses, no call that may have been executed is repeated where its method is
    /// not idempotent, and the marks of its end are true.
    #[test]
    fn what_must_not_be_repeated_is_not(
        ends in prop::collection::vec(statuses(), 5),
        is_hedged: bool,
    ) {
        let codes = [Code::Unavailable, Code::ResourceExhausted];
        let retries = RetryPolicy::default().with_max_attempts(5).with_retryable_codes(codes);
        let hedging = HedgingPolicy::default().with_max_attempts(5).with_non_fatal_codes(codes);
        let client = match is_hedged {
            true => Client::hedging(hedging),
            false => Client::retrying(retries),
        };
        let script = ends.clone();
        client.answer(move |number| {
            let (code, is_marked) = script[usize::try_from(number).unwrap()];
            let status = Status::new(Code::from_i32(code), "no");
            at_once(Err(if is_marked { NotExecuted::mark(status) } else { status }))
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let status = runtime.block_on(client.put()).unwrap_err();
        let made = client.made();
        let executed = ends[..made].iter().filter(|(_, is_marked)| !is_marked).count();
        prop_assert!(executed <= 1, "executed {executed} times");
        prop_assert_eq!(executed == 0, NotExecuted::matches(&status));
    }
}
