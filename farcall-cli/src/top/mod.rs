//! `farcall top`: what servers are doing, by the service for operators.
//!
//! Figures are those of the time between two looks; at the first look they are those since the
//! server's start. On a terminal each table takes the place of the one before.

mod fallbacks;
mod sums;

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};

use farcall::server::admin_api::{
    Bucket, FailedCall, Method, SERVICE, Snapshot, SnapshotRequest, quantile,
};
use farcall::{Channel, Code, Status, client};
use serde::Serialize;

use self::fallbacks::Fallbacks;
use self::sums::{by_name, short, sum};
use crate::args::{Global, TopArgs};
use crate::failure::{Failure, code_name};
use crate::output::{self, Output};
use crate::target;

/// Maximum length of a server's answer if the flags set none, in bytes.
const ANSWER_LEN_MAX: u64 = 1 << 20;

/// Transports of a server that are shown.
const TRANSPORTS_MAX: usize = 8;

/// Moves the cursor to the upper left corner, and clears what is below it.
const HOME: &str = "\x1b[H\x1b[J";

/// Calls of operators themselves, which are left out.
const OWN: [&str; 2] = ["/farcall.admin.v1.", "/grpc.channelz.v1."];

const COLUMNS: [&str; 12] = [
    "server",
    "connections",
    "fallbacks",
    "#calls/s",
    "#p50/p99 us",
    "#running",
    "#credits",
    "#recv slots",
    "#queued",
    "#RSS",
    "#budget",
    "last failure",
];

/// A server, and the counts at the last look.
struct Watched {
    name: String,
    channel: Channel,
    last: Option<Counts>,
}

/// Counts since a server's start.
#[derive(Debug, Clone, Default)]
struct Counts {
    uptime_ms: u64,
    calls: u64,
    /// Of unary calls, by the bound of their time in microseconds.
    latency: BTreeMap<u64, u64>,
}

/// A row of the table.
#[derive(Debug, Serialize)]
struct Row {
    server: String,
    connections: BTreeMap<String, u64>,
    #[serde(flatten)]
    fallbacks: Fallbacks,
    calls_per_second: f64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    running: u64,
    /// Fewest credits of a connection over RDMA.
    credits: Option<u64>,
    receive_slots_promised: u64,
    receive_slots: u64,
    /// Of the connections that the answer has: those with most memory.
    queued_bytes: u64,
    rss_bytes: u64,
    memory_held: u64,
    memory_limit: u64,
    last_failure: Option<String>,
    /// The status of a look that failed.
    error: Option<String>,
}

pub(crate) async fn run(global: &Global, args: &TopArgs, output: &Output) -> Result<(), Failure> {
    let max = global.max_message_len.unwrap_or(ANSWER_LEN_MAX);
    let global = Global { max_message_len: Some(max), ..global.clone() };
    let mut servers = Vec::new();
    for target in &args.targets {
        for (name, channel) in target::servers(&global, target).await? {
            servers.push(Watched { name, channel, last: None });
        }
    }
    let is_live = !output.is_json() && std::io::stdout().is_terminal();
    let mut ticks = tokio::time::interval(args.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut looks = 0;
    while args.count.is_none_or(|count| looks < count) {
        ticks.tick().await;
        let looked = futures::future::join_all(
            servers.iter_mut().map(|server| look(&global, server, looks == 0)),
        );
        let rows: Vec<Row> = looked.await.into_iter().collect::<Result<_, _>>()?;
        show(&rows, is_live, output)?;
        looks += 1;
    }
    Ok(())
}

/// Asks a server. It fails at the first look alone: later a server may be gone for a while.
async fn look(global: &Global, server: &mut Watched, is_first: bool) -> Result<Row, Failure> {
    let request = global.request(SnapshotRequest { max_connections: 50 });
    let answer = client::unary(&server.channel, &SERVICE.methods[0], request);
    // A server that hangs must not stop the others' rows.
    let answer = match tokio::time::timeout(target::connect_limit(global), answer).await {
        Ok(answer) => answer.map(farcall::Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("no answer in time")),
    };
    match answer {
        Ok(snapshot) => Ok(server.row(&snapshot)),
        Err(status) if is_first => Err(first_failure(&server.name, &status)),
        Err(status) => Ok(Row::failed(&server.name, &status)),
    }
}

/// Returns the failure of a server that does not show its state.
pub(crate) fn first_failure(server: &str, status: &Status) -> Failure {
    if status.code() == Code::Unimplemented {
        let hint = "it shows its state to no client, or not to this one: it needs `Admin`, and the \
                    client its host or an identity that `authorize` allows";
        return Failure::call(&Status::unimplemented(format!("{server}: {hint}")));
    }
    Failure::call(status).context(server)
}

impl Watched {
    fn row(&mut self, snapshot: &Snapshot) -> Row {
        let now = Counts::new(snapshot);
        let before = self.last.take().unwrap_or_default();
        // After a restart of the server its counts begin anew.
        let before = if before.uptime_ms > now.uptime_ms { Counts::default() } else { before };
        let latency = now.latency_since(&before);
        let paths = snapshot.paths.iter();
        let transports = paths.map(|path| (path.transport.as_str(), path.count));
        let row = Row {
            server: self.name.clone(),
            connections: by_name(transports, TRANSPORTS_MAX),
            fallbacks: Fallbacks::new(snapshot),
            calls_per_second: now.calls_per_second_since(&before),
            p50_us: quantile(&latency, 0.5),
            p99_us: quantile(&latency, 0.99),
            running: snapshot.calls_running,
            credits: snapshot.connections.iter().filter_map(|it| it.credits).min(),
            receive_slots_promised: sum(snapshot.lanes.iter().map(|lane| lane.promised_slots)),
            receive_slots: sum(snapshot.lanes.iter().map(|lane| lane.receive_slots)),
            queued_bytes: sum(snapshot.connections.iter().filter_map(|it| it.queued_bytes)),
            rss_bytes: snapshot.rss_bytes,
            memory_held: snapshot.memory_held,
            memory_limit: snapshot.memory_limit,
            last_failure: last_failure(snapshot),
            error: None,
        };
        self.last = Some(now);
        row
    }
}

fn last_failure(snapshot: &Snapshot) -> Option<String> {
    let FailedCall { unix_ms, code, .. } = snapshot.failed_calls.first()?;
    let ago = snapshot.unix_ms.saturating_sub(*unix_ms) / 1000;
    Some(format!("{} s ago {}", output::count(ago), code_name(Code::from(*code))))
}

impl Counts {
    fn new(snapshot: &Snapshot) -> Self {
        let mut counts = Self { uptime_ms: snapshot.uptime_ms, ..Self::default() };
        let is_own = |method: &&Method| OWN.iter().any(|own| method.path.starts_with(own));
        for method in snapshot.methods.iter().filter(|method| !is_own(method)) {
            let calls = sum(method.codes.iter().map(|code| code.count));
            counts.calls = counts.calls.saturating_add(calls);
            for bucket in method.latency.iter().filter(|_| method.kind == "unary") {
                let count: &mut u64 = counts.latency.entry(bucket.below_us).or_default();
                *count = count.saturating_add(bucket.count);
            }
        }
        counts
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate needs no last bit")]
    fn calls_per_second_since(&self, before: &Self) -> f64 {
        let calls = self.calls.saturating_sub(before.calls);
        let time = self.uptime_ms.saturating_sub(before.uptime_ms).max(1);
        calls as f64 * 1000.0 / time as f64
    }

    fn latency_since(&self, before: &Self) -> Vec<Bucket> {
        let bucket = |(&below_us, count): (&u64, &u64)| {
            let before = before.latency.get(&below_us).copied().unwrap_or_default();
            Bucket { below_us, count: count.saturating_sub(before) }
        };
        self.latency.iter().map(bucket).collect()
    }
}

impl Row {
    fn failed(server: &str, status: &Status) -> Self {
        let error = format!("{} {}", code_name(status.code()), short(status.message()));
        Self {
            server: server.to_owned(),
            connections: BTreeMap::new(),
            fallbacks: Fallbacks::default(),
            calls_per_second: 0.0,
            p50_us: None,
            p99_us: None,
            running: 0,
            credits: None,
            receive_slots_promised: 0,
            receive_slots: 0,
            queued_bytes: 0,
            rss_bytes: 0,
            memory_held: 0,
            memory_limit: 0,
            last_failure: None,
            error: Some(error),
        }
    }

    fn cells(&self) -> [String; COLUMNS.len()] {
        let dash = || "-".to_owned();
        if let Some(error) = &self.error {
            let mut cells = [const { String::new() }; COLUMNS.len()].map(|_| dash());
            cells[0].clone_from(&self.server);
            cells[COLUMNS.len() - 1].clone_from(error);
            return cells;
        }
        let counted = |counts: &BTreeMap<String, u64>| {
            let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
            let cell = counts.collect::<Vec<_>>().join(" ");
            if cell.is_empty() { dash() } else { cell }
        };
        let figure = |value: Option<u64>| value.map_or_else(dash, output::count);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a rate")]
        let rate = self.calls_per_second.round() as u64;
        let percent = self.memory_held.saturating_mul(100).checked_div(self.memory_limit);
        let slots = match self.receive_slots {
            0 => dash(),
            slots => format!("{}/{slots}", self.receive_slots_promised),
        };
        [
            self.server.clone(),
            counted(&self.connections),
            counted(&self.fallbacks.fallbacks),
            output::count(rate),
            format!("{}/{}", figure(self.p50_us), figure(self.p99_us)),
            output::count(self.running),
            figure(self.credits),
            slots,
            format!("{} KiB", output::count(self.queued_bytes.div_ceil(1 << 10))),
            format!("{} MiB", output::count(self.rss_bytes >> 20)),
            percent.map_or_else(dash, |percent| format!("{percent} %")),
            self.last_failure.clone().unwrap_or_else(dash),
        ]
    }
}

fn show(rows: &[Row], is_live: bool, output: &Output) -> Result<(), Failure> {
    if output.is_json() {
        return rows.iter().try_for_each(|row| output.value(row));
    }
    if is_live {
        write!(std::io::stdout().lock(), "{HOME}")?;
    }
    lines(rows).iter().try_for_each(|line| output.line(line))
}

/// Returns the lines of the table of servers, and of the reasons of their fallbacks.
fn lines(rows: &[Row]) -> Vec<String> {
    let mut lines = output::table(COLUMNS, rows.iter().map(Row::cells));
    lines.extend(fallbacks::lines(rows.iter().map(|row| (&*row.server, &row.fallbacks))));
    lines
}

#[cfg(test)]
mod tests {
    use farcall::server::admin_api::{CodeCount, PathCount};

    use super::*;

    fn snapshot(uptime_ms: u64, calls: u64, below_us: u64) -> Snapshot {
        let method = |path: &str, count| Method {
            path: path.to_owned(),
            kind: "unary".to_owned(),
            codes: vec![CodeCount { code: 0, count }],
            latency: vec![Bucket { below_us, count }],
        };
        let path = PathCount { transport: "tcp".to_owned(), count: 2, ..PathCount::default() };
        let failed = FailedCall { unix_ms: 1000, code: 4, ..FailedCall::default() };
        Snapshot {
            unix_ms: 5000,
            uptime_ms,
            paths: vec![path],
            methods: vec![method("/a.B/C", calls), method("/farcall.admin.v1.Admin/X", 99)],
            failed_calls: vec![failed],
            memory_held: 50,
            memory_limit: 1000,
            ..Snapshot::default()
        }
    }

    fn watched() -> Watched {
        let channel = Channel::builder("tcp://127.0.0.1:1").unwrap().connect_lazy();
        Watched { name: "tcp://10.0.0.1:7000".into(), channel, last: None }
    }

    #[tokio::test]
    async fn figures_are_those_since_the_last_look() {
        let mut server = watched();
        let first = server.row(&snapshot(2000, 100, 64));
        assert_eq!((first.calls_per_second, first.p99_us), (50.0, Some(64)));
        let second = server.row(&snapshot(3000, 110, 64));
        assert_eq!((second.calls_per_second, second.p50_us), (10.0, Some(64)));
        let restarted = server.row(&snapshot(500, 1, 8));
        assert_eq!((restarted.calls_per_second, restarted.p99_us), (2.0, Some(8)));
    }

    #[tokio::test]
    async fn table_has_a_row_for_each_server() {
        let mut server = watched();
        let rows = [
            server.row(&snapshot(2000, 24_690, 64)),
            Row::failed("tcp://10.0.0.2:7000", &Status::unavailable("gone\u{1b}[2J")),
        ];
        let cells = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines = lines(&rows);
        assert_eq!(cells(&lines[0]), COLUMNS.join(" ").replace('#', ""));
        let good = "tcp://10.0.0.1:7000 tcp 2 - 12,345 64/64 0 - - 0 KiB 0 MiB 5 % \
                    4 s ago DEADLINE_EXCEEDED";
        assert_eq!(cells(&lines[1]), good);
        let failed = r"tcp://10.0.0.2:7000 - - - - - - - - - - UNAVAILABLE gone\u{1b}[2J";
        assert_eq!(cells(&lines[2]), failed);
        let column = |line: &String| line.find("64/64").or_else(|| line.find("p50/p99"));
        assert!(lines[..2].iter().all(|line| column(line).is_some()));
    }

    #[tokio::test]
    async fn long_answers_of_one_server_leave_the_table_as_it_is() {
        let mut hostile = snapshot(2000, 1, 64);
        hostile.paths = (0..2000)
            .map(|at| PathCount {
                transport: format!("{at:070}"),
                fallback: String::new(),
                count: 1,
            })
            .collect();
        let rows = [watched().row(&hostile), watched().row(&snapshot(2000, 1, 64))];
        let lines = lines(&rows);
        assert!(lines[1].len() < 1000, "{}", lines[1].len());
        assert!(lines[2].len() < 300, "{}", lines[2]);
    }
}
