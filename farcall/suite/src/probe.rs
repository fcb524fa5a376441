//! The service that behaviours call, written against tonic's trait.

use farcall::{Code, Deadline, Request, Response, Status, Streaming, Trailers, async_trait};
use tokio::time::Instant;
use tonic::codegen::BoxStream;

use crate::entries::{entries, metadata};
use crate::payload::payload;
use crate::proto::probe_server::Probe as ProbeRpc;
use crate::proto::{
    EchoReply, EchoRequest, FailRequest, ParkRequest, ProduceRequest, ReflectReply, ReflectRequest,
    RemainingReply, RemainingRequest,
};
use crate::watch::{self, Reporter, Watch};

/// The service.
#[derive(Debug, Clone)]
pub struct Probe {
    reporter: Reporter,
}

impl Probe {
    /// The service, and what a test learns from it.
    #[must_use]
    pub fn new() -> (Self, Watch) {
        let (reporter, watch) = watch::pair();
        (Self { reporter }, watch)
    }
}

#[async_trait]
impl ProbeRpc for Probe {
    type DownloadStream = BoxStream<EchoReply>;
    type ChatStream = BoxStream<EchoReply>;

    async fn echo(&self, request: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
        let EchoRequest { payload, tail } = request.into_inner();
        Ok(Response::new(EchoReply { payload, tail }))
    }

    async fn produce(
        &self,
        request: Request<ProduceRequest>,
    ) -> Result<Response<EchoReply>, Status> {
        produce(request.into_inner()).map(Response::new)
    }

    async fn park(&self, request: Request<ParkRequest>) -> Result<Response<EchoReply>, Status> {
        let ParkRequest { tag, answer, payload } = request.into_inner();
        // A request of many MiB must not stand in for what the answer holds.
        drop(payload);
        self.reporter.park(tag).await;
        produce(answer.unwrap_or_default()).map(Response::new)
    }

    async fn reflect(
        &self,
        request: Request<ReflectRequest>,
    ) -> Result<Response<ReflectReply>, Status> {
        let entries = entries(request.metadata())?;
        let metadata = metadata(&entries)?;
        let mut response = Response::new(ReflectReply { entries });
        if request.get_ref().as_trailers {
            response.extensions_mut().insert(Trailers(metadata));
        } else {
            *response.metadata_mut() = metadata;
        }
        Ok(response)
    }

    async fn fail(&self, request: Request<FailRequest>) -> Result<Response<EchoReply>, Status> {
        let FailRequest { code, message, details, metadata: entries } = request.into_inner();
        let metadata = metadata(&entries)?;
        Err(Status::with_details_and_metadata(Code::from_i32(code), message, details, metadata))
    }

    async fn panic(&self, _: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
        // As `panic!`, without a backtrace among the output of the tests.
        std::panic::resume_unwind(Box::new("this handler panics, as it was asked to"));
    }

    async fn remaining(
        &self,
        request: Request<RemainingRequest>,
    ) -> Result<Response<RemainingReply>, Status> {
        let deadline = request.extensions().get::<Deadline>();
        let remaining_us = deadline.map(|deadline| deadline.to_wire(Instant::now()));
        Ok(Response::new(RemainingReply { remaining_us }))
    }

    async fn download(
        &self,
        _: Request<ProduceRequest>,
    ) -> Result<Response<Self::DownloadStream>, Status> {
        Err(Status::internal("Download was called"))
    }

    async fn upload(
        &self,
        _: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<EchoReply>, Status> {
        Err(Status::internal("Upload was called"))
    }

    async fn chat(
        &self,
        _: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        Err(Status::internal("Chat was called"))
    }
}

fn produce(request: ProduceRequest) -> Result<EchoReply, Status> {
    let ProduceRequest { seed, len } = request;
    let len = usize::try_from(len).map_err(|_| Status::out_of_range("no memory is that large"))?;
    Ok(EchoReply { payload: payload(seed, len), tail: bytes::Bytes::new() })
}
