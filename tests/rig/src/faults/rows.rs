//! The rows of the matrix: each fault, how long it stays, and what it may do to calls.
//!
//! Bounds are for an emulated processor that many workers share; what they are made of stands
//! beside them. A call over a silent path ends when keepalive finds the peer gone, twice the
//! interval and the timeout, 8 s here, and a queue pair that does not drain may take 5 s more.

use std::time::Duration;

use super::column::Column;
use super::counters::Counter;
use super::fault::Fault;
use super::rule::{Fails, Rule};

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Description, in one line.
    pub(super) what: &'static str,
    pub(super) scene: Scene,
    /// Set for the short ones that every build runs.
    pub(super) is_quick: bool,
}

/// The setting that shows a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scene {
    /// One machine with both devices.
    Here(Plan),
    /// Two machines, since on one of them both ends of a link know that it is down, and every
    /// process's end is told to its peers.
    TwoHosts(Plan),
    /// It cannot be shown on Soft-RoCE, and why.
    Impossible(&'static str),
}

/// A fault and what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) fault: Fault,
    /// Duration of the fault.
    pub(super) hold: Duration,
    pub(super) tcp: Rule,
    pub(super) auto: Rule,
    pub(super) rdma: Rule,
    /// Minimum counts of the kernel meanwhile. Without them there was no fault.
    pub(super) evidence: &'static [(Counter, u64)],
}

impl Plan {
    pub(super) fn rule(&self, column: Column) -> &Rule {
        match column {
            Column::Tcp => &self.tcp,
            Column::Auto => &self.auto,
            Column::Rdma => &self.rdma,
        }
    }

    const fn alike(fault: Fault, hold: Duration, rule: Rule) -> Self {
        Self { fault, hold, tcp: rule, auto: rule, rdma: rule, evidence: &[] }
    }

    /// The same for a device whose driver loses messages that the network delays or loses. farcall
    /// declines such a device by default. The rows use it, and their connections over RDMA end as
    /// they do when the path is gone; still no byte is wrong.
    pub(super) fn with_defect(self) -> Self {
        match self.fault {
            Fault::Netem(_) => Self { auto: MOVED, rdma: DEFECTIVE, ..self },
            _ => self,
        }
    }

    const fn showing(self, evidence: &'static [(Counter, u64)]) -> Self {
        Self { evidence, ..self }
    }
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A fault that the transport rides over. Lost packets are sent again after 200 ms, 400 ms and so
/// on by TCP, after 67 ms and more by the device; several in a row may be lost.
const RIDDEN: Rule = Rule {
    fails: Fails::Never,
    longest: seconds(8),
    goes_on: None,
    again: seconds(8),
    home: seconds(1),
};

/// A server that is gone, which the socket's end says at once.
const GONE: Rule = Rule {
    fails: Fails::Must,
    longest: seconds(5),
    goes_on: None,
    again: seconds(5),
    home: seconds(5),
};

/// A peer of which nothing is heard: 8 s until it is found, 5 s for the queue pair, and as much
/// again for what waits in line. Reconnecting, an attempt that began under the fault may have to
/// end first.
const SILENT: Rule = Rule {
    fails: Fails::Must,
    longest: seconds(18),
    goes_on: None,
    again: seconds(10),
    home: seconds(30),
};

/// Only the path over RDMA is silent: the queue pair gives up after half a second by itself, and
/// the calls go on over the byte stream that is still there. The path is tried again with backoff.
const MOVED: Rule = Rule {
    fails: Fails::May,
    longest: seconds(6),
    goes_on: Some(seconds(6)),
    again: seconds(6),
    home: seconds(40),
};

/// A path that ends, again and again, for as long as the network does that to it.
const DEFECTIVE: Rule = Rule { fails: Fails::May, ..SILENT };

/// All rows, in the order in which they are shown.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "nothing",
        what: "no fault, for comparison",
        scene: Scene::Here(Plan::alike(Fault::Nothing, seconds(3), RIDDEN)),
        is_quick: false,
    },
    Row {
        name: "server-killed",
        what: "kill -9 of the server; another one in its place after 2 s",
        scene: Scene::Here(Plan::alike(Fault::KillServer, seconds(2), GONE)),
        is_quick: true,
    },
    Row {
        name: "server-restarted",
        what: "the server goes in order; another one in its place after 2 s",
        scene: Scene::Here(Plan::alike(
            Fault::RestartServer,
            seconds(2),
            Rule { fails: Fails::MustUnseen, ..GONE },
        )),
        is_quick: false,
    },
    Row {
        name: "server-stopped",
        what: "SIGSTOP of the server for 14 s: only keepalive finds that",
        scene: Scene::Here(Plan::alike(Fault::StopServer, seconds(14), SILENT)),
        is_quick: false,
    },
    Row {
        name: "client-killed",
        what: "kill -9 of another client amid its calls: ours go on, nothing of it is left",
        scene: Scene::Here(Plan::alike(Fault::KillClient, seconds(2), RIDDEN)),
        is_quick: true,
    },
    Row {
        name: "link-down",
        what: "the cable is pulled for 12 s, and both ends know it",
        scene: Scene::Here(Plan::alike(Fault::LinkDown, seconds(12), SILENT)),
        is_quick: false,
    },
    Row {
        name: "link-flap",
        what: "the cable is pulled for 0.2 s: TCP rides over it, a queue pair may not",
        scene: Scene::Here(Plan {
            auto: Rule { again: seconds(10), home: seconds(40), ..MOVED },
            rdma: Rule { fails: Fails::May, ..SILENT },
            ..Plan::alike(Fault::LinkDown, Duration::from_millis(200), RIDDEN)
        }),
        is_quick: false,
    },
    Row {
        name: "loss-0.1",
        what: "0.1 % of all packets are lost",
        scene: Scene::Here(
            Plan::alike(Fault::Netem("loss 0.1%"), seconds(8), RIDDEN)
                .showing(&[(Counter::Lost, 1), EMULATED]),
        ),
        is_quick: false,
    },
    Row {
        name: "loss-1",
        what: "1 % of all packets are lost",
        scene: Scene::Here(Plan::alike(Fault::Netem("loss 1%"), seconds(6), RIDDEN).showing(LOSS)),
        is_quick: true,
    },
    Row {
        name: "loss-5",
        what: "5 % of all packets are lost",
        scene: Scene::Here(Plan::alike(Fault::Netem("loss 5%"), seconds(6), RIDDEN).showing(LOSS)),
        is_quick: false,
    },
    Row {
        name: "delay",
        what: "every packet takes 20 ms longer, each way",
        scene: Scene::Here(
            Plan::alike(Fault::Netem("delay 20ms"), seconds(6), RIDDEN).showing(&[EMULATED]),
        ),
        is_quick: false,
    },
    Row {
        name: "reorder",
        what: "a quarter of all packets overtake those that take 5 ms longer",
        scene: Scene::Here(
            Plan::alike(Fault::Netem("delay 5ms reorder 25% 50%"), seconds(6), RIDDEN).showing(&[
                (Counter::RdmaDisordered, 10),
                (Counter::TcpDisordered, 10),
                EMULATED,
            ]),
        ),
        is_quick: false,
    },
    Row {
        name: "duplicate",
        what: "every tenth packet comes twice",
        scene: Scene::Here(
            Plan::alike(Fault::Netem("duplicate 10%"), seconds(6), RIDDEN).showing(&[
                (Counter::RdmaTwice, 100),
                (Counter::TcpTwice, 50),
                EMULATED,
            ]),
        ),
        is_quick: false,
    },
    Row {
        name: "corrupt",
        what: "a bit of 1 % of all packets is flipped",
        scene: Scene::Here(Plan::alike(Fault::Netem("corrupt 1%"), seconds(6), RIDDEN).showing(&[
            (Counter::TcpCorrupt, 1),
            (Counter::RdmaSentAgain, 20),
            EMULATED,
        ])),
        is_quick: false,
    },
    Row {
        name: "rdma-blackhole",
        what: "packets of RDMA disappear for 8 s, TCP's do not: `auto` moves to TCP, and back",
        scene: Scene::Here(Plan {
            auto: MOVED,
            rdma: SILENT,
            ..Plan::alike(Fault::RdmaBlackhole, seconds(8), RIDDEN)
        }),
        is_quick: true,
    },
    Row {
        name: "device-removed",
        what: "the server's device is removed under its connections, and added again after 5 s",
        scene: Scene::Here(Plan {
            auto: MOVED,
            rdma: SILENT,
            ..Plan::alike(Fault::RemoveDevice, seconds(5), RIDDEN)
        }),
        is_quick: false,
    },
    Row {
        name: "device-lost",
        what: "a device is gone under queue pairs that live",
        scene: Scene::Impossible(
            "Soft-RoCE's driver cannot take a device from those who use it: the kernel waits for \
             them, and their queue pairs go on. The simulated device shows it",
        ),
        is_quick: false,
    },
    Row {
        name: "far-link-down",
        what: "the other machine's link is down for 14 s, and nothing says so here",
        scene: Scene::TwoHosts(Plan::alike(Fault::FarLinkDown, seconds(14), SILENT)),
        is_quick: false,
    },
    Row {
        name: "far-host-reborn",
        what: "the other machine is silent for 3 s, and comes back with another server",
        scene: Scene::TwoHosts(Plan::alike(Fault::FarHostReborn, seconds(3), SILENT)),
        is_quick: false,
    },
];

/// A network that is emulated has to have had something to do: thousands of packets a second are
/// usual.
const EMULATED: (Counter, u64) = (Counter::Emulated, 1000);

const LOSS: &[(Counter, u64)] =
    &[(Counter::Lost, 20), (Counter::TcpSentAgain, 10), (Counter::RdmaSentAgain, 20), EMULATED];
