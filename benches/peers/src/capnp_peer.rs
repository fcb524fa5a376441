//! Cap'n Proto's RPC. Its objects stay on one thread, whatever the runtime.

use std::rc::Rc;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use capnp::message::ReaderOptions;
use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::twoparty::VatNetwork;
use capnp_rpc::{RpcSystem, new_client};
use farcall_benches::worker::{Caller, Client, Quota, Subject, Tally};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

use crate::bench_capnp::bench;
use crate::{DOWNLOAD_LEN_MAX, host_and_port};

/// Cap'n Proto's RPC as a subject.
#[derive(Debug)]
pub(crate) struct Capnp;

struct Service {
    ready: Bytes,
}

impl bench::Server for Service {
    async fn echo(
        self: Rc<Self>,
        params: bench::EchoParams,
        mut results: bench::EchoResults,
    ) -> Result<(), capnp::Error> {
        results.get().set_data(params.get()?.get_data()?);
        Ok(())
    }

    async fn upload(
        self: Rc<Self>,
        params: bench::UploadParams,
        _: bench::UploadResults,
    ) -> Result<(), capnp::Error> {
        params.get()?.get_data()?;
        Ok(())
    }

    async fn download(
        self: Rc<Self>,
        params: bench::DownloadParams,
        mut results: bench::DownloadResults,
    ) -> Result<(), capnp::Error> {
        let len = usize::try_from(params.get()?.get_len()).unwrap_or(usize::MAX);
        results.get().set_data(&self.ready[..len.min(self.ready.len())]);
        Ok(())
    }
}

fn network(
    stream: TcpStream,
    side: Side,
) -> Result<Box<VatNetwork<impl futures::io::AsyncRead + Unpin + 'static>>> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    // Without a limit on what is read of a message: 64 MiB are what it would be.
    let mut options = ReaderOptions::new();
    options.traversal_limit_in_words(None);
    let reader = futures::io::BufReader::with_capacity(64 << 10, reader.compat());
    let writer = futures::io::BufWriter::with_capacity(64 << 10, writer.compat_write());
    Ok(Box::new(VatNetwork::new(reader, writer, side, options)))
}

impl Subject for Capnp {
    type Connection = CapnpClient;

    async fn serve(&self, address: &str) -> Result<String> {
        let listener = TcpListener::bind(host_and_port(address)?).await?;
        let address = format!("tcp://{}", listener.local_addr()?);
        let service = Service { ready: vec![7; DOWNLOAD_LEN_MAX].into() };
        let service: bench::Client = new_client(service);
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(network) = network(stream, Side::Server) else { continue };
                let system = RpcSystem::new(network, Some(service.clone().client));
                tokio::task::spawn_local(system);
            }
        });
        Ok(address)
    }

    async fn connect(&self, address: &str) -> Result<CapnpClient> {
        let stream = TcpStream::connect(host_and_port(address)?)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        let mut system = RpcSystem::new(network(stream, Side::Client)?, None);
        let stub: bench::Client = system.bootstrap(Side::Server);
        tokio::task::spawn_local(system);
        Ok(CapnpClient { stub })
    }
}

/// One client.
#[derive(Clone)]
pub(crate) struct CapnpClient {
    stub: bench::Client,
}

impl Client for CapnpClient {
    async fn echo(&self, data: Bytes) -> Result<usize> {
        let mut request = self.stub.echo_request();
        request.get().set_data(&data);
        Ok(request.send().promise.await?.get()?.get_data()?.len())
    }

    async fn upload(&self, data: Bytes) -> Result<()> {
        let mut request = self.stub.upload_request();
        request.get().set_data(&data);
        request.send().promise.await?;
        Ok(())
    }

    async fn download(&self, len: usize) -> Result<usize> {
        let mut request = self.stub.download_request();
        request.get().set_len(len as u64);
        Ok(request.send().promise.await?.get()?.get_data()?.len())
    }

    async fn feed(&self, _: usize, _: &mut Quota) -> Result<()> {
        bail!("Cap'n Proto's streams are calls, and are not measured")
    }

    fn spawn(caller: Caller<Self>) -> JoinHandle<Result<Tally>> {
        tokio::task::spawn_local(caller.run())
    }
}
