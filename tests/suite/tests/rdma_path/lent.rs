//! Payloads in memory that farcall lent are never copied, and others once.

use bytes::Bytes;
use farcall::{Channel, TransportStats};
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::proto::{EchoRequest, ParkRequest, ProduceRequest};
use farcall_suite::{Failure, payload};
use futures::stream;

use crate::rig::{LIMIT, Rig, Serving, connect, devices, echo, is_idle, until};

const LEN: usize = 2 << 20;
const CALLS: u64 = 3;

/// Bytes that a call may copy besides its payload: headers, keys, releases, the small frame of the
/// other direction.
const EXTRA_MAX: u64 = 512 * CALLS;

/// Bytes that farcall wrote or copied while something ran.
#[derive(Debug, Clone, Copy)]
struct Copied {
    client: u64,
    server: u64,
}

struct Lent {
    server: Serving,
    channel: Channel,
    stub: ProbeStub,
}

impl Lent {
    async fn new(rig: &Rig) -> Result<Self, Failure> {
        let server = rig.serve(Default::default()).await?;
        let channel = connect(&server.authority, &devices(Default::default())).await?;
        let stub = ProbeStub::new(channel.clone());
        // The server knows of its connection when it has answered a call.
        echo(&stub, 0, 64).await?;
        Ok(Self { server, channel, stub })
    }

    fn counted(&self) -> Copied {
        let of = |stats: TransportStats| stats.written_bytes + stats.copied_bytes;
        let client = self.channel.info().expect("it is connected").stats;
        Copied { client: of(client), server: of(self.server.connection().stats) }
    }

    async fn copied_by(
        &self,
        what: &str,
        calls: impl Future<Output = Result<(), Failure>>,
    ) -> Result<Copied, Failure> {
        let before = self.counted();
        calls.await?;
        let after = self.counted();
        let (client, server) = (after.client - before.client, after.server - before.server);
        println!(
            "{CALLS} {what} of {LEN} bytes: {client} bytes by the client, {server} by the server"
        );
        Ok(Copied { client, server })
    }

    /// The payload of that seed in memory that was lent.
    async fn filled(&self, seed: u64) -> Bytes {
        let mut buffer = self.channel.buffer(LEN).await;
        assert!(buffer.is_registered());
        buffer.copy_from_slice(&payload(seed, LEN));
        buffer.freeze()
    }

    async fn is_idle_again(&self) {
        until("the memory's return", || is_idle(&self.server.lane(), 1)).await;
    }
}

pub(crate) fn sent_from_where_it_lies(rig: &Rig) -> Result<(), Failure> {
    let whole = CALLS * LEN as u64;
    rig.run(async {
        let lent = Lent::new(rig).await?;
        let plain = lent.copied_by("uploads of plain memory", async {
            for seed in 0..CALLS {
                lent.stub
                    .park(ParkRequest { payload: payload(seed, LEN), ..Default::default() })
                    .await?;
            }
            Ok(())
        });
        let plain = plain.await?;
        assert!((whole..whole + EXTRA_MAX).contains(&plain.client), "{plain:?}");
        let uploads = lent.copied_by("uploads of lent memory", async {
            for seed in 0..CALLS {
                let payload = lent.filled(seed).await;
                lent.stub.park(ParkRequest { payload, ..Default::default() }).await?;
            }
            Ok(())
        });
        let uploads = uploads.await?;
        assert!(uploads.client < EXTRA_MAX && uploads.server < EXTRA_MAX, "{uploads:?}");
        let downloads = lent.copied_by("downloads of lent memory", async {
            for seed in 0..CALLS {
                let request = ProduceRequest { seed, len: LEN as u64 };
                let reply = lent.stub.lend(request).await?.into_inner();
                assert!(reply.payload == payload(seed, LEN), "seed {seed}");
            }
            Ok(())
        });
        let downloads = downloads.await?;
        assert!(downloads.client < EXTRA_MAX && downloads.server < EXTRA_MAX, "{downloads:?}");
        let echo = lent.copied_by("echoes of slices of lent memory", async {
            for seed in 0..CALLS {
                let whole = lent.filled(seed).await;
                let request = EchoRequest { payload: whole.slice(5..), tail: whole.slice(..5) };
                let reply = lent.stub.echo(request).await?.into_inner();
                assert!(reply.payload == whole[5..] && reply.tail == whole[..5], "seed {seed}");
            }
            Ok(())
        });
        let echo = echo.await?;
        assert!(echo.client < EXTRA_MAX, "{echo:?}");
        lent.is_idle_again().await;
        Ok(())
    })
}

pub(crate) fn streamed_from_where_it_lies(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let lent = Lent::new(rig).await?;
        let mut messages = Vec::new();
        for seed in 0..CALLS {
            let payload = lent.filled(seed).await;
            messages.push(EchoRequest { payload, ..Default::default() });
        }
        let plain = messages.iter().map(|message| {
            let payload = Bytes::copy_from_slice(&message.payload);
            EchoRequest { payload, ..Default::default() }
        });
        let plain: Vec<_> = plain.collect();
        let expected = lent.stub.upload(stream::iter(plain)).await?.into_inner();
        let copied = lent.copied_by("streamed messages", async {
            let upload = lent.stub.upload(stream::iter(messages));
            let reply = tokio::time::timeout(LIMIT, upload).await.expect("it ends")?;
            assert_eq!(reply.into_inner(), expected);
            Ok(())
        });
        let copied = copied.await?;
        assert!(copied.client < EXTRA_MAX && copied.server < EXTRA_MAX, "{copied:?}");
        Ok(())
    })
}
