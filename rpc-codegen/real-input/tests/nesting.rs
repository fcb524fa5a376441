//! Messages nest up to the limit. Deeper ones are a short error at their sender, and at a receiver
//! if the sender lets them pass.

mod serving;

use futures::stream::{self, StreamExt};
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use rpc_codegen_real_input::nest::nest::old::holder::Part;
use rpc_codegen_real_input::nest::nest::old::{Holder, Link};
use rpc_codegen_real_input::nest::nest::types::expr::KindOneOf;
use rpc_codegen_real_input::nest::nest::types::outer::Inner;
use rpc_codegen_real_input::nest::nest::types::{Expr, Named, Node, Outer, Pair, Tree};
use rpc_codegen_real_input::nest::nest::v1::nest_server::Nest;
use rpc_codegen_real_input::nest::nest::v1::{Query, nest_rpc};
use rpc_core::client::unary;
use rpc_core::codegen::{Detach, with_detach};
use rpc_core::{Code, MethodDescriptor, Request, Response, Status, Streaming};
use serving::serve;
use tonic::codegen::BoxStream;

/// Number of levels that a message may have below it.
const LEVELS: usize = 100;

/// Deep enough to overflow the stack of a recursive sender.
const VERY_DEEP: usize = 10_000;

/// Echoes requests. Answers a request with data with a very deep message.
struct Echo;

fn answer(query: Query) -> Query {
    if query.data.is_empty() { query } else { node(VERY_DEEP) }
}

#[tonic::async_trait]
impl Nest for Echo {
    type DownloadStream = BoxStream<Query>;

    async fn echo(&self, request: Request<Query>) -> Result<Response<Query>, Status> {
        Ok(Response::new(answer(request.into_inner())))
    }

    async fn upload(&self, request: Request<Streaming<Query>>) -> Result<Response<Query>, Status> {
        let mut queries = request.into_inner();
        let mut last = Query::default();
        while let Some(query) = queries.message().await? {
            last = query;
        }
        Ok(Response::new(last))
    }

    async fn download(
        &self,
        request: Request<Query>,
    ) -> Result<Response<BoxStream<Query>>, Status> {
        let messages = [Query::default(), answer(request.into_inner())];
        Ok(Response::new(stream::iter(messages).map(Ok).boxed()))
    }

    async fn value(&self, request: Request<Value>) -> Result<Response<Value>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

fn service() -> nest_rpc::NestService<Echo> {
    nest_rpc::NestService::new(Echo)
}

/// Builds a chain of `levels` messages, from the innermost to the outermost.
fn chain<M: Default>(levels: usize, around: impl Fn(M) -> M) -> Option<M> {
    Some((1..levels).fold(M::default(), |inner, _| around(inner)))
}

fn node(levels: usize) -> Query {
    let around = |next: Node| Node { next: Some(Box::new(next)), ..Node::default() };
    Query { node: chain(levels, around), ..Query::default() }
}

fn tree(levels: usize) -> Query {
    // The deep one is the last of several.
    let around = |child: Tree| Tree { children: vec![Tree::default(), Tree::default(), child] };
    Query { tree: chain(levels, around), ..Query::default() }
}

/// Two levels per message: a map entry is one of them.
fn named(levels: usize) -> Query {
    let around = |inner: Named| Named { inner: [(String::new(), inner)].into() };
    Query { named: chain(levels.div_ceil(2), around), ..Query::default() }
}

fn expr(levels: usize) -> Query {
    let around = |inner: Expr| Expr { kind: Some(KindOneOf::Not(Box::new(inner))) };
    Query { expr: chain(levels, around), ..Query::default() }
}

/// Two levels per message.
fn pairs(levels: usize) -> Query {
    let around = |inner: Expr| {
        let pair = Pair { left: None, self_: Some(Box::new(inner)) };
        Expr { kind: Some(KindOneOf::And(Box::new(pair))) }
    };
    Query { expr: chain(levels.div_ceil(2), around), ..Query::default() }
}

/// Two levels per message.
fn outer(levels: usize) -> Query {
    let around =
        |inner: Outer| Outer { inner: Some(Box::new(Inner { outer: Some(Box::new(inner)) })) };
    Query { outer: chain(levels.div_ceil(2), around), ..Query::default() }
}

/// Two levels per message.
fn link(levels: usize) -> Query {
    let around =
        |inner: Link| Link { holder: Some(Box::new(Holder { link: Box::new(inner), part: None })) };
    Query { link: chain(levels.div_ceil(2), around), ..Query::default() }
}

/// Three levels per message, including the group.
fn part(levels: usize) -> Query {
    let around = |inner: Link| {
        let part = Some(Box::new(Part { link: Some(inner) }));
        Link { holder: Some(Box::new(Holder { link: Box::default(), part })) }
    };
    Query { link: chain(levels.div_ceil(3), around), ..Query::default() }
}

fn list(inner: Value) -> Value {
    Value { kind: Some(Kind::ListValue(ListValue { values: vec![inner] })) }
}

/// One level for the `Struct`, one for the entry, and two for each list.
fn fields(levels: usize) -> Query {
    let value = chain((levels - 1).div_ceil(2), list).unwrap_or_default();
    let fields = Some(Struct { fields: [("key".to_owned(), value)].into() });
    Query { fields, ..Query::default() }
}

type MakeQuery = fn(usize) -> Query;

const SHAPES: [(&str, MakeQuery); 9] = [
    ("node", node),
    ("tree", tree),
    ("named", named),
    ("expr", expr),
    ("pairs", pairs),
    ("outer", outer),
    ("link", link),
    ("part", part),
    ("fields", fields),
];

fn check(result: Result<Response<Query>, Status>, what: &str) {
    let status = result.expect_err("it is refused");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let expected = "message nests deeper than 100 messages, the limit of decoders";
    assert_eq!(status.message(), format!("the {what}'s {expected}"));
}

#[tokio::test]
async fn messages_arrive_up_to_the_limit() {
    let stub = nest_rpc::NestStub::new(serve("nesting_limit", service()));
    for (name, make) in SHAPES {
        // The last message of a chain may end a level or two before the limit.
        let sent = make(LEVELS - 2);
        let received = stub.echo(sent.clone()).await.unwrap_or_else(|it| panic!("{name}: {it}"));
        assert_eq!(received.into_inner(), sent, "{name}");
        check(stub.echo(make(LEVELS + 3)).await, "request");
    }
    let received = stub.echo(node(LEVELS)).await.unwrap();
    assert_eq!(received.into_inner(), node(LEVELS));
    check(stub.echo(node(LEVELS + 1)).await, "request");
}

#[tokio::test]
async fn requests_of_any_depth_are_a_short_error() {
    let stub = nest_rpc::NestStub::new(serve("nesting_requests", service()));
    for (_, make) in SHAPES {
        check(stub.echo(make(VERY_DEEP)).await, "request");
        let queries = [Query::default(), make(VERY_DEEP)];
        check(stub.upload(stream::iter(queries)).await, "request");
    }
    let value = chain(VERY_DEEP, list).unwrap();
    let status = stub.value(value).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
}

#[tokio::test]
async fn responses_of_any_depth_are_a_short_error() {
    let stub = nest_rpc::NestStub::new(serve("nesting_responses", service()));
    let deep = Query { data: vec![1], ..Query::default() };
    check(stub.echo(deep.clone()).await, "response");
    let mut messages = stub.download(deep).await.unwrap().into_inner();
    assert_eq!(messages.message().await.unwrap(), Some(Query::default()));
    let status = messages.message().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
}

/// The sender does not know the fields of its messages.
#[tokio::test]
async fn deep_messages_that_arrive_are_a_short_error() {
    static ECHO: MethodDescriptor =
        with_detach(nest_rpc::SERVICE.methods[0], Detach { request: None, response: None });
    let channel = serve("nesting_receiver", service());
    for levels in [LEVELS + 1, 1_000] {
        let result = unary::<Query, Query>(&channel, &ECHO, Request::new(node(levels))).await;
        check(result, "request");
    }
}
