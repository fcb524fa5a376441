//! The service of a town, and OpenTelemetry's collector of logs.
#![forbid(unsafe_code)]

mod collector;
mod town;

use anyhow::{Context as _, Result};
use collector::Collector;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::LogsServiceServer;
use tonic::transport::Server;
use town::Town;
use town::proto::town_server::TownServer;

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1).context("where to listen is not said")?;
    Server::builder()
        .add_service(TownServer::new(Town))
        .add_service(LogsServiceServer::new(Collector))
        .serve(address.parse()?)
        .await?;
    Ok(())
}
