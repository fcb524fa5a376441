//! The service of a town, and OpenTelemetry's collector of logs.
#![forbid(unsafe_code)]

#[path = "../../before/src/collector.rs"]
mod collector;
#[path = "../../before/src/town.rs"]
mod town;

use anyhow::{Context as _, Result};
use collector::Collector;
use farcall::{CallKind, Server};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::LogsServiceServer;
use town::Town;
use town::proto::town_rpc::TownService;

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1).context("where to listen is not said")?;
    Server::builder()
        .add_service(TownService::new(Town))
        .add_grpc_methods(LogsServiceServer::new(Collector), [("Export", CallKind::Unary)])
        .serve(address)
        .await?;
    Ok(())
}
