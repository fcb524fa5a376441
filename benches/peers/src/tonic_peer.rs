//! tonic: gRPC over HTTP/2, with the very service that farcall serves.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use farcall_benches::proto::bench_client::BenchClient;
use farcall_benches::proto::bench_server::BenchServer;
use farcall_benches::proto::{Payload, Wanted};
use farcall_benches::service::Service;
use farcall_benches::worker::{Caller, Client, Quota, Subject, Tally};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, StdError};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};

use crate::host_and_port;

/// tonic as a subject.
#[derive(Debug, Default)]
pub(crate) struct Tonic {
    /// The window of a stream and of a connection, and the length of a frame.
    tuning: Option<(u32, u32)>,
}

impl Tonic {
    /// tonic for large messages: a window that holds one, and frames as long as HTTP/2 has them
    /// without 24 bits overflowing.
    pub(crate) fn tuned() -> Self {
        Self { tuning: Some((128 << 20, (1 << 24) - 1)) }
    }
}

impl Subject for Tonic {
    type Connection = TonicClient<Channel>;

    async fn serve(&self, address: &str) -> Result<String> {
        let listener = TcpListener::bind(host_and_port(address)?).await?;
        let address = format!("tcp://{}", listener.local_addr()?);
        let service = BenchServer::new(Service::default())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        let mut server = Server::builder();
        if let Some((window, frame)) = self.tuning {
            server = server
                .initial_stream_window_size(window)
                .initial_connection_window_size(window)
                .max_frame_size(frame);
        }
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let serving = server.add_service(service).serve_with_incoming(incoming);
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                eprintln!("the server ended: {error}");
            }
        });
        Ok(address)
    }

    async fn connect(&self, address: &str) -> Result<TonicClient<Channel>> {
        let mut endpoint = Endpoint::from_shared(format!("http://{}", host_and_port(address)?))?;
        if let Some((window, frame)) = self.tuning {
            endpoint = endpoint
                .initial_stream_window_size(window)
                .initial_connection_window_size(window)
                .max_frame_size(frame);
        }
        let channel = endpoint.connect().await?;
        Ok(TonicClient::new(BenchClient::new(channel)))
    }
}

/// One channel.
#[derive(Debug, Clone)]
pub(crate) struct TonicClient<S> {
    stub: BenchClient<S>,
}

impl<S> TonicClient<S>
where
    S: GrpcService<Body, ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send>>,
    S: GrpcService<Body, Error: Into<StdError>, ResponseBody: Send + 'static>,
{
    /// A stub with room for every message.
    pub(crate) fn new(stub: BenchClient<S>) -> Self {
        let stub = stub.max_decoding_message_size(usize::MAX);
        Self { stub: stub.max_encoding_message_size(usize::MAX) }
    }
}

impl<S> Client for TonicClient<S>
where
    S: GrpcService<Body, ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send>>,
    S: GrpcService<Body, Error: Into<StdError>, ResponseBody: Send + 'static, Future: Send>,
    S: Clone + Send + Sync + 'static,
{
    async fn echo(&self, data: Bytes) -> Result<usize> {
        // A stub is cloned for each call, because it wants to be exclusive: so do applications.
        Ok(self.stub.clone().echo(Payload { data }).await?.into_inner().data.len())
    }

    async fn upload(&self, data: Bytes) -> Result<()> {
        self.stub.clone().upload(Payload { data }).await?;
        Ok(())
    }

    async fn download(&self, len: usize) -> Result<usize> {
        let wanted = Wanted { len: len as u64 };
        Ok(self.stub.clone().download(wanted).await?.into_inner().data.len())
    }

    async fn feed(&self, len: usize, quota: &mut Quota) -> Result<()> {
        let wanted = Wanted { len: len as u64 };
        let mut messages = self.stub.clone().feed(wanted).await?.into_inner();
        while quota.wants_message() {
            let message = messages.message().await?.context("the stream ended")?;
            ensure!(message.data.len() == len, "a message of another length");
            quota.add(1);
        }
        Ok(())
    }

    fn spawn(caller: Caller<Self>) -> JoinHandle<Result<Tally>> {
        tokio::spawn(caller.run())
    }
}
