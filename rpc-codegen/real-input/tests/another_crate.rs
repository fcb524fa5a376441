//! A published crate's implementation of a service is served as it is, and called with its
//! messages.

mod serving;

use rpc_codegen_real_input::tonics_health::grpc::health::v1::health_rpc;
use rpc_core::Code;
use serving::serve;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::server::{HealthReporter, HealthService};

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into() }
}

#[tokio::test]
async fn tonics_health_service_answers_over_farcall() {
    let reporter = HealthReporter::new();
    reporter.set_service_status("store", ServingStatus::NotServing).await;
    let health = HealthService::from_health_reporter(reporter.clone());
    let channel = serve("tonics-health", health_rpc::HealthService::new(health));
    let stub = health_rpc::HealthStub::new(channel);

    let reply = stub.check(about("store")).await.expect("it is known").into_inner();
    assert_eq!(reply.status(), ServingStatus::NotServing.into());
    let error = stub.check(about("nothing")).await.expect_err("it is not known");
    assert_eq!(error.code(), Code::NotFound);

    let mut statuses = stub.watch(about("store")).await.expect("it is known").into_inner();
    let first = statuses.message().await.expect("a status").expect("a first");
    assert_eq!(first.status(), ServingStatus::NotServing.into());
    reporter.set_service_status("store", ServingStatus::Serving).await;
    let second = statuses.message().await.expect("a status").expect("a second");
    assert_eq!(second.status(), ServingStatus::Serving.into());
}
