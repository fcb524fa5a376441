//! A service that answers as the metadata of its requests say, and a server of it.

use bytes::Bytes;
use farcall::tonic::codegen::BoxStream;
use farcall::tonic::metadata::MetadataMap;
use farcall::{Code, Request, Response, Server, Status, Streaming, Trailers, async_trait};
use farcall_suite::interop_proto::test_service_rpc::TestServiceService;
use farcall_suite::interop_proto::test_service_server::TestService;
use farcall_suite::interop_proto::{
    Empty, SimpleRequest, SimpleResponse, StreamingInputCallRequest, StreamingInputCallResponse,
    StreamingOutputCallRequest, StreamingOutputCallResponse,
};
use tokio_stream::StreamExt as _;
use tokio_util::task::AbortOnDropHandle;

use crate::raw::within;

/// The service's treatment of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wanted {
    /// Responses before the end; calls with one response have it unless they fail.
    pub(crate) responses: usize,
    /// Status code at the end.
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl Wanted {
    pub(crate) fn of(responses: usize, code: Code) -> Self {
        Self { responses, code: code as i32, message: "it was wanted".to_owned() }
    }

    /// A request for it, with metadata that has several values.
    pub(crate) fn asks<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("x-responses", self.responses.into());
        metadata.insert("x-code", self.code.into());
        metadata.insert_bin(
            "x-message-bin",
            farcall::tonic::metadata::MetadataValue::from_bytes(self.message.as_bytes()),
        );
        for value in VALUES {
            metadata.append("x-request", value.parse().unwrap());
        }
        request
    }

    fn read(metadata: &MetadataMap) -> Result<Self, Status> {
        let values: Vec<_> = metadata.get_all("x-request").iter().collect();
        if values != VALUES {
            return Err(Status::data_loss(format!("the request's metadata are {values:?}")));
        }
        let number = |name| metadata.get(name)?.to_str().ok()?.parse::<usize>().ok();
        let message = metadata.get_bin("x-message-bin").and_then(|text| text.to_bytes().ok());
        let message = message.and_then(|text| String::from_utf8(text.into()).ok());
        let code = number("x-code").and_then(|code| i32::try_from(code).ok());
        match (number("x-responses"), code, message) {
            (Some(responses), Some(code), Some(message)) => Ok(Self { responses, code, message }),
            _ => Err(Status::data_loss("the request does not say what is wanted")),
        }
    }

    fn status(&self) -> Result<(), Status> {
        match Code::from_i32(self.code) {
            Code::Ok => Ok(()),
            code => {
                let details = Bytes::from_static(b"details");
                Err(Status::with_details_and_metadata(code, &*self.message, details, map("x-end")))
            }
        }
    }

    fn one<T>(&self, message: T) -> Result<Response<T>, Status> {
        self.status()?;
        Ok(with_metadata(Response::new(message)))
    }

    fn stream(self) -> Response<Outputs> {
        let last = self.status().err().map(Err);
        let messages = (0..self.responses).map(|_| Ok(StreamingOutputCallResponse::default()));
        with_metadata(Response::new(Box::pin(tokio_stream::iter(messages.chain(last)))))
    }
}

/// The values of each name of metadata.
pub(crate) const VALUES: [&str; 3] = ["bing", "quuz", "bing"];

fn map(name: &'static str) -> MetadataMap {
    let mut map = MetadataMap::new();
    for value in VALUES {
        map.append(name, value.parse().unwrap());
    }
    map
}

fn with_metadata<T>(mut response: Response<T>) -> Response<T> {
    *response.metadata_mut() = map("x-begin");
    response.extensions_mut().insert(Trailers(map("x-end")));
    response
}

/// Returns true if `metadata` has [`VALUES`] under a name.
pub(crate) fn has(metadata: &MetadataMap, name: &str) -> bool {
    metadata.get_all(name).iter().eq(VALUES)
}

type Outputs = BoxStream<StreamingOutputCallResponse>;

/// The service.
#[derive(Debug)]
pub(crate) struct Scripted;

#[async_trait]
impl TestService for Scripted {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        Wanted::read(request.metadata())?.one(SimpleResponse::default())
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let wanted = Wanted::read(request.metadata())?;
        let mut requests = request.into_inner();
        while requests.message().await?.is_some() {}
        wanted.one(StreamingInputCallResponse::default())
    }

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<Outputs>, Status> {
        Ok(Wanted::read(request.metadata())?.stream())
    }

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Outputs>, Status> {
        let wanted = Wanted::read(request.metadata())?;
        let mut requests = request.into_inner();
        while requests.next().await.transpose()?.is_some() {}
        Ok(wanted.stream())
    }
}

/// A server of it. It ends with this value.
pub(crate) struct Serving {
    pub(crate) authority: String,
    _serving: AbortOnDropHandle<()>,
}

impl Serving {
    pub(crate) async fn start() -> Self {
        let builder = Server::builder().add_service(TestServiceService::new(Scripted));
        let listener = within(builder.bind("tcp://127.0.0.1:0")).await.unwrap();
        let authority = listener.local_address().to_string().replace("tcp://", "");
        let serving = tokio::spawn(async move { listener.serve().await.unwrap() });
        Self { authority, _serving: AbortOnDropHandle::new(serving) }
    }
}
