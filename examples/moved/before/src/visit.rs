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

use super::route_guide::proto::route_guide_client::RouteGuideClient;
use super::route_guide::proto::{Feature, Point, Rectangle, RouteNote};

/// A carrier of a generated client's calls: a channel of tonic's, or `farcall::grpc::GrpcOver`.
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
/// Returns an error if a call fails that should not, or gives something else than it should.
pub(crate) async fn visit(carrier: impl Carrier) -> Result<()> {
    travel(RouteGuideClient::new(carrier.clone())).await?;
    export_logs(LogsServiceClient::new(carrier)).await
}

const GATE: Point = Point { latitude: 525_162_800, longitude: 133_777_000 };
const TOWER: Point = Point { latitude: 525_208_000, longitude: 134_094_000 };
const NOWHERE: Point = Point { latitude: 525_000_000, longitude: 133_000_000 };

async fn travel(mut guide: RouteGuideClient<impl Carrier>) -> Result<()> {
    let found = guide.get_feature(TOWER).await?.into_inner();
    ensure!(found == Feature { name: "Television Tower".to_owned(), location: Some(TOWER) });
    let found = guide.get_feature(NOWHERE).await?.into_inner();
    ensure!(found == Feature { name: String::new(), location: Some(NOWHERE) });

    let around = Rectangle { lo: Some(GATE), hi: Some(TOWER) };
    let listed = collect(guide.list_features(around).await?.into_inner()).await?;
    let names: Vec<&str> = listed.iter().map(|feature| feature.name.as_str()).collect();
    ensure!(names == ["Brandenburg Gate", "Television Tower"], "{names:?}");
    let refused = guide.list_features(Rectangle { lo: Some(GATE), hi: None }).await.err();
    let refused = refused.context("a rectangle has one corner")?;
    ensure!(refused.code() == Code::InvalidArgument, "{refused}");
    ensure!(refused.message() == "a rectangle has two corners", "{refused}");

    let route = tokio_stream::iter([GATE, NOWHERE, TOWER]);
    let summary = guide.record_route(route).await?.into_inner();
    ensure!((summary.point_count, summary.feature_count) == (3, 2), "{summary:?}");
    let straight = guide.record_route(tokio_stream::iter([GATE, TOWER])).await?.into_inner();
    // 2.2 km from the gate to the tower.
    ensure!((2_190..2_220).contains(&straight.distance), "{straight:?}");
    ensure!(summary.distance > straight.distance, "{summary:?}");

    let note =
        |location, text: &str| RouteNote { location: Some(location), message: text.to_owned() };
    let notes = [note(GATE, "pigeons"), note(TOWER, "fog"), note(GATE, "rain"), note(GATE, "sun")];
    let answers = collect(guide.route_chat(tokio_stream::iter(notes)).await?.into_inner()).await?;
    let read: Vec<&str> = answers.iter().map(|note| note.message.as_str()).collect();
    ensure!(read == ["pigeons", "pigeons", "rain"], "{read:?}");
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
