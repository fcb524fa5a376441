//! Clients of either stack with the same methods, so that a behaviour is written once.

use farcall::{Channel, Response, Status, Streaming};
use tonic::{IntoRequest, IntoStreamingRequest};

use crate::harness::http_channel::HttpChannel;
use crate::interop_proto as interop;
use crate::interop_proto::test_service_client::TestServiceClient;
use crate::interop_proto::test_service_rpc::TestServiceStub;
use crate::interop_proto::unimplemented_service_client::UnimplementedServiceClient;
use crate::interop_proto::unimplemented_service_rpc::UnimplementedServiceStub;
use crate::proto;
use crate::proto::probe_client::ProbeClient;
use crate::proto::probe_rpc::ProbeStub;

/// Declares a client of either stack over the two that are generated; a method is named with its
/// messages in parentheses, or in brackets where they are a stream.
macro_rules! either {
    (
        $(#[$doc:meta])*
        $name:ident: $stub:ident | $client:ident { $($method:ident $request:tt -> $reply:tt;)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) enum $name {
            /// Our stub.
            Farcall($stub<Channel>),
            /// tonic's client.
            Tonic($client<HttpChannel>),
        }

        impl $name {
            $(
                pub(crate) async fn $method(
                    &self,
                    request: either!(@request $request),
                ) -> Result<Response<either!(@reply $reply)>, Status> {
                    match self {
                        Self::Farcall(stub) => stub.$method(request).await,
                        // Its future is large, and would be part of every behaviour's.
                        Self::Tonic(client) => Box::pin(client.clone().$method(request)).await,
                    }
                }
            )*
        }

        impl From<&$name> for $name {
            fn from(client: &$name) -> Self {
                client.clone()
            }
        }

        impl From<&$stub<Channel>> for $name {
            fn from(stub: &$stub<Channel>) -> Self {
                Self::Farcall(stub.clone())
            }
        }
    };
    (@request ($message:ty)) => { impl IntoRequest<$message> };
    (@request [$message:ty]) => { impl IntoStreamingRequest<Message = $message> };
    (@reply ($message:ty)) => { $message };
    (@reply [$message:ty]) => { Streaming<$message> };
}

either! {
    /// A client of the suite's service.
    EitherProbe: ProbeStub | ProbeClient {
        echo (proto::EchoRequest) -> (proto::EchoReply);
        park (proto::ParkRequest) -> (proto::EchoReply);
        reflect (proto::ReflectRequest) -> (proto::ReflectReply);
        fail (proto::FailRequest) -> (proto::EchoReply);
        download (proto::DownloadRequest) -> [proto::EchoReply];
        upload [proto::EchoRequest] -> (proto::UploadReply);
        chat [proto::EchoRequest] -> [proto::EchoReply];
    }
}

either! {
    /// A client of the service of gRPC's interoperability tests.
    EitherTest: TestServiceStub | TestServiceClient {
        empty_call (interop::Empty) -> (interop::Empty);
        unary_call (interop::SimpleRequest) -> (interop::SimpleResponse);
        streaming_output_call
            (interop::StreamingOutputCallRequest) -> [interop::StreamingOutputCallResponse];
        streaming_input_call
            [interop::StreamingInputCallRequest] -> (interop::StreamingInputCallResponse);
        full_duplex_call
            [interop::StreamingOutputCallRequest] -> [interop::StreamingOutputCallResponse];
        unimplemented_call (interop::Empty) -> (interop::Empty);
    }
}

either! {
    /// A client of a service that no server has.
    EitherUnimplemented: UnimplementedServiceStub | UnimplementedServiceClient {
        unimplemented_call (interop::Empty) -> (interop::Empty);
    }
}
