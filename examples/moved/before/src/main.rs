//! gRPC's route guide, and OpenTelemetry's collector of logs.
#![forbid(unsafe_code)]

mod collector;
mod route_guide;

use anyhow::{Context as _, Result};
use collector::Collector;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::LogsServiceServer;
use route_guide::Guide;
use route_guide::proto::route_guide_server::RouteGuideServer;
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1).context("where to listen is not said")?;
    Server::builder()
        .add_service(RouteGuideServer::new(Guide))
        .add_service(LogsServiceServer::new(Collector))
        .serve(address.parse()?)
        .await?;
    Ok(())
}
