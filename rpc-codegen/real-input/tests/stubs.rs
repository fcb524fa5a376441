//! Every stub method calls its own method with its own kind of call.

use std::future::Future;

use futures::executor::block_on;
use futures::{Stream, stream};
use prost::Message;
use rpc_codegen_real_input::plain::sample::v1::greeter_rpc::GreeterStub;
use rpc_codegen_real_input::plain::sample::v1::{HelloRequest, hello_reply};
use rpc_core::codegen::{Caller, MethodDescriptor, Request, Response, Status, Streaming};

/// Answers every call with a status that says what was called and how.
#[derive(Debug, Clone)]
struct Echo;

async fn echo<T>(how: &str, method: &MethodDescriptor) -> Result<Response<T>, Status> {
    Err(Status::aborted(format!("{how} {}", method.path)))
}

impl Caller for Echo {
    fn unary<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        _: Request<Req>,
    ) -> impl Future<Output = Result<Response<Resp>, Status>> + Send
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        echo("unary", method)
    }

    fn server_streaming<Req, Resp>(
        &self,
        method: &'static MethodDescriptor,
        _: Request<Req>,
    ) -> impl Future<Output = Result<Response<Streaming<Resp>>, Status>> + Send
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        echo("server_streaming", method)
    }

    fn client_streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        _: Request<S>,
    ) -> impl Future<Output = Result<Response<Resp>, Status>> + Send
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        echo("client_streaming", method)
    }

    fn streaming<S, Resp>(
        &self,
        method: &'static MethodDescriptor,
        _: Request<S>,
    ) -> impl Future<Output = Result<Response<Streaming<Resp>>, Status>> + Send
    where
        S: Stream<Item: Message> + Send + 'static,
        Resp: Message + Default + 'static,
    {
        echo("streaming", method)
    }
}

fn said<T>(result: Result<Response<T>, Status>) -> String {
    result.err().map(|status| status.message().to_owned()).unwrap_or_default()
}

#[test]
fn every_method_calls_itself() {
    let stub = GreeterStub::new(Echo);
    let request = HelloRequest::default;
    let called = said(block_on(stub.say_hello(request())));
    assert_eq!(called, "unary /sample.v1.Greeter/SayHello");
    let called = said(block_on(stub.list_parts(Request::new(request()))));
    assert_eq!(called, "server_streaming /sample.v1.Greeter/ListParts");
    let parts = stream::iter([hello_reply::Part::default()]);
    let called = said(block_on(stub.upload(parts)));
    assert_eq!(called, "client_streaming /sample.v1.Greeter/Upload");
    let called = said(block_on(stub.chat(stream::iter([request()]))));
    assert_eq!(called, "streaming /sample.v1.Greeter/Chat");
    let called = said(block_on(stub.nickname("you".to_owned())));
    assert_eq!(called, "unary /sample.v1.Greeter/Nickname");
}

#[test]
fn calls_can_be_spawned() {
    fn is_send(_: impl Send) {}
    let stub = GreeterStub::new(Echo);
    is_send(stub.say_hello(HelloRequest::default()));
    is_send(stub.chat(stream::iter([HelloRequest::default()])));
}
