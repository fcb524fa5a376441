//! The service of gRPC's interoperability tests, written once against tonic's trait.
//!
//! What it has to do is said by the comments of its `.proto` and by gRPC's descriptions of the
//! tests. `UnimplementedCall` and what those tests leave out keep their generated defaults.

mod handlers;
mod serve;

pub use serve::interop_servers;

use std::time::Duration;

use bytes::Bytes;
use farcall::metadata::{BinaryMetadataValue, MetadataMap};
use farcall::{Code, Request, Response, Status, Streaming, Trailers, async_trait};
use futures::stream::{self, StreamExt, TryStreamExt};
use futures::{FutureExt, Stream};
use tonic::codegen::BoxStream;

use crate::Probe;
use crate::interop_proto::test_service_server::TestService;
use crate::interop_proto::{
    EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, SimpleResponse,
    StreamingInputCallRequest, StreamingInputCallResponse, StreamingOutputCallRequest,
    StreamingOutputCallResponse,
};
use farcall_probe::watch::Reporter;

/// Metadata under this key comes back before the answer.
pub(crate) const ECHO_INITIAL: &str = "x-grpc-test-echo-initial";

/// Metadata under this key comes back after the answer.
pub(crate) const ECHO_TRAILING: &str = "x-grpc-test-echo-trailing-bin";

/// By which a test knows the handler of `StreamingInputCall`.
pub(crate) const INPUT_TAG: u64 = 1001;

/// By which a test knows the handler of `FullDuplexCall`.
pub(crate) const DUPLEX_TAG: u64 = 1002;

/// The longest payload that a request may ask for; what limits it otherwise is the client's limit.
const PAYLOAD_LEN_MAX: usize = 64 << 20;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct Interop {
    reporter: Reporter,
}

impl Interop {
    /// The service beside the suite's own: their handlers report to the same test.
    pub(crate) fn beside(probe: &Probe) -> Self {
        Self { reporter: probe.reporter().clone() }
    }
}

#[async_trait]
impl TestService for Interop {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let echo = Echo::of(request.metadata());
        let request = request.into_inner();
        refuse(request.response_status)?;
        let payload = Some(zeros(request.response_size)?);
        Ok(echo.onto(Response::new(SimpleResponse { payload, ..Default::default() })))
    }

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<BoxStream<StreamingOutputCallResponse>>, Status> {
        Ok(Response::new(Box::pin(outputs(request.into_inner()))))
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let handler = self.reporter.enter(INPUT_TAG);
        let mut requests = request.into_inner();
        let mut size = 0_usize;
        while let Some(request) = requests.message().await? {
            size += request.payload.unwrap_or_default().body.len();
        }
        handler.answer();
        let aggregated_payload_size = i32::try_from(size)
            .map_err(|_| Status::out_of_range("the sum of the payloads' lengths"))?;
        Ok(Response::new(StreamingInputCallResponse { aggregated_payload_size }))
    }

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<BoxStream<StreamingOutputCallResponse>>, Status> {
        let handler = self.reporter.enter(DUPLEX_TAG);
        let echo = Echo::of(request.metadata());
        let answers = request.into_inner().map_ok(outputs).try_flatten();
        // Reached only when the requests have come to a clean end.
        let end = async move {
            handler.answer();
            stream::empty()
        };
        let answers = answers.chain(end.flatten_stream());
        let answers: BoxStream<StreamingOutputCallResponse> = Box::pin(answers);
        Ok(echo.onto(Response::new(answers)))
    }
}

/// Returns the messages that a request asks for, one after the other.
fn outputs(
    request: StreamingOutputCallRequest,
) -> impl Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send {
    let refused = refuse(request.response_status);
    let answers = stream::iter(request.response_parameters).then(output);
    // The status takes the place of the answers.
    stream::iter(refused.err().map(Err)).chain(answers)
}

async fn output(parameters: ResponseParameters) -> Result<StreamingOutputCallResponse, Status> {
    let interval_us = u64::try_from(parameters.interval_us).unwrap_or_default();
    if interval_us > 0 {
        tokio::time::sleep(Duration::from_micros(interval_us)).await;
    }
    Ok(StreamingOutputCallResponse { payload: Some(zeros(parameters.size)?) })
}

/// A payload of zeros.
fn zeros(len: i32) -> Result<Payload, Status> {
    let len = usize::try_from(len).ok().filter(|&len| len <= PAYLOAD_LEN_MAX);
    let len = len.ok_or_else(|| Status::invalid_argument("no payload has that length"))?;
    Ok(Payload { body: Bytes::from(vec![0; len]), ..Default::default() })
}

/// The status that a request asks for.
fn refuse(status: Option<EchoStatus>) -> Result<(), Status> {
    match status {
        Some(EchoStatus { code, message }) if code != 0 => {
            Err(Status::new(Code::from_i32(code), message))
        }
        _ => Ok(()),
    }
}

/// The metadata that comes back.
struct Echo {
    initial: Option<farcall::metadata::AsciiMetadataValue>,
    trailing: Option<BinaryMetadataValue>,
}

impl Echo {
    fn of(metadata: &MetadataMap) -> Self {
        Self {
            initial: metadata.get(ECHO_INITIAL).cloned(),
            trailing: metadata.get_bin(ECHO_TRAILING).cloned(),
        }
    }

    fn onto<T>(self, mut response: Response<T>) -> Response<T> {
        if let Some(value) = self.initial {
            response.metadata_mut().insert(ECHO_INITIAL, value);
        }
        if let Some(value) = self.trailing {
            let mut trailers = MetadataMap::new();
            trailers.insert_bin(ECHO_TRAILING, value);
            response.extensions_mut().insert(Trailers(trailers));
        }
        response
    }
}
