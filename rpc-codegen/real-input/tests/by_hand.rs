//! A service without a `.proto` file is served and called.

mod serving;

use rpc_codegen_real_input::by_hand::by_hand_rpc::{ByHandService, ByHandStub};
use rpc_codegen_real_input::by_hand::by_hand_server::ByHand;
use rpc_codegen_real_input::plain::sample::v1::{HelloReply, HelloRequest};
use rpc_core::{Request, Response, Status};
use serving::serve;

struct Greeter;

#[tonic::async_trait]
impl ByHand for Greeter {
    async fn greet(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let message = format!("Hello, {}!", request.into_inner().name);
        Ok(Response::new(HelloReply { message, ..Default::default() }))
    }
}

#[tokio::test]
async fn it_answers_over_farcall() {
    let stub = ByHandStub::new(serve("by-hand", ByHandService::new(Greeter)));
    let request = HelloRequest { name: "you".into(), ..Default::default() };
    let reply = stub.greet(request).await.expect("an answer").into_inner();
    assert_eq!(reply.message, "Hello, you!");
}
