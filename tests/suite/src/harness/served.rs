//! A server of either stack, and clients of the same.

use std::time::Duration;

use farcall::Channel;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Endpoint, Server};

use crate::failure::Cause;
use crate::harness::either::{EitherProbe, EitherTest, EitherUnimplemented};
use crate::harness::http_channel::{HttpChannel, over_farcall, over_http2};
use crate::harness::stack::Stack;
use crate::interop::Interop;
use crate::interop_proto::test_service_client::TestServiceClient;
use crate::interop_proto::test_service_rpc::TestServiceStub;
use crate::interop_proto::test_service_server::TestServiceServer;
use crate::interop_proto::unimplemented_service_client::UnimplementedServiceClient;
use crate::interop_proto::unimplemented_service_rpc::UnimplementedServiceStub;
use crate::proto::probe_client::ProbeClient;
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::probe_server::ProbeServer;
use crate::{Failure, Harness, Probe, Running};
use farcall_probe::watch::{Watch, WatchEvent};

/// A server that is there for one behaviour.
#[derive(Debug)]
pub(crate) enum Served {
    /// Ours, and whose clients call it.
    Farcall(Box<Running>, Stack),
    /// tonic's, and whose clients call it.
    Tonic(Box<TonicServer>, Stack),
    /// One of another process, which our clients call.
    Elsewhere(Box<Elsewhere>, Stack),
}

/// The address of a server of another process.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    address: String,
    /// Of no handler.
    watch: Watch,
}

/// tonic's own server with the same services, on loopback.
#[derive(Debug)]
pub(crate) struct TonicServer {
    endpoint: Endpoint,
    watch: Watch,
    limit: Duration,
    _serving: AbortOnDropHandle<Result<(), tonic::transport::Error>>,
}

impl Harness {
    /// Starts a server of the stack under test.
    pub(crate) async fn serve_either(&self) -> Result<Served, Failure> {
        let stack = Stack::of(self.path());
        if let Some(address) = &self.elsewhere {
            let (address, (_, watch)) = (address.clone(), Probe::new());
            return Ok(Served::Elsewhere(Box::new(Elsewhere { address, watch }), stack));
        }
        Ok(match stack {
            Stack::Tonic | Stack::ToTonic => {
                Served::Tonic(Box::new(TonicServer::start(self).await?), stack)
            }
            Stack::Served => Served::Farcall(Box::new(self.serve_generated().await?), stack),
            Stack::Farcall | Stack::Over | Stack::Port | Stack::ToPort => {
                Served::Farcall(Box::new(self.serve().await?), stack)
            }
        })
    }
}

impl TonicServer {
    /// Starts it under limits like ours, where tonic has them.
    async fn start(harness: &Harness) -> Result<Self, Failure> {
        let (limits, max_message_len) = (Harness::limits(), max_message_len());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = Endpoint::from_shared(format!("http://{}", listener.local_addr()?))?;
        let (probe, watch) = Probe::new();
        let interop = TestServiceServer::new(Interop::beside(&probe));
        let serving = Server::builder()
            .max_concurrent_streams(limits.max_calls)
            .add_service(ProbeServer::new(probe).max_decoding_message_size(max_message_len))
            .add_service(interop.max_decoding_message_size(max_message_len))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let serving = AbortOnDropHandle::new(tokio::spawn(serving));
        Ok(Self { endpoint, watch, limit: harness.limit(), _serving: serving })
    }
}

/// The longest message of the suite, as tonic is told.
fn max_message_len() -> usize {
    usize::try_from(Harness::limits().max_message_len).unwrap_or(usize::MAX)
}

/// A connection of either stack.
enum Connected {
    Farcall(Channel),
    /// With the longest message that the client is to take.
    Tonic(HttpChannel, usize),
}

impl Served {
    pub(crate) fn stack(&self) -> Stack {
        match self {
            Self::Farcall(_, stack) | Self::Tonic(_, stack) | Self::Elsewhere(_, stack) => *stack,
        }
    }

    async fn connect(&self) -> Result<Connected, Failure> {
        Ok(match self {
            Self::Farcall(running, Stack::Over) => {
                Connected::Tonic(over_farcall(running.channel().await?), max_message_len())
            }
            Self::Farcall(running, Stack::Port) => {
                let authority = running.address().trim_start_matches("tcp://");
                let endpoint = Endpoint::from_shared(format!("http://{authority}"))?;
                Connected::Tonic(over_http2(endpoint.connect().await?), max_message_len())
            }
            Self::Farcall(running, _) => Connected::Farcall(running.channel().await?),
            Self::Tonic(server, Stack::ToTonic) => {
                let authority = server.endpoint.uri().authority().map_or("", |it| it.as_str());
                let builder = Channel::builder(format!("grpc://{authority}"))?;
                Connected::Farcall(builder.limits(Harness::limits()).connect().await?)
            }
            Self::Elsewhere(server, _) => {
                let builder = Channel::builder(&server.address)?;
                Connected::Farcall(builder.limits(Harness::limits()).connect().await?)
            }
            Self::Tonic(server, _) => {
                Connected::Tonic(over_http2(server.endpoint.connect().await?), max_message_len())
            }
        })
    }

    /// A client of the suite's service over a new connection.
    pub(crate) async fn probe(&self) -> Result<EitherProbe, Failure> {
        Ok(match self.connect().await? {
            Connected::Farcall(channel) => EitherProbe::Farcall(ProbeStub::new(channel)),
            Connected::Tonic(channel, max_message_len) => {
                let client = ProbeClient::new(channel);
                EitherProbe::Tonic(client.max_decoding_message_size(max_message_len))
            }
        })
    }

    /// A client of the interoperability tests' service over a new connection.
    pub(crate) async fn test(&self) -> Result<EitherTest, Failure> {
        Ok(match self.connect().await? {
            Connected::Farcall(channel) => EitherTest::Farcall(TestServiceStub::new(channel)),
            Connected::Tonic(channel, _) => EitherTest::Tonic(TestServiceClient::new(channel)),
        })
    }

    /// A client of a service that the server does not have.
    pub(crate) async fn unimplemented(&self) -> Result<EitherUnimplemented, Failure> {
        Ok(match self.connect().await? {
            Connected::Farcall(channel) => {
                EitherUnimplemented::Farcall(UnimplementedServiceStub::new(channel))
            }
            Connected::Tonic(channel, _) => {
                EitherUnimplemented::Tonic(UnimplementedServiceClient::new(channel))
            }
        })
    }

    /// The next event of a handler.
    pub(crate) async fn event(&mut self) -> Result<WatchEvent, Failure> {
        match self {
            Self::Farcall(running, _) => running.event().await,
            Self::Tonic(server, _) => {
                let event = tokio::time::timeout(server.limit, server.watch.next()).await;
                let (what, seconds) = ("an event of a handler", server.limit.as_secs());
                let timed_out = || Failure::new(Cause::TimedOut { what, seconds });
                event.ok().flatten().ok_or_else(timed_out)
            }
            Self::Elsewhere(..) => {
                let what = "an event of a handler of another process";
                Err(Failure::new(Cause::TimedOut { what, seconds: 0 }))
            }
        }
    }

    /// The events of handlers, and the gate.
    pub(crate) fn watch(&mut self) -> &mut Watch {
        match self {
            Self::Farcall(running, _) => running.watch(),
            Self::Tonic(server, _) => &mut server.watch,
            Self::Elsewhere(server, _) => &mut server.watch,
        }
    }
}
