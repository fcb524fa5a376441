//! Firmware that is slow, or hangs, on a simulated device and on the simulation's clock: other
//! connections' calls take no longer, and a path whose queue pairs cannot be halted fails over.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use farcall::client::unary;
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::rdma::RkeyScope;
use farcall::sim::{SimDevice, SimNetwork, SimVerb};
use farcall::{
    CallKind, Channel, Code, Idempotency, MethodDescriptor, RdmaConfig, Request, Response, Server,
    Service, ServiceDescriptor, Status,
};
use farcall_suite::{OnLoopback, OneServer as _};
use rpc_core::client::ClientConfig;
use rpc_core::connect::UpgradePolicy;
use rpc_core::inproc::{InprocConnector, InprocListener};
use rpc_transport_rdma::sim::{SimCensus, lab};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

/// Of the simulation's time: far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(600);

/// Longer than a receive slot.
const LARGE_LEN: usize = 100_000;

/// Commands of every kind.
const COMMANDS: [SimVerb; 9] = [
    SimVerb::AllocateWindow,
    SimVerb::DeallocateWindow,
    SimVerb::CreateQueuePair,
    SimVerb::ModifyQueuePair,
    SimVerb::DestroyQueuePair,
    SimVerb::ModifyReceiveQueue,
    SimVerb::RegisterMemory,
    SimVerb::DeregisterMemory,
    SimVerb::Query,
];

const IDEMPOTENT: usize = 0;
const OTHER: usize = 1;

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "t.Commands",
    methods: &[
        MethodDescriptor::new("/t.Commands/Echo", CallKind::Unary, Idempotency::NoSideEffects),
        MethodDescriptor::new("/t.Commands/Change", CallKind::Unary, Idempotency::Unknown),
    ],
};

struct Echoing;

impl Service for Echoing {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        call.unary(async move |request: Request<Vec<u8>>| Ok(Response::new(request.into_inner())))
    }
}

async fn echo(channel: &Channel, method: usize, len: usize) -> Result<(), Status> {
    let request = Request::new(vec![7; len]);
    let reply = unary::<Vec<u8>, Vec<u8>>(channel, &SERVICE.methods[method], request).await?;
    assert_eq!(reply.into_inner(), vec![7; len]);
    Ok(())
}

/// A server and channels to it, over one device.
struct Rig {
    name: &'static str,
    network: SimNetwork,
    device: SimDevice,
    client: Arc<OnLoopback>,
    shutdown: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Rig {
    fn start(name: &'static str, rkey_scope: RkeyScope) -> Self {
        let network = SimNetwork::new(5);
        let device = network.add_device("sim0", &[[127, 0, 0, 1].into()]);
        let upgrade = || {
            let mut config = RdmaConfig::default();
            config.rkey_scope = rkey_scope;
            OnLoopback::new(&network, config)
        };
        let (server, client) = (upgrade(), upgrade());
        let listener = InprocListener::bind(name.to_owned()).unwrap();
        let server = Server::builder().upgrade(server).add_service(Echoing).build();
        let (shutdown, shut_down) = oneshot::channel::<()>();
        let serving = server.serve_incoming(listener);
        let serving = serving.with_graceful_shutdown(async { drop(shut_down.await) });
        let serving = tokio::spawn(async move { serving.await.unwrap() });
        Self { name, network, device, client, shutdown, serving }
    }

    async fn connect(&self) -> Channel {
        let policy = UpgradePolicy::Prefer(vec![Arc::clone(&self.client) as _]);
        let config = ClientConfig { policy, ..ClientConfig::default() };
        let channel: Channel =
            rpc_core::Channel::new(InprocConnector::new(self.name, config)).into();
        echo(&channel, IDEMPOTENT, 10).await.unwrap();
        assert_eq!(channel.info().unwrap().transport, "rdma");
        channel
    }

    /// Ends in order, after which nothing is left on the device.
    async fn end(self) {
        drop(self.shutdown);
        self.serving.await.unwrap();
        drop(self.client);
        let gone = async {
            while lab::census(&self.network) != SimCensus::default() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let ended = tokio::time::timeout(LIMIT, gone).await;
        assert!(ended.is_ok(), "left: {:?}", lab::census(&self.network));
        assert_eq!(self.network.violations(), []);
    }
}

/// The calls of one caller, one after another.
#[derive(Debug)]
struct Caller {
    method: usize,
    answered: u32,
    failed: u32,
    slowest: Duration,
}

/// Callers of both methods, with small and with large messages.
struct Load {
    stop: watch::Sender<bool>,
    callers: JoinSet<Caller>,
}

impl Load {
    fn start(channel: &Channel) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut callers = JoinSet::new();
        for caller in 0..16 {
            let (channel, stopped) = (channel.clone(), stopped.clone());
            let method = if caller % 2 == 0 { IDEMPOTENT } else { OTHER };
            let len = if caller % 4 < 2 { 10 } else { LARGE_LEN };
            callers.spawn(async move {
                let mut this = Caller { method, answered: 0, failed: 0, slowest: Duration::ZERO };
                while !*stopped.borrow() {
                    let at = Instant::now();
                    match echo(&channel, method, len).await {
                        Ok(()) => this.answered += 1,
                        Err(status) => {
                            assert_eq!(status.code(), Code::Unavailable, "{status}");
                            this.failed += 1;
                        }
                    }
                    this.slowest = this.slowest.max(at.elapsed());
                    sleep(Duration::from_millis(5)).await;
                }
                this
            });
        }
        Self { stop, callers }
    }

    async fn end(self) -> Vec<Caller> {
        self.stop.send_replace(true);
        self.callers.join_all().await
    }
}

fn p99(took: &mut [Duration]) -> Duration {
    took.sort();
    took[took.len() * 99 / 100]
}

#[tokio::test(start_paused = true)]
async fn small_calls_do_not_wait_for_windows_of_others() {
    let rig = Rig::start("commands-windows", RkeyScope::Window);
    rig.network.set_latency(Duration::ZERO..=Duration::ZERO);
    let (busy, quick) = (rig.connect().await, rig.connect().await);
    let delay = Duration::from_millis(20);
    rig.device.set_command_delay(SimVerb::AllocateWindow, delay);
    let before = Instant::now();
    let mut large = JoinSet::new();
    for _ in 0..40 {
        let busy = busy.clone();
        large.spawn(async move { echo(&busy, IDEMPOTENT, LARGE_LEN).await.unwrap() });
    }
    let mut took = Vec::new();
    while !large.is_empty() {
        let at = Instant::now();
        echo(&quick, IDEMPOTENT, 10).await.unwrap();
        took.push(at.elapsed());
        sleep(Duration::from_millis(1)).await;
        while let Some(ended) = large.try_join_next() {
            ended.unwrap();
        }
    }
    assert!(before.elapsed() >= delay, "windows take their time: {:?}", before.elapsed());
    assert!(took.len() >= 20 && p99(&mut took) < Duration::from_millis(1), "{took:?}");
    drop((busy, quick));
    rig.end().await;
}

/// The goal R17, for commands of every kind.
#[tokio::test(start_paused = true)]
async fn small_calls_do_not_wait_for_slow_firmware() {
    let rig = Rig::start("commands-slow", RkeyScope::Window);
    rig.network.set_latency(Duration::ZERO..=Duration::ZERO);
    let quick = rig.connect().await;
    let delay = Duration::from_millis(20);
    for verb in COMMANDS {
        rig.device.set_command_delay(verb, delay);
    }
    let (before, took) = (Instant::now(), RefCell::new(Vec::new()));
    let measured = async {
        loop {
            let at = Instant::now();
            echo(&quick, IDEMPOTENT, 10).await.unwrap();
            took.borrow_mut().push(at.elapsed());
            sleep(Duration::from_millis(1)).await;
        }
    };
    // Others come, make large calls and go, for which the device has commands of all kinds.
    let others = async {
        for _ in 0..4 {
            let busy = rig.connect().await;
            let calls = (0..8).map(|_| echo(&busy, IDEMPOTENT, LARGE_LEN));
            futures::future::try_join_all(calls).await.unwrap();
        }
    };
    tokio::select! {
        () = measured => {}
        () = others => {}
    }
    assert!(before.elapsed() >= 4 * delay, "commands take their time: {:?}", before.elapsed());
    let mut took = took.into_inner();
    assert!(took.len() >= 100 && p99(&mut took) < Duration::from_millis(1), "{took:?}");
    for verb in COMMANDS {
        rig.device.set_command_delay(verb, Duration::ZERO);
    }
    drop(quick);
    rig.end().await;
}

/// The goal S14.
#[tokio::test(start_paused = true)]
async fn a_port_that_blinks_under_load_fails_no_call() {
    for rkey_scope in [RkeyScope::Region, RkeyScope::Window] {
        let rig = Rig::start("commands-blink", rkey_scope);
        let channel = rig.connect().await;
        let load = Load::start(&channel);
        for _ in 0..10 {
            rig.device.flap(Duration::from_millis(100));
            sleep(Duration::from_millis(500)).await;
        }
        for caller in load.end().await {
            assert!(caller.answered > 20 && caller.failed == 0, "{caller:?}");
        }
        assert_eq!(channel.info().unwrap().transport, "rdma");
        drop(channel);
        rig.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_ends_over_firmware_that_hangs() {
    for rkey_scope in [RkeyScope::Region, RkeyScope::Window] {
        let rig = Rig::start("commands-hang", rkey_scope);
        let channel = rig.connect().await;
        let load = Load::start(&channel);
        sleep(Duration::from_millis(100)).await;
        let hold = rig.device.hang_firmware();
        rig.device.link_down();
        sleep(Duration::from_secs(2)).await;
        assert_eq!(channel.info().unwrap().transport, "inproc");
        for Caller { method, slowest, failed, .. } in load.end().await {
            assert!(slowest < Duration::from_secs(1), "a call took {slowest:?}");
            assert!(method == OTHER || failed == 0, "an idempotent call failed");
        }
        drop(channel);
        rig.device.link_up();
        drop(hold);
        rig.end().await;
    }
}
