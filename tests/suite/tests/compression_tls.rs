//! Compressed messages over TLS: what crosses the network, and what bounds them there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farcall::tls::{ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use farcall::{Channel, Code, Compression, Server};
use farcall_suite::OneServer as _;
use farcall_suite::Probe;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_testkit::certificates::{Authority, Leaf, Wanted};
use futures::stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// TLS of both sides, by an authority of the test's own.
fn tls() -> Result<(ServerTls, ClientTls), Failure> {
    let authority = Authority::new("compression")?;
    let Leaf { cert, key } = authority.issue(Wanted::named("127.0.0.1"))?;
    let config = ServerTlsConfig::new(Pem::bytes(cert), Pem::bytes(key));
    let client = ClientTlsConfig::default().with_ca(Pem::bytes(authority.pem()));
    Ok((ServerTls::new(config)?, ClientTls::new(client)?))
}

/// A relay before a server, which counts what crosses the network in both directions.
struct Relay {
    address: String,
    passed: Arc<AtomicU64>,
    _task: AbortOnDropHandle<()>,
}

impl Relay {
    async fn to(server: String) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("tcp://{}", listener.local_addr()?);
        let passed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&passed);
        let task = tokio::spawn(async move {
            // One connection: that of the channel.
            let Ok((client, _)) = listener.accept().await else { return };
            let Ok(server) = TcpStream::connect(server).await else { return };
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            tokio::join!(
                pass(from_client, to_server, &count),
                pass(from_server, to_client, &count)
            );
        });
        Ok(Self { address, passed, _task: AbortOnDropHandle::new(task) })
    }
}

/// Passes bytes on until either end has gone.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, count: &AtomicU64) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes).await {
        count.fetch_add(len as u64, Ordering::SeqCst);
        if to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}

struct Serving {
    relay: Relay,
    tls: ClientTls,
    _task: AbortOnDropHandle<()>,
}

impl Serving {
    async fn with(
        service: impl FnOnce(ProbeService<Probe>) -> ProbeService<Probe>,
    ) -> Result<Self, Failure> {
        let (server, tls) = tls()?;
        let service = service(ProbeService::new(Probe::new().0));
        let builder = Server::builder().add_service(service).compression(Compression::ON);
        let listener = builder.tls(&server).bind("tcp://127.0.0.1:0").await?;
        let address = listener.local_address().to_string();
        let task = tokio::spawn(async move { drop(listener.serve().await) });
        let relay = Relay::to(address.replace("tcp://", "")).await?;
        Ok(Self { relay, tls, _task: AbortOnDropHandle::new(task) })
    }

    async fn channel(&self, compression: Compression) -> Result<Channel, Failure> {
        let builder = Channel::builder(&self.relay.address)?.tls(&self.tls);
        Ok(builder.compression(compression).connect().await?)
    }

    /// Returns the result of `call` and the bytes that crossed the network meanwhile.
    async fn passed<T>(&self, call: impl Future<Output = T>) -> (T, u64) {
        let before = self.relay.passed.load(Ordering::SeqCst);
        let done = call.await;
        (done, self.relay.passed.load(Ordering::SeqCst) - before)
    }
}

fn request(payload: Vec<u8>) -> EchoRequest {
    EchoRequest { payload: payload.into(), ..EchoRequest::default() }
}

#[tokio::test]
async fn compressed_messages_cross_tls_in_fewer_bytes() -> Result<(), Failure> {
    let text = "what a service says again and again, ".repeat(2000).into_bytes();
    let len = text.len() as u64;
    for (compression, is_short) in [(Compression::ON, true), (Compression::OFF, false)] {
        let serving = Serving::with(|it| it).await?;
        let channel = serving.channel(compression).await?;
        let info = channel.info().ok_or("it is connected")?;
        assert_eq!((info.sends_compressed, info.accepts_compressed), (true, is_short));
        let stub = ProbeStub::new(channel);
        let (reply, passed) = serving.passed(stub.echo(request(text.clone()))).await;
        assert_eq!(reply?.into_inner().payload, text);
        assert_eq!(passed < len / 10, is_short, "{passed} bytes of {len} each way");
        let (replies, passed) = serving
            .passed(async {
                let requests = stream::iter([text.clone(), text.clone()].map(request));
                let mut replies = stub.chat(requests).await?.into_inner();
                let mut count = 0;
                while let Some(reply) = replies.message().await? {
                    assert_eq!(reply.payload, text);
                    count += 1;
                }
                Ok::<_, farcall::Status>(count)
            })
            .await;
        assert_eq!(replies?, 2);
        assert_eq!(passed < len / 5, is_short, "{passed} bytes of {len}, twice each way");
    }
    Ok(())
}

/// The limit of a service or a stub is not known to the peer, which sends what is over it.
#[tokio::test]
async fn what_a_message_may_grow_to_holds_over_tls() -> Result<(), Failure> {
    const LIMIT: usize = 100_000;
    let serving = Serving::with(|it| it.max_decoding_message_len(LIMIT)).await?;
    let stub = ProbeStub::new(serving.channel(Compression::ON).await?);
    let (refused, passed) = serving.passed(stub.echo(request(vec![0; 2 * LIMIT]))).await;
    let status = refused.expect_err("it grows over the limit");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("over the service's limit of 100000"), "{status}");
    assert!(passed < 5000, "it crossed the network compressed: {passed} bytes");
    assert_eq!(stub.echo(request(vec![0; LIMIT / 2])).await?.into_inner().payload.len(), LIMIT / 2);
    // The other direction.
    let serving = Serving::with(|it| it).await?;
    let stub = ProbeStub::new(serving.channel(Compression::ON).await?);
    let stub = stub.max_decoding_message_len(LIMIT);
    let (refused, passed) = serving.passed(stub.echo(request(vec![0; 2 * LIMIT]))).await;
    let status = refused.expect_err("it grows over the limit");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("over the stub's limit of 100000"), "{status}");
    assert!(passed < 5000, "{passed} bytes");
    Ok(())
}
