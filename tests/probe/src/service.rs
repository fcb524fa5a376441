//! The service itself: what each of its methods answers.

use farcall::{Deadline, Request, Response, Status, Streaming, Trailers, async_trait};
use futures::StreamExt;
use futures::future::ready;
use futures::stream::once;
use tonic::codegen::BoxStream;

use crate::answers::{failure, produce};
use crate::entries::{entries, metadata};
use crate::proto::probe_server::Probe as ProbeRpc;
use crate::proto::{
    DownloadRequest, EchoReply, EchoRequest, FailRequest, ParkRequest, ProduceRequest,
    ReflectReply, ReflectRequest, RemainingReply, RemainingRequest, UploadReply,
};
use crate::streams::{self, Digest};
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

    /// Returns the side that tells the test of each call.
    pub fn reporter(&self) -> &Reporter {
        &self.reporter
    }
}

#[async_trait]
impl ProbeRpc for Probe {
    type DownloadStream = BoxStream<EchoReply>;
    type ChatStream = BoxStream<EchoReply>;
    type FollowStream = BoxStream<EchoReply>;

    async fn echo(&self, request: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
        let EchoRequest { payload, tail } = request.into_inner();
        Ok(Response::new(EchoReply { payload, tail }))
    }

    async fn digest(&self, request: Request<EchoRequest>) -> Result<Response<UploadReply>, Status> {
        let mut digest = Digest::default();
        digest.add(&request.get_ref().payload);
        Ok(Response::new(digest.into_reply()))
    }

    async fn produce(
        &self,
        request: Request<ProduceRequest>,
    ) -> Result<Response<EchoReply>, Status> {
        produce(request.into_inner()).map(Response::new)
    }

    async fn lend(&self, request: Request<ProduceRequest>) -> Result<Response<EchoReply>, Status> {
        let EchoReply { payload, tail } = produce(request.into_inner())?;
        let mut buffer = farcall::buffer(payload.len()).await;
        buffer.copy_from_slice(&payload);
        Ok(Response::new(EchoReply { payload: buffer.freeze(), tail }))
    }

    async fn park(&self, request: Request<ParkRequest>) -> Result<Response<EchoReply>, Status> {
        let ParkRequest { tag, answer, payload } = request.into_inner();
        // A request of many MiB must not stand in for what the answer holds.
        drop(payload);
        self.reporter.park(tag).await;
        produce(answer.unwrap_or_default()).map(Response::new)
    }

    async fn wait(&self, request: Request<ParkRequest>) -> Result<Response<EchoReply>, Status> {
        self.park(request).await
    }

    async fn block(&self, request: Request<ParkRequest>) -> Result<Response<EchoReply>, Status> {
        let ParkRequest { tag, answer, .. } = request.into_inner();
        self.reporter.block(tag);
        produce(answer.unwrap_or_default()).map(Response::new)
    }

    async fn follow(
        &self,
        request: Request<ParkRequest>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let reply = self.park(request).await?.into_inner();
        Ok(Response::new(Box::pin(once(ready(Ok(reply))))))
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
        Err(failure(request.into_inner())?)
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
        let remaining_us = deadline
            .map(|deadline| u64::try_from(deadline.remaining().as_micros()).unwrap_or(u64::MAX));
        Ok(Response::new(RemainingReply { remaining_us }))
    }

    async fn download(
        &self,
        request: Request<DownloadRequest>,
    ) -> Result<Response<Self::DownloadStream>, Status> {
        let metadata = metadata(&entries(request.metadata())?)?;
        let messages = streams::download(request.into_inner(), self.reporter.clone());
        let mut response: Response<Self::DownloadStream> = Response::new(Box::pin(messages));
        *response.metadata_mut() = metadata;
        Ok(response)
    }

    async fn upload(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<UploadReply>, Status> {
        streams::upload(request.into_inner()).await.map(Response::new)
    }

    async fn chat(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        let replies = request.into_inner().map(|message| {
            message.map(|EchoRequest { payload, tail }| EchoReply { payload, tail })
        });
        Ok(Response::new(Box::pin(replies)))
    }
}
