//! The service that behaviours call, written against tonic's trait.

use farcall::metadata::{KeyAndValueRef, MetadataKey, MetadataMap, MetadataValue};
use farcall::{Code, Deadline, Request, Response, Status, Streaming, Trailers, async_trait};
use tokio::time::Instant;
use tonic::codegen::BoxStream;

use crate::payload::payload;
use crate::proto::probe_server::Probe as ProbeRpc;
use crate::proto::{
    EchoReply, EchoRequest, FailRequest, MetadataEntry, ParkRequest, ProduceRequest, ReflectReply,
    ReflectRequest, RemainingReply, RemainingRequest,
};
use crate::watch::{self, Reporter, Watch};

/// Metadata under keys that begin so is reflected; the rest belongs to the runtime.
const REFLECTED_PREFIX: &str = "x-";

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

/// The reflected entries of `metadata`, in order.
pub(crate) fn entries(metadata: &MetadataMap) -> Result<Vec<MetadataEntry>, Status> {
    let of_the_test = metadata.iter().filter_map(|entry| match entry {
        KeyAndValueRef::Ascii(key, value) if key.as_str().starts_with(REFLECTED_PREFIX) => {
            Some((key.as_str(), Ok(value.as_bytes().to_vec())))
        }
        KeyAndValueRef::Binary(key, value) if key.as_str().starts_with(REFLECTED_PREFIX) => {
            Some((key.as_str(), value.to_bytes().map(|bytes| bytes.to_vec())))
        }
        _ => None,
    });
    of_the_test
        .map(|(key, value)| {
            let undecodable = |_| Status::invalid_argument(format!("{key} is not base64"));
            let value = value.map_err(undecodable)?.into();
            Ok(MetadataEntry { key: key.to_owned(), value })
        })
        .collect()
}

/// The metadata that `entries` describe.
pub(crate) fn metadata(entries: &[MetadataEntry]) -> Result<MetadataMap, Status> {
    let mut metadata = MetadataMap::new();
    for MetadataEntry { key, value } in entries {
        let unusable = || Status::invalid_argument(format!("{key} is no metadata"));
        if key.ends_with("-bin") {
            let key = MetadataKey::from_bytes(key.as_bytes()).map_err(|_| unusable())?;
            metadata.append_bin(key, MetadataValue::from_bytes(value));
        } else {
            let key = MetadataKey::from_bytes(key.as_bytes()).map_err(|_| unusable())?;
            let value = MetadataValue::try_from(&value[..]).map_err(|_| unusable())?;
            metadata.append(key, value);
        }
    }
    Ok(metadata)
}
