//! Every stub method calls its own method, with its own kind of call.

use futures::executor::block_on;
use futures::stream;
use rpc_codegen_real_input::plain::sample::v1::greeter_rpc::GreeterStub;
use rpc_codegen_real_input::plain::sample::v1::{HelloRequest, hello_reply};
use rpc_core::client::{Call, Caller, ClientReply};
use rpc_core::{Request, Response, Status};

/// Answers every call with a status that names its method and kind.
#[derive(Debug, Clone)]
struct Echo;

impl Caller for Echo {
    async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
        let method = call.method();
        Err(Status::aborted(format!("{:?} {}", method.kind(), method.path())))
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
    assert_eq!(called, "Unary /sample.v1.Greeter/SayHello");
    let called = said(block_on(stub.list_parts(Request::new(request()))));
    assert_eq!(called, "ServerStreaming /sample.v1.Greeter/ListParts");
    let parts = stream::iter([hello_reply::Part::default()]);
    let called = said(block_on(stub.upload(parts)));
    assert_eq!(called, "ClientStreaming /sample.v1.Greeter/Upload");
    let called = said(block_on(stub.chat(stream::iter([request()]))));
    assert_eq!(called, "Streaming /sample.v1.Greeter/Chat");
    let called = said(block_on(stub.nickname("you".to_owned())));
    assert_eq!(called, "Unary /sample.v1.Greeter/Nickname");
}

#[test]
fn calls_can_be_spawned() {
    fn is_send(_: impl Send) {}
    let stub = GreeterStub::new(Echo);
    is_send(stub.say_hello(HelloRequest::default()));
    is_send(stub.chat(stream::iter([HelloRequest::default()])));
}
