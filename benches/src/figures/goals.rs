//! The goals: every figure by its number, with the least that may be shipped and what is aimed at.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The place where the figures of a group are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// TCP over loopback, on the host.
    Tcp,
    /// RDMA devices, on a host that has them or in the virtual machine.
    Rdma,
    /// Many connections over TCP on the host, and many more simulated ones.
    Scale,
    /// Many connections over RDMA devices.
    ScaleRdma,
}

impl Group {
    /// Returns true if the group needs RDMA devices.
    #[must_use]
    pub fn is_on_devices(self) -> bool {
        matches!(self, Self::Rdma | Self::ScaleRdma)
    }
}

/// The direction in which values are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Latencies, costs, memory.
    Lower,
    /// Rates.
    Higher,
}

/// One figure that is to be measured.
#[derive(Debug)]
pub struct Goal {
    /// Its number, such as `T2`.
    pub number: &'static str,
    /// Group that it is measured with.
    pub group: Group,
    /// Title, in one line.
    pub title: &'static str,
    /// Parts, each with a value and a goal of its own.
    pub parts: &'static [PartGoal],
}

/// One value of a figure, and what it should be.
#[derive(Debug)]
pub struct PartGoal {
    /// Name of the part among the figure's parts. Empty for the only one.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: &'static str,
    /// Direction in which values are better.
    pub better: Better,
    /// The least that may be shipped.
    pub ship: f64,
    /// The aim.
    pub aim: f64,
}

impl Goal {
    /// The part called `name`.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&'static PartGoal> {
        self.parts.iter().find(|part| part.name == name)
    }
}

/// The goal with this number, in any case of letters.
#[must_use]
pub fn goal(number: &str) -> Option<&'static Goal> {
    GOALS.iter().find(|goal| goal.number.eq_ignore_ascii_case(number))
}

use Better::{Higher, Lower};
use Group::{Rdma, Scale, ScaleRdma, Tcp};

/// All of them, in the order in which they are measured and shown.
pub const GOALS: &[Goal] = &[
    tcp(
        "T1",
        "p50 of a 64 B call, 1 in flight, both processes on one core",
        &[part("", "ratio to std", Lower, 1.35, 1.15)],
    ),
    tcp(
        "T2",
        "CPU per 64 B call, both processes, 64 in flight on 1 connection",
        &[part("", "ratio to tonic", Lower, 1.0 / 6.0, 1.0 / 15.0)],
    ),
    tcp(
        "T3",
        "64 B calls/s, 256 in flight on 1 connection",
        &[
            part("over tonic", "ratio to tonic", Higher, 8.0, 20.0),
            part("over tarpc", "ratio to tarpc", Higher, 2.5, 6.0),
        ],
    ),
    tcp(
        "T4",
        "bytes/s of large messages, one at a time",
        &[
            part("upload 1 MiB", "ratio to std", Higher, 0.8, 1.0),
            part("upload 64 MiB", "ratio to std", Higher, 0.8, 1.0),
            part("download 1 MiB", "ratio to std", Higher, 0.8, 1.0),
            part("download 64 MiB", "ratio to std", Higher, 0.8, 1.0),
        ],
    ),
    tcp(
        "T5",
        "messages/s of a stream of 1 KiB from the server",
        &[part("", "ratio to tonic", Higher, 1.2, 2.0)],
    ),
    tcp("T6", "the server's memory for an idle connection", &[part("", "KiB", Lower, 16.0, 8.0)]),
    tcp(
        "T7",
        "heap allocations of a 64 B call without metadata, both processes",
        &[part("", "allocations", Lower, 8.0, 6.0)],
    ),
    tcp(
        "T8",
        "p99 of a 64 B call while 64 MiB messages share its connection",
        &[
            part("a thread a core", "ratio to the same without them", Lower, 3.0, 1.5),
            part("a thread a process", "ratio to the same without them", Lower, 3.0, 1.5),
        ],
    ),
    tcp(
        "T10",
        "CPU per 64 B call, both processes, 64 in flight, with a thread a core",
        &[
            part("one runtime", "ratio to a thread a process", Lower, 2.1, 1.2),
            part("a runtime a core", "ratio to a thread a process", Lower, 1.4, 1.2),
        ],
    ),
    tcp(
        "T11",
        "messages/s of a stream of 1 KiB from the server, beside the bare echo",
        &[part("", "ratio to mux", Higher, 0.61, 1.0)],
    ),
    tcp(
        "T12",
        "p99 of a 64 B call, 256 in flight on 1 connection",
        &[part("", "ratio to mux", Lower, 5.0, 1.5)],
    ),
    tcp(
        "T13",
        "CPU per 64 B call of tonic's client, both processes, 64 in flight on 1 connection",
        &[
            part("over a farcall channel", "ratio to tonic", Lower, 0.5, 0.3),
            part("at farcall's port", "ratio to tonic", Lower, 1.5, 1.15),
        ],
    ),
    tcp(
        "T14",
        "TLS",
        &[
            part("bytes/s of uploads of 64 MiB", "ratio to rustls over std", Higher, 0.7, 0.9),
            part("p50 of a 64 B call", "ratio to the same without TLS", Lower, 1.6, 1.3),
        ],
    ),
    tcp(
        "T15",
        "the server's memory for an idle gRPC connection",
        &[part("", "KiB", Lower, 26.0, 20.0)],
    ),
    tcp(
        "T16",
        "bytes/s of uploads of 1 MiB in `Vec<u8>` fields, one at a time",
        &[
            part("beside one `Bytes` for all", "ratio to it", Higher, 0.47, 0.9),
            part("beside a `Bytes` for each", "ratio to it", Higher, 0.7, 1.0),
        ],
    ),
    rdma(
        "R1",
        "p50 of a 64 B call, polling",
        &[part("", "ratio to twice ib_send_lat", Lower, 1.6, 1.25)],
    ),
    rdma(
        "R2",
        "p50 of a 64 B call, waiting for events",
        &[part("", "ratio to twice ib_send_lat -e", Lower, 2.0, 1.4)],
    ),
    rdma(
        "R3",
        "bytes/s of large calls, 4 in flight",
        &[
            part("1 MiB", "ratio to ib_read_bw", Higher, 0.80, 0.95),
            part("8 MiB", "ratio to ib_read_bw", Higher, 0.80, 0.95),
        ],
    ),
    rdma(
        "R4",
        "bytes/s of 8 MiB calls, one at a time",
        &[part("", "ratio to ib_read_bw", Higher, 0.70, 0.90)],
    ),
    rdma(
        "R5",
        "64 B calls/s, 64 in flight",
        &[part("", "ratio to half of ib_send_bw's messages/s", Higher, 0.40, 0.80)],
    ),
    rdma(
        "R6",
        "system calls of a 64 B call, 16 in flight",
        &[
            part("client", "system calls", Lower, 2.0, 0.5),
            part("server", "system calls", Lower, 2.0, 0.5),
        ],
    ),
    rdma(
        "R7",
        "against UCX active messages",
        &[
            part("64 B p50", "ratio to UCX", Lower, 1.0, 0.95),
            part("1 MiB rate", "ratio to UCX", Higher, 1.0, 1.05),
        ],
    ),
    rdma(
        "R8",
        "time of a 1 MiB call with a key of its own",
        &[part("", "ratio to a key for the region", Lower, 1.3, 1.1)],
    ),
    rdma(
        "R9",
        "copies of a large payload, by either side",
        &[part("client", "copies", Lower, 1.0, 0.0), part("server", "copies", Lower, 1.0, 0.0)],
    ),
    rdma(
        "R10",
        "receive memory of 256 idle connections",
        &[
            part("of the same depth", "ratio to a receive queue each", Lower, 0.25, 0.05),
            part("of a full window", "ratio to a receive queue each", Lower, 0.25, 0.05),
        ],
    ),
    rdma(
        "R11",
        "an idle connected pair that waits for events",
        &[
            part("processor time", "% of a core", Lower, 1.0, 0.1),
            // Once a second on either side is far below one percent.
            part("wake-ups", "in 5 s", Lower, 10.0, 0.0),
        ],
    ),
    goal_of(
        Scale,
        "C1",
        "64 B calls over TCP, 64 in flight over many connections",
        &[
            part("1: calls/s", "ratio to tonic", Higher, 1.5, 3.0),
            part("1: CPU", "ratio to tonic", Lower, 0.67, 0.33),
            part("1: p99", "ratio to tonic", Lower, 1.0, 0.5),
            part("16: calls/s", "ratio to tonic", Higher, 1.5, 3.0),
            part("16: CPU", "ratio to tonic", Lower, 0.67, 0.33),
            part("16: p99", "ratio to tonic", Lower, 1.0, 0.5),
            part("256: calls/s", "ratio to tonic", Higher, 1.5, 3.0),
            part("256: CPU", "ratio to tonic", Lower, 0.67, 0.33),
            part("256: p99", "ratio to tonic", Lower, 1.0, 0.5),
            part("1000: calls/s", "ratio to tonic", Higher, 1.5, 3.0),
            part("1000: CPU", "ratio to tonic", Lower, 0.67, 0.33),
            part("1000: p99", "ratio to tonic", Lower, 1.0, 0.5),
        ],
    ),
    goal_of(
        Scale,
        "C2",
        "many idle connections over TCP",
        &[
            part("256: memory of the server", "KiB each", Lower, 16.0, 8.0),
            part("1000: memory of the server", "KiB each", Lower, 16.0, 8.0),
            // A thousand of them, with nothing to do but keepalive.
            part("1000: processor time", "% of a core", Lower, 1.0, 0.1),
        ],
    ),
    goal_of(Scale, "C3", "32 clients upload at once over TCP", INCAST),
    goal_of(
        Scale,
        "C4",
        "simulated connections over usual lanes, a tenth greedy, three tenths active",
        &[
            part("1000: receive memory", "ratio to a queue each", Lower, 0.25, 0.05),
            part("1000: fairness", "Jain's index", Higher, 0.9, 0.95),
            part("1000: a newcomer's wait", "ratio to the model", Lower, 1.5, 1.0),
            part("10000: receive memory", "ratio to a queue each", Lower, 0.25, 0.05),
            part("10000: fairness", "Jain's index", Higher, 0.9, 0.95),
            part("10000: a newcomer's wait", "ratio to the model", Lower, 1.5, 1.0),
            part("100000: receive memory", "ratio to a queue each", Lower, 0.25, 0.05),
            part("100000: fairness", "Jain's index", Higher, 0.9, 0.95),
            part("100000: a newcomer's wait", "ratio to the model", Lower, 1.5, 1.0),
        ],
    ),
    goal_of(
        ScaleRdma,
        "C5",
        "64 B calls over RDMA, 64 in flight over many connections",
        &[
            part("1: calls/s", "ratio to tonic over TCP", Higher, 1.5, 3.0),
            part("1: p99", "ratio to tonic over TCP", Lower, 1.0, 0.5),
            part("16: calls/s", "ratio to tonic over TCP", Higher, 1.5, 3.0),
            part("16: p99", "ratio to tonic over TCP", Lower, 1.0, 0.5),
            part("64: calls/s", "ratio to tonic over TCP", Higher, 1.5, 3.0),
            part("64: p99", "ratio to tonic over TCP", Lower, 1.0, 0.5),
            part("256: calls/s", "ratio to tonic over TCP", Higher, 1.5, 3.0),
            part("256: p99", "ratio to tonic over TCP", Lower, 1.0, 0.5),
        ],
    ),
    goal_of(
        ScaleRdma,
        "C6",
        "320 connections to lanes that hold 256",
        &[
            part("calls/s", "ratio to 256 connections", Higher, 0.5, 0.8),
            // Of one lane with all its connections.
            part("receive memory", "ratio to 1 connection", Lower, 1.0, 1.0),
            // A queue pair's own buffers, and what any connection takes.
            part("memory of the server", "KiB each", Lower, 128.0, 64.0),
        ],
    ),
    goal_of(ScaleRdma, "C7", "32 clients upload at once over RDMA", INCAST),
];

/// Limits on what many large messages at once do: to each other, to small ones, and to memory.
const INCAST: &[PartGoal] = &[
    part("1 MiB: goodput", "ratio to 1 client", Higher, 0.8, 1.0),
    part("1 MiB: fairness", "Jain's index", Higher, 0.9, 0.95),
    part("1 MiB: p99 beside", "ratio to the peer's", Lower, 1.0, 0.5),
    part("1 MiB: server's memory", "ratio to what is in flight", Lower, 2.0, 1.25),
    part("8 MiB: goodput", "ratio to 1 client", Higher, 0.8, 1.0),
    part("8 MiB: fairness", "Jain's index", Higher, 0.9, 0.95),
    part("8 MiB: p99 beside", "ratio to the peer's", Lower, 1.0, 0.5),
    part("8 MiB: server's memory", "ratio to what is in flight", Lower, 2.0, 1.25),
];

const fn tcp(number: &'static str, title: &'static str, parts: &'static [PartGoal]) -> Goal {
    goal_of(Tcp, number, title, parts)
}

const fn rdma(number: &'static str, title: &'static str, parts: &'static [PartGoal]) -> Goal {
    goal_of(Rdma, number, title, parts)
}

const fn goal_of(
    group: Group,
    number: &'static str,
    title: &'static str,
    parts: &'static [PartGoal],
) -> Goal {
    Goal { number, group, title, parts }
}

const fn part(
    name: &'static str,
    unit: &'static str,
    better: Better,
    ship: f64,
    aim: f64,
) -> PartGoal {
    PartGoal { name, unit, better, ship, aim }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_there_once_and_found() {
        let numbers: Vec<&str> = GOALS.iter().map(|goal| goal.number).collect();
        // T9 counts instructions, which the budgets do.
        let expected: Vec<String> = (1..=16)
            .filter(|&number| number != 9)
            .map(|number| format!("T{number}"))
            .chain((1..=11).map(|number| format!("R{number}")))
            .chain((1..=7).map(|number| format!("C{number}")))
            .collect();
        assert_eq!(numbers, expected);
        assert_eq!(goal("t3").map(|goal| goal.number), Some("T3"));
        assert!(goal("T9").is_none());
    }

    #[test]
    fn the_aim_is_never_behind_what_may_be_shipped() {
        for part in GOALS.iter().flat_map(|goal| goal.parts) {
            match part.better {
                Lower => assert!(part.aim <= part.ship),
                Higher => assert!(part.aim >= part.ship),
            }
        }
    }

    #[test]
    fn parts_of_a_figure_have_names_that_differ() {
        for goal in GOALS {
            let mut names: Vec<&str> = goal.parts.iter().map(|part| part.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), goal.parts.len(), "{}", goal.number);
            assert!(goal.parts.len() == 1 || names.iter().all(|name| !name.is_empty()));
        }
    }
}
