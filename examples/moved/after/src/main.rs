//! gRPC's route guide, and OpenTelemetry's collector of logs.
#![forbid(unsafe_code)]

#[path = "../../before/src/collector.rs"]
mod collector;
#[path = "../../before/src/route_guide.rs"]
mod route_guide;

use anyhow::{Context as _, Result};
use collector::Collector;
use farcall::{CallKind, Server};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::LogsServiceServer;
use route_guide::Guide;
use route_guide::proto::route_guide_rpc::RouteGuideService;

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1).context("where to listen is not said")?;
    Server::builder()
        .add_service(RouteGuideService::new(Guide))
        .add_grpc_methods(LogsServiceServer::new(Collector), [("Export", CallKind::Unary)])
        .serve(address)
        .await?;
    Ok(())
}
