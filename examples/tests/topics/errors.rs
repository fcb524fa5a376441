//! Statuses with details, as tonic-types makes them: they travel as with gRPC.

use farcall::{Channel, Code, Request, Response, Server, Status};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use farcall_examples::hello::greeter_server::Greeter;
use farcall_examples::hello::{HelloReply, HelloRequest};
use tonic_types::{ErrorDetails, StatusExt};

use super::hello;

/// Greets those who have a name.
struct Strict;

#[farcall::async_trait]
impl Greeter for Strict {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            let mut details = ErrorDetails::new();
            details.add_bad_request_violation("name", "it is empty");
            let text = "the request makes no sense";
            return Err(Status::with_error_details(Code::InvalidArgument, text, details));
        }
        Ok(Response::new(HelloReply { message: name }))
    }
}

#[tokio::test]
async fn a_status_says_which_field_is_wrong() -> anyhow::Result<()> {
    let server = Server::builder().add_service(GreeterService::new(Strict));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    let stub = GreeterStub::new(Channel::connect(&address).await?);
    let status = stub.say_hello(hello("")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let details = status.get_error_details();
    let violations = &details.bad_request().expect("the server sent it").field_violations;
    assert_eq!(violations[0].field, "name");
    Ok(())
}
