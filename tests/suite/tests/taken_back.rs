//! A large request over TCP that is given up while it waits behind another is never sent: its
//! cancel would go before it, and the server would run a call that no caller waits for.

use std::time::Duration;

use farcall::{ChannelBuilder, Limits};
use farcall_suite::OneServer as _;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeStub, SERVICE};
use farcall_suite::raw_peer::{RawPeer, hello_with, record};
use futures::FutureExt as _;
use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN};
use tokio::net::TcpListener;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const LIMIT: Duration = Duration::from_secs(60);

/// Longer than what the two kernels take for a peer that does not read.
const BLOCKING_LEN: usize = 100 << 20;

const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const NEXT: u8 = 3;
const RECEIPT: u8 = 4;

/// The length of a frame's length, in a first piece.
const FRAME_LEN_LEN: usize = 8;

fn request(len: usize) -> EchoRequest {
    EchoRequest { payload: vec![7; len].into(), ..Default::default() }
}

/// Returns the calls of the large frames that the client began, and those of its cancels, until it
/// has sent all of its first large frame and cancelled the other.
async fn read(server: &mut RawPeer) -> Result<(Vec<u64>, Vec<u64>), Failure> {
    let (mut begun, mut cancelled) = (Vec::new(), Vec::new());
    let (mut first, mut missing, mut read) = (None, u64::MAX, 0_u64);
    while missing > 0 || cancelled.is_empty() {
        let (kind, transfer, body) = server.read_record().await?;
        let frame = match kind {
            FIRST => {
                let (len, frame) = body.split_at(FRAME_LEN_LEN);
                let header = frame.first_chunk::<HEADER_LEN>().expect("a header is not cut");
                begun.push(FrameHeader::parse(header)?.call);
                if first.is_none() {
                    first = Some(transfer);
                    missing = u64::from_le_bytes(len.try_into()?);
                }
                frame
            }
            NEXT => &body[..],
            WHOLE => {
                let header = FrameHeader::parse_whole(&body)?;
                if header.kind == FrameKind::Cancel {
                    cancelled.push(header.call);
                }
                continue;
            }
            kind => panic!("a record of kind {kind}"),
        };
        if first == Some(transfer) {
            missing -= frame.len() as u64;
        }
        read += frame.len() as u64;
        server.send(&record(RECEIPT, 0, &read.to_le_bytes())).await?;
    }
    Ok((begun, cancelled))
}

#[tokio::test]
async fn a_large_request_that_is_given_up_while_it_waits_is_not_sent() -> Result<(), Failure> {
    let limits = Limits::default().with_max_message_len(128 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("tcp://{}", listener.local_addr()?).parse()?;
    let channel = ChannelBuilder::new(address)
        .limits(limits)
        .keepalive(farcall::Keepalive::off())
        .connect_lazy();
    let stub = ProbeStub::new(channel.clone());
    let blocking = stub.clone();
    let blocking = tokio::spawn(async move { blocking.echo(request(BLOCKING_LEN)).await });
    let (stream, _) = listener.accept().await?;
    let mut server = RawPeer::new(stream);
    server.read_hello().await?;
    let paths = SERVICE.methods.iter().map(|method| method.path.to_owned());
    server.send(&hello_with(&limits, paths.collect())).await?;
    let sent = || channel.info().map_or(0, |info| info.stats.large_sent);
    let blocked = async {
        while sent() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, blocked).await?;
    // It is polled once, which queues it, and dropped.
    assert!(stub.echo(request(1 << 20)).now_or_never().is_none());
    let (begun, cancelled) = tokio::time::timeout(LIMIT, read(&mut server)).await??;
    assert_eq!((begun.len(), cancelled.len()), (1, 1));
    assert_ne!(begun, cancelled);
    blocking.abort();
    Ok(())
}
