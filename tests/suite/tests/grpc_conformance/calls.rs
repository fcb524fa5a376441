//! Calls of every kind with every end, by tonic's client at the port and over a channel, and by a
//! stub at `grpc://`.

use farcall::grpc::GrpcOver;
use farcall::{Channel, Code, Status, Streaming, Trailers};
use farcall_suite::interop_proto::StreamingOutputCallResponse;
use farcall_suite::interop_proto::test_service_client::TestServiceClient;
use farcall_suite::interop_proto::test_service_rpc::TestServiceStub;
use tonic::transport::Endpoint;

use crate::raw::within;
use crate::service::{Serving, Wanted, has};

const CODES: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// A text that a header cannot have.
const UNICODE: &str = "\t\u{1f4a5} ein schlimmer Fehler: 100 % \u{fc}bel\r\n";

impl Serving {
    async fn over_http(&self) -> TestServiceClient<tonic::transport::Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.authority)).unwrap();
        TestServiceClient::new(within(endpoint.connect()).await.unwrap())
    }

    async fn channel(&self, scheme: &str) -> Channel {
        let address = format!("{scheme}://{}", self.authority);
        within(Channel::connect(address)).await.unwrap()
    }
}

/// Runs `$body` with each client in turn.
macro_rules! with_each_client {
    ($server:ident, $client:ident => $body:block) => {
        #[allow(unused_mut, reason = "a stub needs no exclusive access")]
        {
            let mut $client = $server.over_http().await;
            $body
            let over = GrpcOver::new($server.channel("tcp").await);
            let mut $client = TestServiceClient::new(over);
            $body
            let mut $client = TestServiceStub::new($server.channel("grpc").await);
            $body
        }
    };
}

fn check_status(ended: Result<(), Status>, wanted: &Wanted) {
    let status = match (ended, wanted.code) {
        (Ok(()), 0) => return,
        (ended, _) => ended.unwrap_err(),
    };
    assert_eq!((status.code() as i32, status.message()), (wanted.code, &*wanted.message));
    assert_eq!(status.details(), b"details");
    assert!(has(status.metadata(), "x-end"), "{:?}", status.metadata());
}

/// Trailers of a success are an extension with farcall, and metadata with tonic.
fn check_one<T>(ended: Result<farcall::Response<T>, Status>, wanted: &Wanted) {
    if let Ok(response) = &ended {
        assert!(has(response.metadata(), "x-begin"), "{:?}", response.metadata());
        let trailers = response.extensions().get::<Trailers>().map(|trailers| &trailers.0);
        let trailers = trailers.unwrap_or(response.metadata());
        assert!(has(trailers, "x-end"), "{trailers:?}");
    }
    check_status(ended.map(drop), wanted);
}

async fn check_stream(
    began: Result<farcall::Response<Streaming<StreamingOutputCallResponse>>, Status>,
    wanted: &Wanted,
) {
    let response = match began {
        Ok(response) => response,
        // The head of the responses may be that of the status.
        Err(status) if wanted.responses == 0 => return check_status(Err(status), wanted),
        Err(status) => panic!("{status}"),
    };
    assert!(has(response.metadata(), "x-begin"), "{:?}", response.metadata());
    let mut messages = response.into_inner();
    for _ in 0..wanted.responses {
        within(messages.message()).await.unwrap().unwrap();
    }
    let ended = within(messages.message()).await;
    if let Ok(message) = &ended {
        assert_eq!(*message, None);
        let trailers = within(messages.trailers()).await.unwrap().unwrap();
        assert!(has(&trailers, "x-end"), "{trailers:?}");
    }
    check_status(ended.map(drop), wanted);
}

#[tokio::test]
async fn errors() {
    let server = Serving::start().await;
    with_each_client!(server, client => {
        for code in CODES {
            let wanted = Wanted::of(0, code);
            check_one(within(client.unary_call(wanted.asks(Default::default()))).await, &wanted);
            let began = within(client.streaming_output_call(wanted.asks(Default::default()))).await;
            check_stream(began, &wanted).await;
        }
    });
}

#[tokio::test]
async fn a_message_of_any_text() {
    let server = Serving::start().await;
    let wanted = Wanted { message: UNICODE.to_owned(), ..Wanted::of(0, Code::Internal) };
    with_each_client!(server, client => {
        check_one(within(client.unary_call(wanted.asks(Default::default()))).await, &wanted);
    });
}

#[tokio::test]
async fn every_kind_of_call_ends_as_it_is_wanted() {
    let server = Serving::start().await;
    let wanted = [0, 3].map(|responses| {
        [Code::Ok, Code::ResourceExhausted].map(|code| Wanted::of(responses, code))
    });
    with_each_client!(server, client => {
        for wanted in wanted.iter().flatten() {
            check_one(within(client.unary_call(wanted.asks(Default::default()))).await, wanted);
            for requests in [1, 3] {
                let requests = vec![Default::default(); requests];
                let request = wanted.asks(tokio_stream::iter(requests));
                check_one(within(client.streaming_input_call(request)).await, wanted);
            }
            let began = within(client.streaming_output_call(wanted.asks(Default::default()))).await;
            check_stream(began, wanted).await;
            let request = wanted.asks(tokio_stream::iter(vec![Default::default(); 2]));
            check_stream(within(client.full_duplex_call(request)).await, wanted).await;
        }
    });
}
