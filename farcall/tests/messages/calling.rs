//! The statuses of calls that fail.

use std::time::Duration;

use farcall::client::{client_streaming, server_streaming, unary};
use farcall::{Channel, Deadline, Limits, Request, Server, Status};
use futures::stream;
use tokio::time::Instant;

use crate::service::{Demo, MISSING, demo, failure, failure_of, listen, named, serve};
use crate::transcript::Transcript;

const SOON: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(600);

pub(crate) async fn tell(transcript: &mut Transcript) {
    deadlines(transcript).await;
    inherited(transcript).await;
    limits(transcript).await;
    handlers(transcript).await;
    ends(transcript).await;
}

fn say(transcript: &mut Transcript, cause: &str, status: &Status) {
    let code = format!("{:?}", status.code());
    transcript.say(cause, format!("{code}: {}", status.message()));
}

async fn channel(address: &str) -> Channel {
    Channel::connect(address).await.expect("the server is there")
}

async fn deadlines(transcript: &mut Transcript) {
    let (address, _) = demo(Server::builder()).await;
    let channel = channel(&address).await;
    let mut request = Request::new(String::new());
    request.set_timeout(SOON);
    let status = failure_of(&channel, "Wait", request).await;
    say(transcript, "Request::set_timeout(50 ms)", &status);
    let mut request = Request::new(String::new());
    // A second is rounded to what was meant, whatever passes between here and the call.
    request.extensions_mut().insert(Deadline(Instant::now()));
    let status = failure_of(&channel, "Wait", request).await;
    say(transcript, "a Deadline among the request's extensions that has passed", &status);
    let impatient = Channel::builder(&address).unwrap().timeout(SOON).connect_lazy();
    let status = failure(&impatient, "Wait", "").await;
    say(transcript, "the channel's timeout of 50 ms", &status);
    let impatient = Channel::builder(&address).unwrap().unary_timeout(SOON).connect_lazy();
    let status = failure(&impatient, "Wait", "").await;
    say(transcript, "the channel's unary_timeout of 50 ms", &status);
    let (limited, _) = demo(Server::builder().unary_timeout(SOON)).await;
    let limited = self::channel(&limited).await;
    let status = failure(&limited, "Wait", "").await;
    say(transcript, "the server's unary_timeout of 50 ms", &status);
    let layered = channel.layer(tower::timeout::TimeoutLayer::new(SOON));
    say(transcript, "a layer of tower's: a timeout of 50 ms", &failure(&layered, "Wait", "").await);
    let nowhere = Channel::builder("tcp://127.0.0.1:1").unwrap();
    let nowhere = nowhere.wait_for_ready(true).timeout(SOON).connect_lazy();
    let status = failure(&nowhere, "Echo", "").await;
    say(transcript, "a call that waits for a connection, within a timeout of 50 ms", &status);
}

/// A call that a handler makes has what is left of the handler's own.
async fn inherited(transcript: &mut Transcript) {
    let (next, _) = demo(Server::builder()).await;
    let next = Channel::builder(&next).unwrap().timeout(LATE).connect_lazy();
    let relay = Demo { next: Some(next), ..Demo::default() };
    let server = Server::builder().unary_timeout(SOON).add_service(relay);
    let relay = channel(&serve(listen(server).await)).await;
    let status = failure(&relay, "Relay", "").await;
    // The handler and the call that it makes run out of time at once.
    assert_eq!(status.code(), farcall::Code::DeadlineExceeded, "{status}");
    let (next, _) = demo(Server::builder()).await;
    let next = Channel::builder(&next).unwrap().timeout(LATE).connect_lazy();
    let deadline = Deadline::after(Instant::now(), SOON);
    let inherits = Deadline::scope(Some(deadline), failure(&next, "Wait", ""));
    let status = inherits.await;
    let message = status.message();
    let (before, rest) = message.split_once(" within ").expect("its length is named");
    let (_, rest) = rest.split_once(' ').expect("it is a time");
    let message = format!("DeadlineExceeded: {before} within <time> {rest}");
    transcript.say("what a handler's call has left of the handler's own", message);
}

async fn limits(transcript: &mut Transcript) {
    let small = Limits::default().with_max_message_len(1_000).with_max_metadata_len(1_000);
    let (address, _) = demo(Server::builder().limits(small)).await;
    let small_server = channel(&address).await;
    let long = "x".repeat(2_000);
    let status = failure(&small_server, "Echo", &long).await;
    say(transcript, "a request over the server's limit", &status);
    let mut request = Request::new(String::new());
    request.metadata_mut().insert("x-long", long.parse().unwrap());
    let status = failure_of(&small_server, "Echo", request).await;
    say(transcript, "metadata over the server's limit", &status);
    let requests = stream::iter([long.clone()]);
    let upload =
        client_streaming::<_, String>(&small_server, named("Upload"), Request::new(requests));
    say(transcript, "a message of a stream over the server's limit", &upload.await.unwrap_err());
    let (address, _) = demo(Server::builder()).await;
    let small_client = Channel::builder(&address).unwrap().max_message_len(1_000);
    let small_client = small_client.connect().await.unwrap();
    let status = failure(&small_client, "Echo", &long).await;
    say(transcript, "a response over the client's limit", &status);
    let (address, waiting) = demo(Server::builder().max_calls(1)).await;
    let full = channel(&address).await;
    let (held, full) = (full.clone(), full);
    let held = tokio::spawn(async move { failure(&held, "Wait", "").await });
    waiting.notified().await;
    say(transcript, "a call beyond max_calls", &failure(&full, "Echo", "").await);
    held.abort();
}

async fn handlers(transcript: &mut Transcript) {
    let (address, _) = demo(Server::builder()).await;
    let channel = channel(&address).await;
    let missing = unary::<String, String>(&channel, &MISSING, Request::new(String::new())).await;
    say(transcript, "a method that the server does not have", &missing.unwrap_err());
    say(transcript, "a handler that panics", &failure(&channel, "Panic", "").await);
    say(transcript, "a status of a handler", &failure(&channel, "Fail", "").await);
    let mut subscribed = server_streaming::<String, String>(
        &channel,
        named("Subscribe"),
        Request::new(String::new()),
    )
    .await
    .unwrap()
    .into_inner();
    assert_eq!(subscribed.message().await.unwrap().as_deref(), Some("one"));
    say(transcript, "a status at the end of a stream", &subscribed.message().await.unwrap_err());
    let as_number = unary::<String, u64>(&channel, named("Echo"), Request::new("text".to_owned()));
    say(transcript, "a response of another type", &as_number.await.unwrap_err());
    let as_number = unary::<u64, String>(&channel, named("Echo"), Request::new(7));
    say(transcript, "a request of another type", &as_number.await.unwrap_err());
}

/// Connections that end under their calls.
async fn ends(transcript: &mut Transcript) {
    for (cause, drain) in [
        ("a server that is shut down, after its drain_timeout", Some(Duration::ZERO)),
        ("a server that is gone", None),
    ] {
        let builder = Server::builder().drain_timeout(drain.unwrap_or(LATE));
        let demo = Demo::default();
        let waiting = std::sync::Arc::clone(&demo.waiting);
        let listener = listen(builder.add_service(demo)).await;
        let address = listener.local_address().to_string();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(listener.serve().with_graceful_shutdown(async {
            let _ = stopped.await;
        }));
        let channel = channel(&address).await;
        let call = tokio::spawn({
            let channel = channel.clone();
            async move { failure(&channel, "Wait", "").await }
        });
        waiting.notified().await;
        match drain {
            Some(_) => stop.send(()).unwrap(),
            None => serving.abort(),
        }
        let status = call.await.unwrap();
        say(transcript, cause, &status);
        transcript.say(
            &format!("{cause}, with its causes"),
            format!("{:#}", anyhow::Error::from(status)),
        );
    }
}
