//! A generated service answers its own stub, with every shape of tonic's trait.

mod serving;

use std::sync::Arc;

use rpc_codegen_real_input::{arc_self, default_stubs, plain};
use rpc_core::{Code, Request, Response, Status, Streaming};
use serving::serve;
use tonic::codegen::BoxStream;

/// Implements one variant of the sample's trait. The streams are not called here.
macro_rules! impl_greeter {
    ($samples:ident, $this:ident: $receiver:ty) => {
        #[tonic::async_trait]
        impl $samples::sample::v1::greeter_server::Greeter for Polite {
            type ListPartsStream = BoxStream<$samples::sample::v1::hello_reply::Part>;
            type ChatStream = BoxStream<$samples::sample::v1::HelloReply>;

            async fn say_hello(
                $this: $receiver,
                request: Request<$samples::sample::v1::HelloRequest>,
            ) -> Result<Response<$samples::sample::v1::HelloReply>, Status> {
                let message = format!("{} {}", $this.greeting, request.into_inner().name);
                let labels = Default::default();
                Ok(Response::new($samples::sample::v1::HelloReply { message, labels }))
            }

            async fn list_parts(
                $this: $receiver,
                _: Request<$samples::sample::v1::HelloRequest>,
            ) -> Result<Response<Self::ListPartsStream>, Status> {
                Err(Status::aborted("list_parts"))
            }

            async fn upload(
                $this: $receiver,
                _: Request<Streaming<$samples::sample::v1::hello_reply::Part>>,
            ) -> Result<Response<$samples::sample::v1::HelloReply>, Status> {
                Err(Status::aborted("upload"))
            }

            async fn chat(
                $this: $receiver,
                _: Request<Streaming<$samples::sample::v1::HelloRequest>>,
            ) -> Result<Response<Self::ChatStream>, Status> {
                Err(Status::aborted("chat"))
            }

            async fn wave(
                $this: $receiver,
                _: Request<()>,
            ) -> Result<Response<prost_types::Timestamp>, Status> {
                Ok(Response::new(prost_types::Timestamp { seconds: 7, nanos: 0 }))
            }

            async fn nickname(
                $this: $receiver,
                request: Request<String>,
            ) -> Result<Response<String>, Status> {
                Ok(Response::new(request.into_inner().to_lowercase()))
            }
        }
    };
}

#[derive(Debug)]
struct Polite {
    greeting: &'static str,
}

impl_greeter!(plain, self: &Self);
impl_greeter!(arc_self, self: Arc<Self>);

/// Implements no method, which only `generate_default_stubs` allows.
#[derive(Debug)]
struct Silent;

impl default_stubs::sample::v1::greeter_server::Greeter for Silent {}

#[tokio::test]
async fn each_method_is_answered_by_its_own_handler() {
    use plain::sample::v1::{HelloRequest, greeter_rpc};
    let service = greeter_rpc::GreeterService::new(Polite { greeting: "hello" });
    let stub = greeter_rpc::GreeterStub::new(serve("plain", service.clone()));
    let request = HelloRequest { name: "you".to_owned(), ..Default::default() };
    let reply = stub.say_hello(request).await.expect("say_hello answers").into_inner();
    assert_eq!(reply.message, "hello you");
    #[allow(deprecated, reason = "that it still works is the point")]
    let reply = stub.wave(()).await.expect("wave answers").into_inner();
    assert_eq!(reply.seconds, 7);
    let reply = stub.nickname("YOU".to_owned()).await.expect("nickname answers");
    assert_eq!(reply.into_inner(), "you");
    assert_eq!(format!("{service:?}"), "GreeterService { .. }");
}

#[tokio::test]
async fn a_shared_implementation_gets_its_arc() {
    use arc_self::sample::v1::{HelloRequest, greeter_rpc};
    let service = greeter_rpc::GreeterService::from_arc(Arc::new(Polite { greeting: "hi" }));
    let stub = greeter_rpc::GreeterStub::new(serve("arc_self", service));
    let request = HelloRequest { name: "you".to_owned(), ..Default::default() };
    let reply = stub.say_hello(request).await.expect("say_hello answers").into_inner();
    assert_eq!(reply.message, "hi you");
}

#[tokio::test]
async fn a_method_left_to_its_default_is_unimplemented() {
    use default_stubs::sample::v1::{HelloRequest, greeter_rpc};
    let service = greeter_rpc::GreeterService::new(Silent);
    let stub = greeter_rpc::GreeterStub::new(serve("default_stubs", service));
    let status = stub.say_hello(HelloRequest::default()).await.expect_err("nothing answers");
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, "Not yet implemented"));
}
