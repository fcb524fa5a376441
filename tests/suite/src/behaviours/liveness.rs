//! Connections that are kept alive, and those that end although nothing is wrong with them.

use std::time::Duration;

use farcall::{Code, Keepalive, NotExecuted};

use super::echo::echo;
use crate::OneServer as _;
use crate::failure::{check, check_eq, refused};
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{EchoRequest, ParkRequest, ProduceRequest};
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

/// Short enough to be seen many times within a test, and patient enough for a busy machine.
const KEEPALIVE: Keepalive =
    Keepalive::for_tests(Duration::from_millis(5), Duration::from_secs(20));

/// Pings in a row that leave no doubt.
const PING_COUNT: u64 = 20;

pub(super) async fn pings_keep_an_idle_connection_alive(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let channel = server.channel_kept_alive(KEEPALIVE).await?;
    let stub = ProbeStub::new(channel.clone());
    echo(&stub, 1, 100).await?;
    let stats = || channel.info().map(|info| info.stats).unwrap_or_default();
    let before = stats();
    let answered = |_: &_| {
        let now = stats();
        now.sent_count >= before.sent_count + PING_COUNT
            && now.received_bytes >= before.received_bytes + PING_COUNT
    };
    server.until("the pings and their answers", answered).await?;
    check_eq("the connections", &server.connections().len(), &1)?;
    echo(&stub, 2, 100).await
}

/// The server's handler has the call all the time: only the pings say that both are there.
pub(super) async fn pings_keep_a_connection_alive_while_a_handler_is_slow(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let channel = server.channel_kept_alive(KEEPALIVE).await?;
    let stub = ProbeStub::new(channel.clone());
    let call = {
        let answer = Some(ProduceRequest { seed: 1, len: 1000 });
        let request = ParkRequest { tag: 1, answer, ..Default::default() };
        let stub = stub.clone();
        tokio::spawn(async move { stub.park(request).await })
    };
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    let sent = || channel.info().map(|info| info.stats.sent_count).unwrap_or_default();
    let before = sent();
    server.until("the pings", |_| sent() >= before + PING_COUNT).await?;
    server.watch().open(1);
    check_eq("the length", &call.await??.into_inner().payload.len(), &1000)
}

pub(super) async fn an_idle_connection_ends_and_the_next_call_makes_another(
    harness: &Harness,
) -> Result<(), Failure> {
    let idle = Duration::from_millis(300);
    let server = harness.serve_by(|builder| builder.idle_timeout(idle)).await?;
    let channel = server.channel().await?;
    let stub = ProbeStub::new(channel.clone());
    for seed in 0..3 {
        echo(&stub, seed, 100).await?;
        server.until("the end of the idle connection", |_| channel.info().is_none()).await?;
        server.until("its end at the server", |server| server.connections().is_empty()).await?;
    }
    Ok(())
}

/// A call in flight is no idleness, however long it takes.
pub(super) async fn a_connection_with_a_call_in_flight_is_not_idle(
    harness: &Harness,
) -> Result<(), Failure> {
    let idle = Duration::from_millis(200);
    let mut server = harness.serve_by(|builder| builder.idle_timeout(idle)).await?;
    let channel = server.channel_kept_alive(KEEPALIVE).await?;
    let stub = ProbeStub::new(channel.clone());
    let request = ParkRequest { tag: 1, ..Default::default() };
    let call = tokio::spawn(async move { stub.park(request).await });
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    let sent = || channel.info().map(|info| info.stats.sent_count).unwrap_or_default();
    let before = sent();
    // The pings of the client count the time; the connection would be gone long before the last.
    server.until("many idle timeouts", |_| sent() >= before + 3 * PING_COUNT).await?;
    server.watch().open(1);
    call.await??;
    Ok(())
}

/// Connections reach their greatest age all the time, and no caller notices.
pub(super) async fn an_old_connection_is_replaced_without_an_error(
    harness: &Harness,
) -> Result<(), Failure> {
    // Longer than an emulated device takes to connect and call.
    let age = Duration::from_millis(400);
    let server = harness.serve_by(|builder| builder.max_connection_age(age)).await?;
    let channel = server.channel().await?;
    let stub = ProbeStub::new(channel.clone());
    let mut replaced_count = 0;
    let mut last_stats = channel.info().map(|info| info.stats).unwrap_or_default();
    let calling = async {
        for seed in 0.. {
            echo(&stub, seed, 100).await?;
            let stats = channel.info().map(|info| info.stats).unwrap_or_default();
            // A new connection has sent less than the one before it.
            replaced_count += u32::from(stats.sent_count < last_stats.sent_count);
            last_stats = stats;
            if replaced_count == 5 {
                break;
            }
        }
        Ok(())
    };
    server.within("five replacements", calling).await?
}

/// A call in flight when the connection reaches its age goes on there for as long as it takes.
pub(super) async fn a_call_outlives_the_age_of_its_connection(
    harness: &Harness,
) -> Result<(), Failure> {
    // Longer than an emulated device takes to connect and call.
    let age = Duration::from_millis(400);
    let mut server = harness.serve_by(|builder| builder.max_connection_age(age)).await?;
    let channel = server.channel().await?;
    let stub = ProbeStub::new(channel.clone());
    let call = {
        let stub = stub.clone();
        let answer = Some(ProduceRequest { seed: 1, len: 1000 });
        let request = ParkRequest { tag: 1, answer, ..Default::default() };
        tokio::spawn(async move { stub.park(request).await })
    };
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    server.until("the server's word", |_| channel.info().is_none()).await?;
    echo(&stub, 2, 100).await?;
    check_eq("an event of the call in flight", &server.watch().try_next(), &None)?;
    server.watch().open(1);
    check_eq("the length", &call.await??.into_inner().payload.len(), &1000)
}

pub(super) async fn a_call_over_the_limit_of_the_server_is_shed(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve_by(|builder| builder.max_calls(2)).await?;
    // The limit is that of both connections together.
    let (one, other) = (server.stub().await?, server.stub().await?);
    let mut calls = Vec::new();
    for (tag, stub) in [(1, &one), (2, &other)] {
        let stub = stub.clone();
        let request = ParkRequest { tag, ..Default::default() };
        calls.push(tokio::spawn(async move { stub.park(request).await }));
        check_eq("the handler", &server.event().await?, &WatchEvent::Entered(tag))?;
    }
    for len in [100, 1 << 20] {
        let request = EchoRequest { payload: vec![0; len].into(), ..Default::default() };
        let status = refused("a call too many", one.echo(request).await)?;
        check_eq("its code", &status.code(), &Code::ResourceExhausted)?;
        check(status.message().contains("server.max_calls"), "its message", &status)?;
        check(NotExecuted::matches(&status), "a call that was not executed", &status)?;
    }
    server.watch().open(2);
    for call in calls {
        call.await??;
    }
    echo(&one, 1, 100).await?;
    echo(&other, 2, 1 << 20).await
}
