//! tonic's interceptors on both sides: a token that the client adds and the server asks for.

use farcall::layer::InterceptorLayer;
use farcall::metadata::MetadataValue;
use farcall::server::intercepted;
use farcall::{Channel, Code, Request, Server, Status};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use tower::ServiceBuilder;

use super::{MyGreeter, hello};

fn authorize(request: Request<()>) -> Result<Request<()>, Status> {
    match request.metadata().get("authorization") {
        Some(token) if token == "Bearer letmein" => Ok(request),
        _ => Err(Status::unauthenticated("no token, or a wrong one")),
    }
}

#[tokio::test]
async fn calls_need_a_token() -> anyhow::Result<()> {
    let service = intercepted(GreeterService::new(MyGreeter), authorize);
    let listener = Server::builder().add_service(service).bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    let channel = Channel::connect(&address).await?;
    let status = GreeterStub::new(channel.clone()).say_hello(hello("you")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);

    let stub = GreeterStub::new(channel).with_interceptor(|mut request: Request<()>| {
        let token = MetadataValue::from_static("Bearer letmein");
        request.metadata_mut().insert("authorization", token);
        Ok::<_, Status>(request)
    });
    let reply = stub.say_hello(hello("you")).await?;
    assert_eq!(reply.into_inner().message, "Hello, you!");
    Ok(())
}

/// Works like `tonic::service::InterceptorLayer`: around all services of a server, among other
/// layers.
#[tokio::test]
async fn interceptors_are_layers_too() -> anyhow::Result<()> {
    let listener = Server::builder()
        .add_service(GreeterService::new(MyGreeter))
        .layer(InterceptorLayer::new(authorize))
        .bind("tcp://127.0.0.1:0")
        .await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    let channel = Channel::connect(&address).await?;
    let status = GreeterStub::new(channel.clone()).say_hello(hello("you")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);

    let token = InterceptorLayer::new(|mut request: Request<()>| {
        let called = request.extensions().get::<tonic::GrpcMethod<'_>>();
        assert_eq!(called.map(tonic::GrpcMethod::method), Some("SayHello"));
        let token = MetadataValue::from_static("Bearer letmein");
        request.metadata_mut().insert("authorization", token);
        Ok::<_, Status>(request)
    });
    let channel = channel.layer(ServiceBuilder::new().concurrency_limit(8).layer(token));
    let reply = GreeterStub::new(channel).say_hello(hello("you")).await?;
    assert_eq!(reply.into_inner().message, "Hello, you!");
    Ok(())
}
