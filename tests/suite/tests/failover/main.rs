//! A channel's behavior when the upgraded path under its connection dies: over a path that the test
//! can cut, on a clock that the test owns.

mod detour;
#[path = "../log/mod.rs"]
mod log;
mod rig;

use std::time::Duration;

use detour::{CUT, PROOF_LIMIT};
use farcall::{Code, MayHaveExecuted, NotExecuted, Path};
use farcall_suite::OneServer as _;
use farcall_suite::proto::ParkRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;
use log::Log;
use rig::{BACKOFF, DELAY, REPLAYS_MAX, Rig, end, prefer, require};
use rpc_core::client::ClientConfig;
use rpc_core::inproc::InprocConnector;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn calls_go_on_over_the_bootstrap_and_say_what_became_of_them() {
    let (log, _capturing) = Log::capture();
    let mut rig = Rig::start("failover-calls", prefer).await;
    let (idempotent, other) = (rig.wait(1), rig.park(3));
    let stub = rig.stub.clone();
    let follow = ParkRequest { tag: 2, ..Default::default() };
    let stream = tokio::spawn(async move { stub.follow(follow).await });
    rig.served.entered(&[1, 2, 3]).await;
    let cut_at = Instant::now();
    rig.detour.cut();
    let lost = end(other).await.expect_err("the server is gone");
    assert_eq!(lost.code(), Code::Unavailable);
    assert!(lost.message().contains(CUT), "{lost}");
    assert!(MayHaveExecuted::matches(&lost) && !NotExecuted::matches(&lost), "{lost:?}");
    rig.served.entered(&[1, 2]).await;
    assert!(cut_at.elapsed() < Duration::from_secs(1), "{:?}", cut_at.elapsed());
    rig.served.watch.open(2);
    end(idempotent).await.expect("it was made once more");
    let stream = stream.await.expect("no panic").expect("it was made once more");
    let message = stream.into_inner().message().await.expect("its message");
    assert!(message.is_some());

    let info = rig.channel.info().expect("it is connected");
    assert_eq!((info.transport, info.is_upgraded), ("inproc", false));
    assert!(info.fallback.is_some_and(|reason| reason.contains(CUT)));
    let path = rig.channel.path();
    assert_eq!(rig.counts(), (1, 0));
    let Path::Broken { transport: Some("inproc"), reason, retry_in } = path else {
        panic!("{path:?}");
    };
    assert!(reason.contains(CUT) && retry_in <= 2 * DELAY, "{reason}, {retry_in:?}");
    rig.echo().await.expect("calls go on");
    let mut lines = log.take_lines();
    lines.retain(|line| !line.contains("farcall::call"));
    let [line] = &lines[..] else { panic!("one change, one line: {lines:#?}") };
    assert!(line.contains("WARN") && line.contains(CUT), "{line}");
}

#[tokio::test(start_paused = true)]
async fn failback_ends_the_old_connection_with_its_last_call() {
    let mut rig = Rig::start("failover-return", prefer).await;
    rig.fail_over().await;
    let call = rig.park(1);
    rig.served.entered(&[1]).await;
    rig.detour.mend();
    rig.until("the return", |rig| rig.counts().1 == 1).await;
    assert_eq!(rig.transport(), "detour");
    assert_eq!(rig.channel.path(), Path::Upgraded { transport: "detour" });
    assert_eq!(rig.counts(), (1, 1));
    assert_eq!(rig.channel.info().and_then(|info| info.fallback), None);
    rig.echo().await.expect("the path is proven");
    let mut transports: Vec<_> =
        rig.served.server.connections().iter().map(|info| info.transport).collect();
    transports.sort_unstable();
    assert_eq!(transports, ["detour", "inproc"], "the call in flight keeps its connection");
    rig.served.watch.open(1);
    end(call).await.expect("it was left alone");
    rig.until("the end of the other", |rig| rig.served.server.connections().len() == 1).await;
    rig.echo().await.expect("calls go on");
}

#[tokio::test(start_paused = true)]
async fn a_dead_path_is_tried_about_once_a_minute() {
    let rig = Rig::start("failover-dead", prefer).await;
    rig.fail_over().await;
    let before = rig.detour.offers();
    for _ in 0..60 {
        sleep(Duration::from_secs(60)).await;
        rig.echo().await.expect("calls are not disturbed");
    }
    let attempts = rig.detour.offers() - before;
    // Delays of 60 to 120 s and proofs of 3 s, and up to nine attempts before the longest delay.
    assert!((25..=70).contains(&attempts), "{attempts} attempts in an hour");
    assert_eq!(rig.counts(), (1, 0));
    let path = rig.channel.path();
    assert!(path.reason().is_some_and(|reason| reason.contains("no answer")), "{path}");
}

#[tokio::test(start_paused = true)]
async fn a_path_that_dies_again_soon_is_trusted_later_and_later() {
    let rig = Rig::start("failover-flapping", prefer).await;
    for round in 0..5 {
        rig.fail_over().await;
        let longer = DELAY * 2u32.pow(round);
        let wait = rig.next_attempt();
        assert!(wait <= 2 * longer && wait >= longer - Duration::from_millis(50), "{wait:?}");
        rig.detour.mend();
        rig.until("the return", |rig| rig.transport() == "detour").await;
    }
    sleep(BACKOFF.healthy_after).await;
    rig.fail_over().await;
    assert!(rig.next_attempt() <= 2 * DELAY, "a healthy period begins anew");
    assert_eq!(rig.counts(), (6, 5));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_required_is_waited_for() {
    let mut rig = Rig::start("failover-required", require).await;
    rig.detour.cut();
    let tried = rig.echo().await.expect_err("there is no other path");
    assert_eq!(tried.code(), Code::Unavailable);
    assert!(tried.message().contains("no answer") && NotExecuted::matches(&tried), "{tried}");
    let failed_at = Instant::now();
    let waiting = rig.echo().await.expect_err("it is not tried yet");
    assert_eq!(
        failed_at.elapsed(),
        Duration::ZERO,
        "no call waits for a path that has just failed"
    );
    assert_eq!(waiting.code(), Code::Unavailable);
    let text = waiting.message();
    assert!(text.contains("no answer") && text.contains("tries again in"), "{waiting}");
    assert!(NotExecuted::matches(&waiting));
    assert_eq!(rig.served.server.connections().len(), 0, "nothing goes elsewhere");
    rig.detour.mend();
    sleep(rig.next_attempt()).await;
    rig.echo().await.expect("the path is back");
    assert_eq!((rig.transport(), rig.counts()), ("detour", (1, 1)));
    assert!(rig.served.watch.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_required_path_that_was_healthy_is_replaced_at_once() {
    let rig = Rig::start("failover-replaced", require).await;
    rig.detour.cut();
    rig.until("the end of the connection", |rig| rig.channel.info().is_none()).await;
    rig.detour.mend();
    let started = Instant::now();
    rig.echo().await.expect("another path is there");
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(rig.counts(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn no_call_waits_for_an_attempt() {
    let mut rig = Rig::start("failover-first", prefer).await;
    rig.fail_over().await;
    rig.until("an attempt", |rig| rig.detour.proving() == 1).await;
    rig.kill_server().await;
    rig.start_server();
    rig.until("the end of the connection", |rig| rig.channel.info().is_none()).await;
    assert_eq!(rig.detour.proving(), 1, "the attempt is still under way");
    let started = Instant::now();
    rig.echo().await.expect("the new server answers");
    assert!(started.elapsed() < PROOF_LIMIT / 10, "{:?}", started.elapsed());
    assert_eq!(rig.transport(), "inproc");
    rig.detour.mend();
    rig.until("the return", |rig| rig.transport() == "detour").await;
}

#[tokio::test(start_paused = true)]
async fn a_channel_may_replay_so_many_calls() {
    let mut rig = Rig::start("failover-budget", prefer).await;
    let tags: Vec<u64> = (0..=u64::from(REPLAYS_MAX)).collect();
    let calls: Vec<_> = tags.iter().map(|tag| rig.wait(*tag)).collect();
    rig.served.entered(&tags).await;
    rig.detour.cut();
    rig.served.watch.open(2 * REPLAYS_MAX as usize);
    let mut failures = Vec::new();
    for call in calls {
        failures.extend(end(call).await.err());
    }
    let [status] = &failures[..] else { panic!("one of all: {failures:?}") };
    assert!(MayHaveExecuted::matches(status), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_replayed_once() {
    let mut rig = Rig::start("failover-once", prefer).await;
    let call = rig.wait(1);
    rig.served.entered(&[1]).await;
    rig.detour.cut();
    rig.served.entered(&[1]).await;
    rig.kill_server().await;
    rig.start_server();
    let status = end(call).await.expect_err("it has been replayed before");
    assert!(MayHaveExecuted::matches(&status), "{status:?}");
    rig.echo().await.expect("the new server answers");
    assert!(rig.served.watch.try_next().is_none(), "no call has reached it");
}

#[tokio::test(start_paused = true)]
async fn a_replay_without_a_server_stays_ambiguous() {
    let mut rig = Rig::start("failover-no-server", prefer).await;
    let call = rig.wait(1);
    rig.served.entered(&[1]).await;
    rig.kill_server().await;
    let status = end(call).await.expect_err("there is no server");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(MayHaveExecuted::matches(&status) && !NotExecuted::matches(&status), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_under_layers_are_replayed_too() {
    let mut rig = Rig::start("failover-layers", prefer).await;
    let layered = rig.channel.clone().layer(tower::layer::util::Identity::new());
    let stub = ProbeStub::new(layered);
    let request = ParkRequest { tag: 1, ..Default::default() };
    let call = tokio::spawn(async move { stub.wait(request).await });
    rig.served.entered(&[1]).await;
    rig.detour.cut();
    rig.served.entered(&[1]).await;
    rig.served.watch.open(1);
    end(call).await.expect("it was made once more");
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_is_dropped_tries_nothing_any_more() {
    let mut rig = Rig::start("failover-dropped", prefer).await;
    rig.fail_over().await;
    rig.until("an attempt", |rig| rig.detour.proving() == 1).await;
    let Rig { detour, channel, stub, served, .. } = &mut rig;
    let offers = detour.offers();
    let elsewhere = InprocConnector::new("failover-no-server", ClientConfig::default());
    let elsewhere = farcall::Channel::from(rpc_core::Channel::new(elsewhere));
    *stub = ProbeStub::new(elsewhere.clone());
    *channel = elsewhere;
    tokio::task::yield_now().await;
    assert_eq!(detour.proving(), 0, "the attempt was given up");
    sleep(Duration::from_secs(600)).await;
    assert_eq!((detour.offers(), served.server.connections().len()), (offers, 0));
}
