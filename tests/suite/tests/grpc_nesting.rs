//! Messages in streams over `grpc://` that nest too deep: a short error of their sender, and of a
//! receiver where the sender lets them pass.

use std::any::Any;
use std::time::Duration;

use farcall::client::streaming;
use farcall::codegen::{Detach, Detacher, HandlerFuture, ServerCall, with_detach};
use farcall::{
    CallKind, Channel, Code, Idempotency, MethodDescriptor, Request, Response, Server, Service,
    ServiceDescriptor, Status, Streaming,
};
use futures::stream::{self, StreamExt as _};

const LIMIT: Duration = Duration::from_secs(60);

/// Messages that one may have around its innermost.
const LEVELS: usize = 100;

#[derive(Clone, PartialEq, prost::Message)]
struct Node {
    #[prost(message, optional, boxed, tag = "1")]
    inner: Option<Box<Node>>,
    /// Levels of a node that the server is to answer with.
    #[prost(uint64, tag = "2")]
    wanted: u64,
}

fn node(levels: usize) -> Node {
    (0..levels).fold(Node::default(), |inner, _| Node { inner: Some(Box::new(inner)), wanted: 0 })
}

/// Counts nesting as generated code does.
fn is_too_deep(message: &dyn Any) -> bool {
    let Some(mut node) = message.downcast_ref::<Node>() else { return false };
    let mut levels = 0;
    while let Some(inner) = &node.inner {
        (node, levels) = (inner, levels + 1);
    }
    levels > LEVELS
}

const CHECKED: Option<Detacher> = Some(Detacher::new(|_, _| {}).with_nesting_check(is_too_deep));

const fn method(path: &'static str) -> MethodDescriptor {
    MethodDescriptor::new(path, CallKind::Streaming, Idempotency::Unknown)
}

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "t.Nesting",
    methods: &[
        with_detach(method("/t.Nesting/Checked"), Detach { request: CHECKED, response: CHECKED }),
        method("/t.Nesting/Unchecked"),
    ],
};

/// Answers each message by one of the levels that it wants.
struct Nesting;

impl Service for Nesting {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        call.streaming(async |request: Request<Streaming<Node>>| {
            let answers = request.into_inner().map(|message: Result<Node, Status>| {
                message.map(|it| node(usize::try_from(it.wanted).unwrap_or(usize::MAX)))
            });
            Ok(Response::new(answers.boxed()))
        })
    }
}

/// The answers to messages over `grpc://`, up to the first status.
async fn answers(index: usize, messages: Vec<Node>) -> (usize, Option<Status>) {
    let builder = Server::builder().add_service(Nesting);
    let listener = builder.bind("tcp://127.0.0.1:0").await.expect("a port of loopback");
    let address = listener.local_address().to_string().replace("tcp://", "grpc://");
    let serving = tokio::spawn(listener.serve());
    let channel = Channel::connect(address).await.expect("the server is there");
    let answered = async {
        let request = Request::new(stream::iter(messages));
        let called = streaming::<_, Node>(&channel, &SERVICE.methods[index], request).await;
        let mut answers = match called {
            Ok(answers) => answers.into_inner(),
            Err(status) => return (0, Some(status)),
        };
        let mut count = 0;
        loop {
            match answers.message().await {
                Ok(Some(_)) => count += 1,
                Ok(None) => return (count, None),
                Err(status) => return (count, Some(status)),
            }
        }
    };
    let answered = tokio::time::timeout(LIMIT, answered).await.expect("no call hangs");
    serving.abort();
    answered
}

fn wanting(levels: usize) -> Node {
    Node { inner: None, wanted: levels as u64 }
}

#[tokio::test]
async fn messages_of_streams_arrive_up_to_the_limit() {
    for index in [0, 1] {
        let messages = vec![node(LEVELS), wanting(LEVELS), node(LEVELS)];
        assert!(matches!(answers(index, messages).await, (3, None)));
    }
}

#[tokio::test]
async fn deep_messages_of_streams_are_a_short_error() {
    // A sender that does not count the levels could overflow its stack by more.
    for (index, levels) in [(0, 101), (0, 10_000), (1, 101), (1, 1_000)] {
        for (what, message) in [("request", node(levels)), ("response", wanting(levels))] {
            let (_, status) = answers(index, vec![wanting(0), message]).await;
            let status = status.expect("it is refused");
            assert_eq!(status.code(), Code::ResourceExhausted, "{index} {levels} {status}");
            // A receiver finds it while it reads the stream.
            let what = if index == 0 { what } else { "stream" };
            let expected = "message nests deeper than 100 messages, the limit of decoders";
            assert_eq!(status.message(), format!("the {what}'s {expected}"), "{index} {levels}");
        }
    }
}
