//! The RDMA path dies under load while TCP between the same addresses lives: calls go on over TCP,
//! the idempotent ones that were lost are made once more, the others say that they may have been
//! executed, and when the path is whole the channel returns to it.
//!
//! Needs RDMA devices on a virtual cable, like those of the virtual machine that `cargo xtask test`
//! starts, and the right to make routing rules: one that drops what RoCE sends (UDP to port 4791)
//! where it comes in is a path that is dead, silently and for RDMA only. As in `tests/rdma.rs`,
//! `FARCALL_RDMA=required` says that devices are there and `FARCALL_RDMA_SERVER` is the address of
//! the server's.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use farcall::{
    Backoff, Channel, Code, MayHaveExecuted, Path, Rdma, RdmaConfig, Response, ServeError, Server,
    Status,
};
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::proto::{EchoReply, EchoRequest, ParkRequest, ProduceRequest};
use farcall_suite::{Probe, payload};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};

/// The bound on every wait. The devices may be emulated on emulated processors.
const LIMIT: Duration = Duration::from_secs(60);

/// Between two looks at a condition that nothing announces.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Soon enough that the test is, and otherwise as by default.
const BACKOFF: Backoff = Backoff::PATH.with_max_delay(Duration::from_secs(4));

/// Permits for every handler that waits.
const OPEN_GATE: usize = 1 << 20;

/// UDP by its number: its name stands in `/etc/protocols`, which a bare Debian does not have.
const UDP: &str = "17";

/// Tasks that call one idempotent method after the other, and as many that call another.
const TASK_COUNT: u64 = 4;

/// Calls that each task makes before the cut, and again after it, and again after the return.
const CALLS_A_PHASE: u64 = 20;

/// Number of times that the path dies.
const ROUND_COUNT: u64 = 3;

/// Drops what RoCE sends, where it comes in, until it is dropped itself.
struct Blackhole;

impl Blackhole {
    fn dig() -> Self {
        Self::rules("add");
        Self
    }

    fn rules(verb: &str) {
        for interface in ["v0", "v1"] {
            let rule = ["pref", "0", "iif", interface, "ipproto", UDP, "dport", "4791"];
            let text = [&["rule", verb], &rule[..], &["blackhole"]].concat();
            let output = Command::new("ip").args(&text).output().expect("the program `ip`");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "ip {}: {said}", text.join(" "));
        }
    }
}

impl Drop for Blackhole {
    fn drop(&mut self) {
        Self::rules("del");
    }
}

/// The results of the calls of one kind.
#[derive(Debug, Default)]
struct Tally {
    answered: AtomicU64,
    /// Calls that ended with the mark that they may have been executed.
    lost: AtomicU64,
    /// Every end of a call that was answered.
    ends: Mutex<Vec<Instant>>,
}

impl Tally {
    /// Counts the end of a call; a wrong answer or an unmarked failure ends the task.
    fn count(&self, ended: Result<Response<EchoReply>, Status>, expected: &Bytes) {
        match ended {
            Ok(reply) => {
                assert!(reply.into_inner().payload == *expected, "another call's answer");
                self.answered.fetch_add(1, Ordering::Relaxed);
                self.ends.lock().push(Instant::now());
            }
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                assert!(MayHaveExecuted::matches(&status), "{status:?}");
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The longest time without an answer between two moments.
    fn longest_gap(&self, from: Instant, to: Instant) -> Duration {
        let ends = self.ends.lock();
        let mut moments: Vec<_> =
            ends.iter().copied().filter(|at| (from..to).contains(at)).collect();
        moments.extend([from, to]);
        moments.sort_unstable();
        moments.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }
}

/// Every seventh call is large, so that some are being read by a device when the path dies.
fn len(call: u64) -> usize {
    if call % 7 == 6 { 256 << 10 } else { 1000 }
}

async fn call_idempotent(stub: ProbeStub, task: u64, tally: Arc<Tally>) {
    for call in 0.. {
        let (seed, len) = (task, len(call));
        let answer = Some(ProduceRequest { seed, len: len as u64 });
        let request = ParkRequest { tag: task, answer, ..Default::default() };
        tally.count(stub.wait(request).await, &payload(seed, len));
    }
}

async fn call_other(stub: ProbeStub, task: u64, tally: Arc<Tally>) {
    for call in 0.. {
        let sent = payload(task, len(call));
        let request = EchoRequest { payload: sent.clone(), ..Default::default() };
        tally.count(stub.echo(request).await, &sent);
    }
}

/// The devices of one side.
fn devices() -> Rdma {
    Rdma::new(RdmaConfig::default().with_allow_untrusted_reads(true))
}

/// A server, a channel that prefers RDMA, and load on it.
struct Rig {
    channel: Channel,
    idempotent: Arc<Tally>,
    other: Arc<Tally>,
    calls: JoinSet<()>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Rig {
    async fn start(host: &str) -> Self {
        let (probe, watch) = Probe::new();
        watch.open(OPEN_GATE);
        let builder = Server::builder().rdma(&devices()).add_service(ProbeService::new(probe));
        let listener = builder.bind(&format!("auto://{host}:0")).await.expect("a place to listen");
        let address = listener.local_address().to_string();
        let serving = tokio::spawn(listener.serve());
        // The client's own devices, as on another host.
        let channel = Channel::builder(&address)
            .expect("an address")
            .path_backoff(BACKOFF)
            .rdma(&devices())
            .connect()
            .await
            .expect("a connection");
        let stub = ProbeStub::new(channel.clone());
        let (idempotent, other) = (Arc::new(Tally::default()), Arc::new(Tally::default()));
        let mut calls = JoinSet::new();
        for task in 0..TASK_COUNT {
            calls.spawn(call_idempotent(stub.clone(), task, Arc::clone(&idempotent)));
            calls.spawn(call_other(stub.clone(), task, Arc::clone(&other)));
        }
        Self { channel, idempotent, other, calls, serving }
    }

    fn transport(&self) -> &'static str {
        self.channel.info().map_or("nothing", |info| info.transport)
    }

    /// Waits for a condition, unless a task of the load ends before.
    async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !holds(self) {
            if let Some(ended) = self.calls.try_join_next() {
                panic!("a call went wrong before {what}: {ended:?}");
            }
            assert!(started.elapsed() < LIMIT, "{what} did not happen: {:?}", self.channel.path());
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Waits until both kinds of calls have been answered many times more.
    async fn calls_go_on(&mut self, where_to: &str) {
        let more = TASK_COUNT * CALLS_A_PHASE;
        let before = (self.idempotent.answered(), self.other.answered());
        let what = format!("more calls over {where_to}");
        self.until(&what, |rig| {
            rig.idempotent.answered() >= before.0 + more && rig.other.answered() >= before.1 + more
        })
        .await;
    }

    /// Kills the path, watches the calls go on, and waits for the return.
    async fn round(&mut self, round: u64) {
        self.calls_go_on("RDMA").await;
        assert_eq!(self.transport(), "rdma");
        let lost_before = (self.idempotent.lost(), self.other.lost());
        let blackhole = Blackhole::dig();
        let cut = Instant::now();
        self.until("the failover", |rig| rig.transport() == "tcp").await;
        let moved = cut.elapsed();
        self.calls_go_on("TCP").await;
        let end = Instant::now();
        let gap = self.idempotent.longest_gap(cut, end).max(self.other.longest_gap(cut, end));
        let (path, counts) = (self.channel.path(), self.channel.path_counts());
        assert_eq!((counts.failovers, counts.failbacks), (round, round - 1), "{path:?}");
        let lost = (self.idempotent.lost() - lost_before.0, self.other.lost() - lost_before.1);
        println!(
            "round {round}: on TCP {moved:?} after the cut; the longest time without an answer \
             was {gap:?}; calls lost: {} idempotent, {} others, each marked; reason: {}",
            lost.0,
            lost.1,
            path.reason().unwrap_or_default(),
        );
        assert_eq!(lost.0, 0, "idempotent calls are made once more");
        assert!(lost.1 <= TASK_COUNT, "a task has one call in flight");
        drop(blackhole);
        let mended = Instant::now();
        self.until("the return", |rig| rig.transport() == "rdma").await;
        println!("round {round}: back on RDMA {:?} after the mending", mended.elapsed());
        self.calls_go_on("RDMA, again").await;
        assert_eq!(self.channel.path(), Path::Upgraded { transport: "rdma" });
        let counts = self.channel.path_counts();
        assert_eq!((counts.failovers, counts.failbacks), (round, round));
    }
}

/// `rdma://` has no other path: its calls fail, say why, and come back with the path.
async fn required(host: &str) {
    let (probe, _watch) = Probe::new();
    let builder = Server::builder().rdma(&devices()).add_service(ProbeService::new(probe));
    let listener = builder.bind(&format!("rdma://{host}:0")).await.expect("one");
    let address = listener.local_address().to_string();
    let serving = tokio::spawn(listener.serve());
    let channel = Channel::builder(&address)
        .expect("an address")
        .path_backoff(BACKOFF)
        .rdma(&devices())
        .connect()
        .await
        .expect("a connection");
    let stub = ProbeStub::new(channel.clone());
    let echo = async || {
        let call = stub.echo(EchoRequest::default());
        tokio::time::timeout(LIMIT, call).await.expect("a call ends")
    };
    echo().await.expect("the path is whole");
    let blackhole = Blackhole::dig();
    let lost = echo().await.expect_err("the path is dead");
    assert!(lost.code() == Code::Unavailable && MayHaveExecuted::matches(&lost), "{lost:?}");
    println!("required: the call in flight is told: {}", lost.message());
    let refused = echo().await.expect_err("the path is dead");
    assert!(refused.code() == Code::Unavailable && !MayHaveExecuted::matches(&refused));
    println!("required: the next one is told: {}", refused.message());
    // It is another attempt if time has come for one.
    for left in (0..10).rev() {
        let refused = echo().await.expect_err("the path is dead");
        println!("required: and the one after: {}", refused.message());
        if refused.message().contains("tries again in") {
            break;
        }
        assert!(left > 0, "{refused}");
    }
    drop(blackhole);
    let coming_back = async {
        while let Err(status) = echo().await {
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    tokio::time::timeout(LIMIT, coming_back).await.expect("the path comes back");
    let info = channel.info().expect("it is connected");
    assert_eq!((info.transport, channel.path_counts().failbacks), ("rdma", 1));
    serving.abort();
}

/// One after the other: there is one cable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_survive_the_death_of_their_path() {
    if std::env::var("FARCALL_RDMA").as_deref() != Ok("required") {
        println!("skipped: no RDMA device (FARCALL_RDMA is not set to `required`)");
        return;
    }
    if !std::path::Path::new("/sys/class/net/v0").exists() {
        println!("skipped: the devices are not on the virtual machine's cable");
        return;
    }
    let host = std::env::var("FARCALL_RDMA_SERVER").unwrap_or_else(|_| "10.0.1.1".to_owned());
    let mut rig = Rig::start(&host).await;
    for round in 1..=ROUND_COUNT {
        rig.round(round).await;
    }
    println!(
        "{} idempotent calls answered, {} lost; {} others answered, {} lost",
        rig.idempotent.answered(),
        rig.idempotent.lost(),
        rig.other.answered(),
        rig.other.lost(),
    );
    rig.calls.shutdown().await;
    rig.serving.abort();
    required(&host).await;
}
