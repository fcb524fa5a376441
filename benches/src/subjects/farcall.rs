//! farcall, over any of its transports.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use clap::Args;
use farcall::{Channel, Config, Limits, Server};
use tokio::task::JoinHandle;

use crate::proto::bench_rpc::{BenchService, BenchStub};
use crate::proto::{Payload, Wanted};
use crate::service::Service;
use crate::worker::{Caller, Client, Quota, Subject, Tally};

/// How farcall is configured for a measurement.
#[derive(Debug, Clone, Default, Args)]
pub struct FarcallOptions {
    /// How long to poll before sleeping, in microseconds (RDMA only).
    #[arg(long)]
    pub spin_us: Option<u64>,
    /// How far the keys reach that the peer is given: auto, window or region (RDMA only).
    #[cfg(feature = "rdma")]
    #[arg(long)]
    pub rkey_scope: Option<farcall::RkeyScope>,
}

impl FarcallOptions {
    /// The configuration: farcall's own, with room for the largest messages, and what was chosen.
    #[must_use]
    pub fn config(&self) -> Config {
        let limits =
            Limits { message_len_max: 65 << 20, receiving_bytes_max: 1 << 30, ..Limits::default() };
        let config = Config::default().with_limits(limits);
        #[cfg(feature = "rdma")]
        let config = {
            let mut rdma = farcall::RdmaConfig::default();
            rdma.rkey_scope = self.rkey_scope.unwrap_or(rdma.rkey_scope);
            rdma.spin = self.spin_us.map_or(rdma.spin, std::time::Duration::from_micros);
            config.with_rdma(rdma)
        };
        config
    }
}

/// farcall as a subject.
#[derive(Debug)]
pub struct Farcall {
    config: Config,
}

impl Farcall {
    /// farcall with this configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config }
    }
}

impl Subject for Farcall {
    type Connection = FarcallClient;

    async fn serve(&self, address: &str) -> Result<String> {
        let endpoint = farcall::bind_with(address, &self.config).await?;
        let address = endpoint.address().to_string();
        let builder = Server::builder().add_service(BenchService::new(Service::default()));
        let server = endpoint.configure(builder).build();
        tokio::spawn(async move {
            if let Err(error) = server.serve(endpoint).await {
                eprintln!("the server ended: {error}");
            }
        });
        Ok(address)
    }

    async fn connect(&self, address: &str) -> Result<FarcallClient> {
        let channel = farcall::connect_with(address, &self.config)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        Ok(FarcallClient { stub: BenchStub::new(channel.clone()), channel })
    }
}

/// One channel.
#[derive(Debug, Clone)]
pub struct FarcallClient {
    channel: Channel,
    stub: BenchStub<Channel>,
}

impl FarcallClient {
    /// The connection that it has now.
    #[must_use]
    pub fn info(&self) -> Option<farcall::ConnectionInfo> {
        self.channel.info()
    }
}

impl Client for FarcallClient {
    async fn echo(&self, data: Bytes) -> Result<usize> {
        Ok(self.stub.echo(Payload { data }).await?.into_inner().data.len())
    }

    async fn upload(&self, data: Bytes) -> Result<()> {
        self.stub.upload(Payload { data }).await?;
        Ok(())
    }

    async fn download(&self, len: usize) -> Result<usize> {
        Ok(self.stub.download(Wanted { len: len as u64 }).await?.into_inner().data.len())
    }

    async fn feed(&self, len: usize, quota: &mut Quota) -> Result<()> {
        let mut messages = self.stub.feed(Wanted { len: len as u64 }).await?.into_inner();
        while quota.wants_message() {
            let message = messages.message().await?.context("the stream ended")?;
            anyhow::ensure!(message.data.len() == len, "a message of another length");
            quota.add(1);
        }
        Ok(())
    }

    fn spawn(caller: Caller<Self>) -> JoinHandle<Result<Tally>> {
        tokio::spawn(caller.run())
    }
}
