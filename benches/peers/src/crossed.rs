//! tonic's client with farcall in tonic's place: under it, or at the port that it calls.

use anyhow::Result;
use farcall::grpc::GrpcOver;
use farcall_benches::proto::bench_client::BenchClient;
use farcall_benches::subjects::{Farcall, FarcallOptions};
use farcall_benches::worker::Subject;
use tonic::transport::Channel;

use crate::tonic_peer::{Tonic, TonicClient};

fn farcall_subject() -> Farcall {
    Farcall::new(&FarcallOptions::default())
}

/// tonic's client over a channel of farcall's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverFarcall;

impl Subject for OverFarcall {
    type Connection = TonicClient<GrpcOver<farcall::Channel>>;

    async fn serve(&self, address: &str) -> Result<String> {
        farcall_subject().serve(address).await
    }

    async fn connect(&self, address: &str) -> Result<Self::Connection> {
        let client = farcall_subject().connect(address).await?;
        let over = GrpcOver::new(client.channel().clone());
        Ok(TonicClient::new(BenchClient::new(over)))
    }
}

/// tonic's client at the port of farcall's server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtFarcall;

impl Subject for AtFarcall {
    type Connection = TonicClient<Channel>;

    async fn serve(&self, address: &str) -> Result<String> {
        farcall_subject().serve(address).await
    }

    async fn connect(&self, address: &str) -> Result<Self::Connection> {
        Tonic::default().connect(address).await
    }
}
