//! A server, and a channel to it that prefers the detour.

use std::sync::Arc;
use std::time::Duration;

use farcall::{Backoff, Channel, Limits, Response, ServeError, Server, Status};
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::proto::{EchoReply, EchoRequest, ParkRequest};
use farcall_suite::{Probe, Watch, WatchEvent};
use rpc_core::client::ClientConfig;
use rpc_core::connect::UpgradePolicy;
use rpc_core::inproc::{InprocConnector, InprocListener};
use tokio::task::JoinHandle;

use crate::detour::Detour;

/// The bound on every wait, of a clock that stands still unless everybody waits.
const LIMIT: Duration = Duration::from_secs(100);

const LOOK_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) const BACKOFF: Backoff = Backoff::PATH;

/// The least first delay of them, and half of the greatest.
pub(crate) const DELAY: Duration = Duration::from_millis(200);

/// Calls that one channel makes once more at a time, at most.
pub(crate) const REPLAYS_MAX: u32 = 1024;

/// More calls on a connection than are made once more.
const LIMITS: Limits = Limits::DEFAULTS.with_max_calls(2 * REPLAYS_MAX);

type Call = JoinHandle<Result<Response<EchoReply>, Status>>;

pub(crate) struct Rig {
    pub(crate) detour: Detour,
    pub(crate) channel: Channel,
    pub(crate) stub: ProbeStub,
    pub(crate) served: Served,
    name: &'static str,
}

/// A server, until it is dropped.
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) watch: Watch,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Served {
    fn start(name: &'static str, detour: &Detour) -> Self {
        let listener = InprocListener::bind(name).expect("no other test has the name");
        let (probe, watch) = Probe::new();
        let builder = Server::builder().upgrade(Arc::new(detour.clone())).limits(LIMITS);
        let server = builder.add_service(ProbeService::new(probe)).build();
        let task = tokio::spawn(server.serve_incoming(listener));
        Self { server, watch, task }
    }

    /// Waits until handlers of these calls have begun, in any order. What ends meanwhile is the
    /// business of others.
    pub(crate) async fn entered(&mut self, tags: &[u64]) {
        let mut tags = tags.to_vec();
        let all = async {
            while !tags.is_empty() {
                if let WatchEvent::Entered(tag) = self.watch.next().await.expect("the server lives")
                {
                    let expected = tags.iter().position(|&expected| expected == tag);
                    tags.swap_remove(expected.unwrap_or_else(|| panic!("{tag} was not called")));
                }
            }
        };
        tokio::time::timeout(LIMIT, all).await.expect("the handlers begin");
    }
}

/// A channel that would like the detour.
pub(crate) fn prefer(detour: &Detour) -> UpgradePolicy {
    UpgradePolicy::Prefer(vec![Arc::new(detour.clone())])
}

/// A channel that goes nowhere without the detour.
pub(crate) fn require(detour: &Detour) -> UpgradePolicy {
    UpgradePolicy::Require(Arc::new(detour.clone()))
}

impl Rig {
    pub(crate) async fn start(name: &'static str, policy: fn(&Detour) -> UpgradePolicy) -> Self {
        let detour = Detour::default();
        let served = Served::start(name, &detour);
        let config = ClientConfig::with_settings(|settings| {
            settings.path_backoff = BACKOFF;
            settings.limits = LIMITS;
        });
        let config = ClientConfig { policy: policy(&detour), ..config };
        let channel = rpc_core::Channel::connect(InprocConnector::new(name, config)).await;
        let channel = Channel::from(channel.expect("the server is there"));
        let stub = ProbeStub::new(channel.clone());
        let rig = Self { detour, channel, stub, served, name };
        assert_eq!(rig.transport(), "detour");
        rig
    }

    /// Returns the transport of the present connection.
    pub(crate) fn transport(&self) -> &'static str {
        self.channel.info().map_or("nothing", |info| info.transport)
    }

    pub(crate) async fn echo(&self) -> Result<(), Status> {
        self.stub.echo(EchoRequest::default()).await.map(drop)
    }

    /// Cuts the detour, and makes a call that has to go on without it.
    pub(crate) async fn fail_over(&self) {
        self.detour.cut();
        self.echo().await.expect("the bootstrap is whole");
        assert_eq!(self.transport(), "inproc");
    }

    /// Starts a call that is idempotent and waits in its handler.
    pub(crate) fn wait(&self, tag: u64) -> Call {
        let stub = self.stub.clone();
        tokio::spawn(async move { stub.wait(ParkRequest { tag, ..Default::default() }).await })
    }

    /// Starts a call that is not idempotent and waits in its handler.
    pub(crate) fn park(&self, tag: u64) -> Call {
        let stub = self.stub.clone();
        tokio::spawn(async move { stub.park(ParkRequest { tag, ..Default::default() }).await })
    }

    /// Ends the server and all its connections at once, without a word.
    pub(crate) async fn kill_server(&mut self) {
        self.served.task.abort();
        let ended = (&mut self.served.task).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it was still serving");
    }

    /// Puts another server in the place of one that was killed.
    pub(crate) fn start_server(&mut self) {
        self.served = Served::start(self.name, &self.detour);
    }

    /// Waits for a condition that nothing announces.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let looking = async {
            while !holds(self) {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        let looked = tokio::time::timeout(LIMIT, looking).await;
        looked.unwrap_or_else(|_| panic!("{what} did not happen within {LIMIT:?}"));
    }

    /// Returns the numbers of failures and of returns of the detour.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let counts = self.channel.path_counts();
        (counts.failovers, counts.failbacks)
    }

    /// Returns the time until the next attempt over the detour.
    pub(crate) fn next_attempt(&self) -> Duration {
        self.channel.path().retry_in().expect("the detour is not in use")
    }
}

/// The end of a call that was started.
pub(crate) async fn end(call: Call) -> Result<(), Status> {
    let ended = tokio::time::timeout(LIMIT, call).await.expect("a call ends");
    ended.expect("no panic").map(drop)
}
