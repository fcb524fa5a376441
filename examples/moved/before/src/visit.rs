//! A client of both services: what tonic has generated, over whatever carries it.

use anyhow::{Context as _, Result, ensure};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use tokio_stream::StreamExt as _;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, Bytes, StdError};
use tonic::{Code, Streaming};

use super::town::proto::town_client::TownClient;
use super::town::proto::{District, Note, Place, Sight};

/// What a generated client calls over: a channel of tonic's, or `farcall::grpc::GrpcOver`.
pub(crate) trait Carrier:
    GrpcService<
        Body,
        Error: Into<StdError>,
        ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
    > + Clone
{
}

impl<T> Carrier for T where
    T: GrpcService<
            Body,
            Error: Into<StdError>,
            ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
        > + Clone
{
}

/// Calls every method, and looks at what comes back.
///
/// # Errors
///
/// When a call fails that should not, or gives something else than it should.
pub(crate) async fn visit(carrier: impl Carrier) -> Result<()> {
    see_the_town(TownClient::new(carrier.clone())).await?;
    export_logs(LogsServiceClient::new(carrier)).await
}

fn place(east: i32, north: i32) -> Place {
    Place { east, north }
}

async fn see_the_town(mut town: TownClient<impl Carrier>) -> Result<()> {
    let seen = town.look(place(2, 5)).await?.into_inner();
    ensure!(seen.name == "tower", "{seen:?} at 2, 5");
    let refused = town.look(place(9, 9)).await.err().context("there is a sight at 9, 9")?;
    ensure!(refused.code() == Code::NotFound, "{refused}");
    ensure!(refused.message() == "nothing at 9, 9", "{refused}");

    let walked = town.walk(District { from_east: 0, to_east: 7 }).await?.into_inner();
    let names: Vec<String> =
        collect(walked).await?.into_iter().map(|Sight { name, .. }| name).collect();
    ensure!(names == ["fountain", "tower", "harbour"], "{names:?} from 0 to 7");

    let way = tokio_stream::iter([place(0, 0), place(2, 5), place(7, 2)]);
    let distance = town.record(way).await?.into_inner();
    ensure!((distance.places, distance.blocks) == (3, 15), "{distance:?}");

    let note = |text: &str| Note { place: Some(place(0, 0)), text: text.to_owned() };
    let notes = tokio_stream::iter([note("cold water"), note("pigeons"), note("sold out")]);
    let answers = collect(town.chat(notes).await?.into_inner()).await?;
    let read: Vec<&str> = answers.iter().map(|note| note.text.as_str()).collect();
    ensure!(read == ["", "cold water", "cold water; pigeons"], "{read:?}");
    Ok(())
}

async fn collect<M>(mut messages: Streaming<M>) -> Result<Vec<M>> {
    let mut all = Vec::new();
    while let Some(message) = messages.next().await {
        all.push(message?);
    }
    Ok(all)
}

async fn export_logs(mut logs: LogsServiceClient<impl Carrier>) -> Result<()> {
    let scope = ScopeLogs { log_records: vec![LogRecord::default(); 3], ..ScopeLogs::default() };
    let resource = ResourceLogs { scope_logs: vec![scope], ..ResourceLogs::default() };
    let request = ExportLogsServiceRequest { resource_logs: vec![resource] };
    let answer = logs.export(request).await?.into_inner();
    let refused = answer.partial_success.context("records without a body were taken")?;
    ensure!(refused.rejected_log_records == 3, "{refused:?}");
    Ok(())
}
