//! A service that answers by a function of the request's metadata, and a server of it.

use std::fmt;
use std::sync::Arc;

use farcall::tonic::codegen::BoxStream;
use farcall::tonic::metadata::MetadataMap;
use farcall::{Request, Response, Server, ServerBuilder, Status, async_trait};
use farcall_suite::interop_proto::test_service_rpc::TestServiceService;
use farcall_suite::interop_proto::test_service_server::TestService;
use farcall_suite::interop_proto::{
    Empty, StreamingOutputCallRequest, StreamingOutputCallResponse,
};
use tokio_util::task::AbortOnDropHandle;

type MetadataAnswer = dyn Fn(&MetadataMap) -> Result<MetadataMap, Status> + Send + Sync;

/// Answers with metadata, or with a status. A stream has its status behind one message.
#[derive(Clone)]
pub(crate) struct Answering(Arc<MetadataAnswer>);

impl Answering {
    pub(crate) fn with(
        answer: impl Fn(&MetadataMap) -> Result<MetadataMap, Status> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(answer))
    }

    /// A server of this service, which listens nowhere yet.
    pub(crate) fn server(self) -> ServerBuilder {
        Server::builder().add_service(TestServiceService::new(self))
    }
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answering")
    }
}

#[async_trait]
impl TestService for Answering {
    async fn empty_call(&self, request: Request<Empty>) -> Result<Response<Empty>, Status> {
        let mut response = Response::new(Empty {});
        *response.metadata_mut() = (self.0)(request.metadata())?;
        Ok(response)
    }

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<BoxStream<StreamingOutputCallResponse>>, Status> {
        let failed = (self.0)(request.metadata()).err().map(Err);
        let one = Ok(StreamingOutputCallResponse::default());
        Ok(Response::new(Box::pin(tokio_stream::iter([one].into_iter().chain(failed)))))
    }
}

/// A server, until it is dropped.
pub(crate) struct Running {
    /// Host and port.
    pub(crate) authority: String,
    _serving: AbortOnDropHandle<()>,
}

/// Serves at an address; `tcp://127.0.0.1:0` has any port.
pub(crate) async fn serve(builder: ServerBuilder, address: &str) -> Running {
    let listener = builder.bind(address).await.expect("the address is free");
    let authority = listener.local_address().to_string().replace("tcp://", "");
    let serving = tokio::spawn(async move { listener.serve().await.expect("it serves") });
    Running { authority, _serving: AbortOnDropHandle::new(serving) }
}
