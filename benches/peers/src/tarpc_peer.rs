//! tarpc: its own frames over TCP, with bincode.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use farcall_benches::worker::{Caller, Client, Quota, Subject, Tally};
use futures::StreamExt as _;
use tarpc::context::{self, Context};
use tarpc::server::{BaseChannel, Channel as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_serde::formats::Bincode;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use crate::{DOWNLOAD_LEN_MAX, host_and_port};

/// Longer than any call of the harness takes: tarpc's own is 10 s.
const CALL_LIMIT: Duration = Duration::from_secs(300);

#[tarpc::service]
trait Bench {
    async fn echo(data: Bytes) -> Bytes;
    async fn upload(data: Bytes) -> ();
    async fn download(len: usize) -> Bytes;
}

/// tarpc as a subject.
#[derive(Debug)]
pub(crate) struct Tarpc;

#[derive(Clone)]
struct Service {
    ready: Bytes,
}

impl Bench for Service {
    async fn echo(self, _: Context, data: Bytes) -> Bytes {
        data
    }

    async fn upload(self, _: Context, _: Bytes) {}

    async fn download(self, _: Context, len: usize) -> Bytes {
        self.ready.slice(..len.min(self.ready.len()))
    }
}

fn framed(stream: TcpStream) -> Result<Framed<TcpStream, LengthDelimitedCodec>> {
    stream.set_nodelay(true)?;
    let mut builder = LengthDelimitedCodec::builder();
    Ok(builder.max_frame_length(DOWNLOAD_LEN_MAX + (1 << 20)).new_framed(stream))
}

impl Subject for Tarpc {
    type Connection = TarpcClient;

    async fn serve(&self, address: &str) -> Result<String> {
        let listener = TcpListener::bind(host_and_port(address)?).await?;
        let address = format!("tcp://{}", listener.local_addr()?);
        let service = Service { ready: vec![7; DOWNLOAD_LEN_MAX].into() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(framed) = framed(stream) else { continue };
                let transport = tarpc::serde_transport::new(framed, Bincode::default());
                let channel = BaseChannel::with_defaults(transport);
                let requests = channel.execute(service.clone().serve());
                tokio::spawn(requests.for_each(|request| async move {
                    tokio::spawn(request);
                }));
            }
        });
        Ok(address)
    }

    async fn connect(&self, address: &str) -> Result<TarpcClient> {
        let stream = TcpStream::connect(host_and_port(address)?).await?;
        let transport = tarpc::serde_transport::new(framed(stream)?, Bincode::default());
        Ok(TarpcClient { stub: BenchClient::new(Default::default(), transport).spawn() })
    }
}

/// One client.
#[derive(Debug, Clone)]
pub(crate) struct TarpcClient {
    stub: BenchClient,
}

fn context() -> Context {
    let mut context = context::current();
    context.deadline = Instant::now() + CALL_LIMIT;
    context
}

impl Client for TarpcClient {
    async fn echo(&self, data: Bytes) -> Result<usize> {
        Ok(self.stub.echo(context(), data).await?.len())
    }

    async fn upload(&self, data: Bytes) -> Result<()> {
        Ok(self.stub.upload(context(), data).await?)
    }

    async fn download(&self, len: usize) -> Result<usize> {
        Ok(self.stub.download(context(), len).await?.len())
    }

    async fn feed(&self, _: usize, _: &mut Quota) -> Result<()> {
        bail!("tarpc has no streams")
    }

    fn spawn(caller: Caller<Self>) -> JoinHandle<Result<Tally>> {
        tokio::spawn(caller.run())
    }
}
