//! Messages with `Vec<u8>` fields, as generated code has them unless it is asked for `Bytes`: over
//! every transport, both ways, by themselves and beside each other.

use std::net::Ipv4Addr;
use std::time::Duration;

use farcall::sim::SimNetwork;
use farcall::tls::{ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use farcall::{
    Channel, Compression, Limits, Rdma, RdmaConfig, Request, Response, Server, ServerBuilder,
    Status, async_trait,
};
use farcall_suite::OneServer as _;
use farcall_suite::payload;
use farcall_testkit::certificates::{Authority, Leaf, Wanted as WantedLeaf};
use futures::future::try_join_all;
use futures::stream;
use tonic::codegen::BoxStream;

#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/farcall.bench.rs"));
}

use proto::bench_rpc::{BenchService, BenchStub};
use proto::{Done, Payload, Wanted};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The bound on the calls over one transport.
const LIMIT: Duration = Duration::from_secs(60);

/// Around the length from which on a field is received apart, and in several chunks.
const LENS: [usize; 7] = [0, 1, 65_535, 65_536, 70_000, 1 << 20, 5_000_001];

fn limits() -> Limits {
    Limits::default().with_max_message_len(16 << 20)
}

struct Vectors;

#[async_trait]
impl proto::bench_server::Bench for Vectors {
    type FeedStream = BoxStream<Payload>;

    async fn echo(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        let (metadata, _, mut message) = request.into_parts();
        // A vector can be changed, whatever memory it came in.
        message.data.reverse();
        let mut response = Response::new(message);
        *response.metadata_mut() = metadata;
        Ok(response)
    }

    async fn upload(&self, _: Request<Payload>) -> Result<Response<Done>, Status> {
        Ok(Response::new(Done {}))
    }

    async fn download(&self, request: Request<Wanted>) -> Result<Response<Payload>, Status> {
        let data = payload(1, usize::try_from(request.into_inner().len).unwrap_or_default());
        Ok(Response::new(Payload { data: data.to_vec() }))
    }

    async fn feed(&self, request: Request<Wanted>) -> Result<Response<Self::FeedStream>, Status> {
        let data = payload(1, usize::try_from(request.into_inner().len).unwrap_or_default());
        let messages = (0..3).map(move |_| Ok(Payload { data: data.to_vec() }));
        Ok(Response::new(Box::pin(stream::iter(messages))))
    }
}

/// An echo of `len` bytes, with metadata of `metadata_len` bytes.
async fn echo(
    stub: &BenchStub<Channel>,
    seed: u64,
    (len, metadata_len): (usize, usize),
) -> Result<(), Failure> {
    let mut expected = payload(seed, len).to_vec();
    let mut request = Request::new(Payload { data: expected.clone() });
    request.metadata_mut().insert("pad", "p".repeat(metadata_len).parse()?);
    let reply = stub.echo(request).await?;
    expected.reverse();
    assert!(reply.metadata().get("pad").is_some_and(|pad| pad.len() == metadata_len));
    assert!(reply.into_inner().data == expected, "{len} bytes, {metadata_len} of metadata");
    Ok(())
}

async fn calls(stub: &BenchStub<Channel>) -> Result<(), Failure> {
    for len in LENS {
        // Metadata from where a key is seen with the frame's header, and from where it is not.
        for metadata_len in [10, 5_000] {
            echo(stub, 1, (len, metadata_len)).await?;
        }
        let wanted = Wanted { len: len as u64 };
        let reply = stub.download(wanted).await?.into_inner();
        assert!(reply.data == payload(1, len), "a download of {len} bytes");
        let mut replies = stub.feed(wanted).await?.into_inner();
        let mut count = 0;
        while let Some(reply) = replies.message().await? {
            assert!(reply.data == payload(1, len), "a message of {len} bytes");
            count += 1;
        }
        assert_eq!(count, 3);
    }
    let lens = LENS.iter().chain(&LENS);
    let together = (2..).zip(lens).map(|(seed, len)| echo(stub, seed, (*len, 10)));
    try_join_all(together).await.map(drop)
}

/// Makes the calls over one transport.
async fn check(
    address: &str,
    transport: &str,
    server: ServerBuilder,
    client: impl FnOnce(farcall::ChannelBuilder) -> farcall::ChannelBuilder,
) -> Result<(), Failure> {
    let server = server.limits(limits()).add_service(BenchService::new(Vectors)).build();
    let listener = server.bind(address).await?;
    let address = listener.local_address().to_string();
    let serving = tokio::spawn(listener.serve());
    let builder = Channel::builder(address.as_str())?.limits(limits());
    let channel = client(builder).connect().await?;
    assert_eq!(channel.info().map(|info| info.transport), Some(transport));
    tokio::time::timeout(LIMIT, calls(&BenchStub::new(channel))).await??;
    serving.abort();
    Ok(())
}

#[tokio::test]
async fn vectors_arrive_over_tcp() -> Result<(), Failure> {
    check("tcp://127.0.0.1:0", "tcp", Server::builder(), |it| it).await
}

#[tokio::test]
async fn vectors_arrive_over_unix_sockets() -> Result<(), Failure> {
    let address = format!("unix://@farcall-vectors-{}", std::process::id());
    check(&address, "unix", Server::builder(), |it| it).await
}

#[tokio::test]
async fn vectors_arrive_in_process() -> Result<(), Failure> {
    check("inproc://vectors", "inproc", Server::builder(), |it| it).await
}

#[tokio::test]
async fn vectors_arrive_over_tls() -> Result<(), Failure> {
    let authority = Authority::new("vectors")?;
    let Leaf { cert, key } = authority.issue(WantedLeaf::named("127.0.0.1"))?;
    let server = ServerTls::new(ServerTlsConfig::new(Pem::bytes(cert), Pem::bytes(key)))?;
    let client = ClientTlsConfig::default().with_ca(Pem::bytes(authority.pem()));
    let client = ClientTls::new(client)?;
    let server = Server::builder().tls(&server);
    check("tcp://127.0.0.1:0", "tls", server, |it| it.tls(&client)).await
}

#[tokio::test]
async fn compressed_vectors_arrive() -> Result<(), Failure> {
    let compression = Compression::default().with_min_len(1024);
    let server = Server::builder().compression(compression);
    check("tcp://127.0.0.1:0", "tcp", server, |it| it.compression(compression)).await
}

#[tokio::test]
async fn vectors_arrive_over_rdma() -> Result<(), Failure> {
    let network = SimNetwork::new(1);
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    let [client, server] = [(); 2].map(|()| Rdma::simulated(&network, RdmaConfig::default()));
    let server = Server::builder().rdma(&server);
    check("rdma://127.0.0.1:0", "rdma", server, |it| it.rdma(&client)).await
}
