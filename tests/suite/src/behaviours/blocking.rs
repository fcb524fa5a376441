//! Handlers that block the thread that polls them.

use std::ops::Range;
use std::time::Duration;

use farcall::Keepalive;
use futures::future::try_join_all;
use futures::stream;

use super::echo::echo;
use crate::OneServer as _;
use crate::failure::check_eq;
use crate::harness::running::Running;
use crate::payload::{check_payload, payload};
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{DownloadRequest, EchoReply, EchoRequest, ParkRequest, ProduceRequest};
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

/// Short enough to be seen many times within a test. Its end is never waited for: a connection that
/// is read answers in time on any machine.
const KEEPALIVE: Keepalive =
    Keepalive::for_tests(Duration::from_millis(5), Duration::from_secs(20));

/// Pings in a row that leave no doubt.
const PING_COUNT: u64 = 20;

/// Calls on each side of the one that blocks, which mostly arrive with it.
const NEIGHBOUR_COUNT: u64 = 8;

fn parked(tag: u64) -> ParkRequest {
    let answer = Some(ProduceRequest { seed: tag, len: 1000 });
    ParkRequest { tag, answer, ..Default::default() }
}

fn check_parked(tag: u64, reply: &EchoReply) -> Result<(), Failure> {
    check_payload("the answer of a call", &reply.payload, &payload(tag, 1000))
}

pub(super) async fn a_handler_that_blocks_holds_up_no_other_call(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let stub = server.stub().await?;
    echo(&stub, 0, 100).await?;
    let blocked = tokio::spawn({
        let stub = stub.clone();
        async move { stub.block(parked(1)).await }
    });
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    // Calls that are answered in place, large ones, those that wait, and streams.
    for seed in 2..6 {
        server.within("a small call", echo(&stub, seed, 100)).await??;
    }
    server.within("a large call", echo(&stub, 6, 1 << 20)).await??;
    let waits = tokio::spawn({
        let stub = stub.clone();
        async move { stub.park(parked(7)).await }
    });
    check_eq("another handler", &server.event().await?, &WatchEvent::Entered(7))?;
    server.watch().open(1);
    check_parked(7, &server.within("a call that waits", waits).await???.into_inner())?;
    check_eq("its end", &server.event().await?, &WatchEvent::Answered(7))?;
    server.within("a stream each way", converse(&stub)).await??;
    check_eq("an event of the call that blocks", &server.watch().try_next(), &None)?;
    server.watch().unblock();
    check_parked(1, &server.within("the call that blocked", blocked).await???.into_inner())?;
    check_eq("the connections", &server.connections().len(), &1)?;
    echo(&stub, 8, 100).await
}

/// Sends some messages and reads them again, then a stream of the server's.
async fn converse(stub: &ProbeStub) -> Result<(), Failure> {
    let message = |seed| EchoRequest { payload: payload(seed, 300), ..Default::default() };
    let mut replies = stub.chat(stream::iter((1..50).map(message))).await?.into_inner();
    for seed in 1..50 {
        let reply = replies.message().await?.unwrap_or_default();
        check_payload("a message", &reply.payload, &payload(seed, 300))?;
    }
    let messages = (1..50).map(|seed| ProduceRequest { seed, len: 70_000 }).collect();
    let request = DownloadRequest { messages, ..Default::default() };
    let mut replies = stub.download(request).await?.into_inner();
    for seed in 1..50 {
        let reply = replies.message().await?.unwrap_or_default();
        check_payload("a large message", &reply.payload, &payload(seed, 70_000))?;
    }
    Ok(())
}

/// They mostly come with the same read or poll as the call that blocks, before it and behind it.
pub(super) async fn calls_that_arrive_with_one_that_blocks_are_answered(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let stub = server.stub().await?;
    echo(&stub, 0, 100).await?;
    let mut blocked = Box::pin(stub.block(parked(1)));
    let neighbours = |tags: Range<u64>| try_join_all(tags.map(|tag| neighbour(&stub, tag)));
    let begin = async {
        // It waits for its answer further below.
        let _ = futures::poll!(blocked.as_mut());
        Ok(())
    };
    let let_in = async {
        // All that wait have become tasks, and the one that blocks has begun.
        for _ in 0..=2 * NEIGHBOUR_COUNT {
            server.event().await?;
        }
        (0..2 * NEIGHBOUR_COUNT).for_each(|_| server.watch().open(1));
        Ok(())
    };
    let (first, last) = (2..2 + NEIGHBOUR_COUNT, 100..100 + NEIGHBOUR_COUNT);
    // In one task, so that all requests are made before any of them is answered.
    let all = async { futures::try_join!(neighbours(first), begin, neighbours(last), let_in) };
    harness.within("the neighbours", all).await??;
    server.watch().unblock();
    check_parked(1, &server.within("the call that blocked", blocked).await??.into_inner())?;
    check_eq("the connections", &server.connections().len(), &1)
}

/// A call that is answered in place, and one that becomes a task.
async fn neighbour(stub: &ProbeStub, tag: u64) -> Result<(), Failure> {
    let (echoed, parked_reply) =
        futures::future::join(echo(stub, tag, 100), stub.park(parked(tag))).await;
    echoed?;
    check_parked(tag, &parked_reply?.into_inner())
}

/// The pings of both sides are answered meanwhile.
pub(super) async fn a_connection_is_kept_alive_while_a_handler_blocks(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve_by(|builder| builder.keepalive(KEEPALIVE)).await?;
    let channel = server.channel_kept_alive(KEEPALIVE).await?;
    let stub = ProbeStub::new(channel.clone());
    let blocked = tokio::spawn({
        let stub = stub.clone();
        async move { stub.block(parked(1)).await }
    });
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    let received = |running: &Running| {
        let stats = running.connections().into_iter().map(|info| info.stats).next();
        stats.unwrap_or_default().small_received
    };
    let answers = || channel.info().map(|info| info.stats.small_received).unwrap_or_default();
    let before = (answers(), received(&server));
    let answered = |running: &Running| {
        answers() >= before.0 + PING_COUNT && received(running) >= before.1 + PING_COUNT
    };
    server.until("pings and their answers", answered).await?;
    check_eq("an event of the call that blocks", &server.watch().try_next(), &None)?;
    server.watch().unblock();
    check_parked(1, &server.within("the call that blocked", blocked).await???.into_inner())?;
    check_eq("the connections", &server.connections().len(), &1)
}
