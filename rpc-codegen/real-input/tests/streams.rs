//! Streams of services whose definitions are published elsewhere: generated handlers and stubs talk
//! to each other, in every kind of call.

mod serving;

use futures::stream::{self, StreamExt, TryStreamExt};
use rpc_codegen_real_input::etcd::etcdserverpb::watch_request::RequestUnion;
use rpc_codegen_real_input::etcd::etcdserverpb::watch_server::Watch;
use rpc_codegen_real_input::etcd::etcdserverpb::{
    WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse, watch_rpc,
};
use rpc_codegen_real_input::health::grpc::health::v1::health_check_response::ServingStatus;
use rpc_codegen_real_input::health::grpc::health::v1::health_server::Health;
use rpc_codegen_real_input::health::grpc::health::v1::{
    HealthCheckRequest, HealthCheckResponse, health_rpc,
};
use rpc_codegen_real_input::interop::grpc::testing::benchmark_service_server::BenchmarkService;
use rpc_codegen_real_input::interop::grpc::testing::{
    Payload, SimpleRequest, SimpleResponse, benchmark_service_rpc,
};
use rpc_core::{Code, Request, Response, Status, Streaming};
use serving::serve;
use tonic::codegen::BoxStream;

fn zeros(len: i32) -> Result<Payload, Status> {
    let len = usize::try_from(len).map_err(|_| Status::invalid_argument("negative"))?;
    Ok(Payload { body: vec![0; len].into(), ..Default::default() })
}

fn answer(request: &SimpleRequest) -> Result<SimpleResponse, Status> {
    Ok(SimpleResponse { payload: Some(zeros(request.response_size)?), ..Default::default() })
}

fn wanted(response_size: i32, payload_len: i32) -> SimpleRequest {
    SimpleRequest { response_size, payload: zeros(payload_len).ok(), ..Default::default() }
}

fn len(response: SimpleResponse) -> usize {
    response.payload.unwrap_or_default().body.len()
}

/// gRPC's benchmark, which has calls of every kind.
struct Benchmark;

#[tonic::async_trait]
impl BenchmarkService for Benchmark {
    type StreamingCallStream = BoxStream<SimpleResponse>;
    type StreamingFromServerStream = BoxStream<SimpleResponse>;
    type StreamingBothWaysStream = BoxStream<SimpleResponse>;

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        answer(request.get_ref()).map(Response::new)
    }

    async fn streaming_call(
        &self,
        request: Request<Streaming<SimpleRequest>>,
    ) -> Result<Response<Self::StreamingCallStream>, Status> {
        let answers = request.into_inner().map(|request| answer(&request?));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn streaming_from_client(
        &self,
        request: Request<Streaming<SimpleRequest>>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let mut requests = request.into_inner();
        let mut sum = 0;
        while let Some(request) = requests.message().await? {
            sum += request.response_size;
        }
        answer(&wanted(sum, 0)).map(Response::new)
    }

    async fn streaming_from_server(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<Self::StreamingFromServerStream>, Status> {
        let request = request.into_inner();
        let answers = (0..3).map(move |_| answer(&request));
        Ok(Response::new(Box::pin(stream::iter(answers))))
    }

    async fn streaming_both_ways(
        &self,
        _: Request<Streaming<SimpleRequest>>,
    ) -> Result<Response<Self::StreamingBothWaysStream>, Status> {
        Err(Status::resource_exhausted("not today"))
    }
}

#[tokio::test]
async fn every_kind_of_call_of_grpcs_benchmark_is_answered() {
    let service = benchmark_service_rpc::BenchmarkServiceService::new(Benchmark);
    let stub = benchmark_service_rpc::BenchmarkServiceStub::new(serve("benchmark", service));
    let reply = stub.unary_call(wanted(5, 3)).await.expect("the call is answered");
    assert_eq!(len(reply.into_inner()), 5);
    let requests = stream::iter([wanted(1, 1), wanted(100_000, 100_000), wanted(0, 0)]);
    let answers = stub.streaming_call(requests).await.expect("the stream begins").into_inner();
    let lens: Vec<usize> = answers.map_ok(len).try_collect().await.expect("it ends well");
    assert_eq!(lens, [1, 100_000, 0]);
    let requests = stream::iter([wanted(30, 7), wanted(12, 0)]);
    let reply = stub.streaming_from_client(requests).await.expect("the call is answered");
    assert_eq!(len(reply.into_inner()), 42);
    let answers = stub.streaming_from_server(wanted(9, 0)).await.expect("the stream begins");
    let lens: Vec<usize> =
        answers.into_inner().map_ok(len).try_collect().await.expect("it ends well");
    assert_eq!(lens, [9, 9, 9]);
    let refused = stub.streaming_both_ways(stream::pending::<SimpleRequest>()).await;
    let status = refused.expect_err("the handler refuses");
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "not today"));
}

/// An etcd that creates every requested watch.
struct Etcd;

#[tonic::async_trait]
impl Watch for Etcd {
    type WatchStream = BoxStream<WatchResponse>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let responses = request.into_inner().map(|request| match request?.request_union {
            Some(RequestUnion::CreateRequest(create)) => {
                Ok(WatchResponse { watch_id: create.watch_id, created: true, ..Default::default() })
            }
            Some(RequestUnion::CancelRequest(cancel)) => Ok(WatchResponse {
                watch_id: cancel.watch_id,
                canceled: true,
                ..Default::default()
            }),
            _ => Err(Status::unimplemented("only create and cancel")),
        });
        Ok(Response::new(Box::pin(responses)))
    }
}

#[tokio::test]
async fn etcds_watch_is_a_conversation() {
    let stub = watch_rpc::WatchStub::new(serve("etcd", watch_rpc::WatchService::new(Etcd)));
    let create = WatchCreateRequest { key: "a".into(), watch_id: 7, ..Default::default() };
    let requests = [
        RequestUnion::CreateRequest(create),
        RequestUnion::CancelRequest(WatchCancelRequest { watch_id: 7 }),
    ];
    let requests = requests.map(|union| WatchRequest { request_union: Some(union) });
    let responses = stub.watch(stream::iter(requests)).await.expect("the stream begins");
    let seen: Vec<_> = responses
        .into_inner()
        .map_ok(|response| (response.watch_id, response.created, response.canceled))
        .try_collect()
        .await
        .expect("it ends well");
    assert_eq!(seen, [(7, true, false), (7, false, true)]);
}

/// A service that becomes healthy and stays so.
struct Healthy;

#[tonic::async_trait]
impl Health for Healthy {
    type WatchStream = BoxStream<HealthCheckResponse>;

    async fn check(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(HealthCheckResponse { status: ServingStatus::Serving.into() }))
    }

    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let statuses = [ServingStatus::NotServing, ServingStatus::Serving];
        let responses = statuses.map(|status| Ok(HealthCheckResponse { status: status.into() }));
        // Stays open until the client stops watching.
        Ok(Response::new(Box::pin(stream::iter(responses).chain(stream::pending()))))
    }
}

#[tokio::test]
async fn a_health_watch_goes_on_until_its_client_stops() {
    let stub =
        health_rpc::HealthStub::new(serve("health", health_rpc::HealthService::new(Healthy)));
    let request = HealthCheckRequest { service: "any".into() };
    let mut statuses = stub.watch(request.clone()).await.expect("the stream begins").into_inner();
    for expected in [ServingStatus::NotServing, ServingStatus::Serving] {
        let response = statuses.message().await.expect("the stream goes on").expect("to here");
        assert_eq!(response.status(), expected);
    }
    drop(statuses);
    let response = stub.check(request).await.expect("the call is answered");
    assert_eq!(response.into_inner().status(), ServingStatus::Serving);
}
