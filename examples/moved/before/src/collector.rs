//! OpenTelemetry's collector of logs: it counts what it refuses.

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::LogsService;
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use tonic::{Request, Response, Status};

/// Takes records that have a body.
#[derive(Debug)]
pub(crate) struct Collector;

#[tonic::async_trait]
impl LogsService for Collector {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let resources = request.into_inner().resource_logs.into_iter();
        let records =
            resources.flat_map(|resource| resource.scope_logs).flat_map(|scope| scope.log_records);
        let empty = records.filter(|record| record.body.is_none()).count();
        let partial_success = (empty > 0).then(|| ExportLogsPartialSuccess {
            rejected_log_records: empty.try_into().unwrap_or(i64::MAX),
            error_message: "a record has no body".to_owned(),
        });
        Ok(Response::new(ExportLogsServiceResponse { partial_success }))
    }
}
