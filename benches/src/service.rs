//! The service that benchmarks call. It does nothing that costs anything.

use bytes::Bytes;
use farcall::{Request, Response, Status, async_trait};
use futures::stream;
use tonic::codegen::BoxStream;

use crate::proto::bench_server::Bench;
use crate::proto::{Done, Payload, Wanted};
use crate::vectors;

/// The longest download.
const DOWNLOAD_LEN_MAX: usize = 64 << 20;

/// An implementation that keeps its longest answer ready.
#[derive(Debug)]
pub struct Service {
    ready: Bytes,
    lends: bool,
}

impl Default for Service {
    fn default() -> Self {
        Self { ready: vec![7; DOWNLOAD_LEN_MAX].into(), lends: false }
    }
}

impl Service {
    /// A service that takes its downloads from memory which farcall lends, where `lends` is true;
    /// else from its own.
    #[must_use]
    pub fn with_lent_memory(self, lends: bool) -> Self {
        Self { lends, ..self }
    }

    /// The answer to a download.
    ///
    /// # Errors
    ///
    /// Returns an error if more is wanted than there is.
    pub fn payload(&self, wanted: &Wanted) -> Result<Payload, Status> {
        let len = usize::try_from(wanted.len).unwrap_or(usize::MAX);
        if len > self.ready.len() {
            return Err(Status::invalid_argument(format!("at most {DOWNLOAD_LEN_MAX} bytes")));
        }
        Ok(Payload { data: self.ready.slice(..len) })
    }
}

#[async_trait]
impl Bench for Service {
    type FeedStream = BoxStream<Payload>;

    async fn echo(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn upload(&self, _: Request<Payload>) -> Result<Response<Done>, Status> {
        Ok(Response::new(Done {}))
    }

    async fn download(&self, request: Request<Wanted>) -> Result<Response<Payload>, Status> {
        let payload = self.payload(&request.into_inner())?;
        if !self.lends {
            return Ok(Response::new(payload));
        }
        let data = farcall::buffer(payload.data.len()).await.freeze();
        Ok(Response::new(Payload { data }))
    }

    async fn feed(&self, request: Request<Wanted>) -> Result<Response<Self::FeedStream>, Status> {
        let payload = self.payload(&request.into_inner())?;
        Ok(Response::new(Box::pin(stream::repeat_with(move || Ok(payload.clone())))))
    }
}

/// The same for clients that upload vectors.
#[async_trait]
impl vectors::bench_server::Bench for Service {
    type FeedStream = BoxStream<vectors::Payload>;

    async fn echo(
        &self,
        request: Request<vectors::Payload>,
    ) -> Result<Response<vectors::Payload>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn upload(
        &self,
        _: Request<vectors::Payload>,
    ) -> Result<Response<vectors::Done>, Status> {
        Ok(Response::new(vectors::Done {}))
    }

    async fn download(
        &self,
        request: Request<vectors::Wanted>,
    ) -> Result<Response<vectors::Payload>, Status> {
        let payload = self.payload(&Wanted { len: request.into_inner().len })?;
        Ok(Response::new(vectors::Payload { data: payload.data.to_vec() }))
    }

    async fn feed(
        &self,
        request: Request<vectors::Wanted>,
    ) -> Result<Response<Self::FeedStream>, Status> {
        let payload = self.payload(&Wanted { len: request.into_inner().len })?;
        let message = move || Ok(vectors::Payload { data: payload.data.to_vec() });
        Ok(Response::new(Box::pin(stream::repeat_with(message))))
    }
}
