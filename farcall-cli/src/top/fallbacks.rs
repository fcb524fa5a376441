//! Connections that wanted RDMA and are on another path, and the reasons.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use farcall::server::admin_api::Snapshot;
use serde::Serialize;

use super::sums::{by_name, sum};
use crate::output;

/// Kinds of reasons of a server that are shown.
const KINDS_MAX: usize = 4;
/// Reasons of a server that are shown.
const REASONS_MAX: usize = 4;
/// Longest reason, in characters.
const REASON_LEN_MAX: usize = 200;

const COLUMNS: [&str; 3] = ["server", "#connections", "why not RDMA"];

/// Connections of a server that wanted RDMA and are on another path.
#[derive(Debug, Default, Serialize)]
pub(super) struct Fallbacks {
    /// All of them, by kind of reason: the label `fallback` of metrics.
    pub(super) fallbacks: BTreeMap<String, u64>,
    /// The most frequent reasons of the connections that the answer lists.
    fallback_reasons: Vec<FallbackReason>,
}

#[derive(Debug, Serialize)]
struct FallbackReason {
    reason: String,
    connections: u64,
}

impl Fallbacks {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let paths = snapshot.paths.iter().filter(|path| !["", "none"].contains(&&*path.fallback));
        let kinds = paths.map(|path| (path.fallback.as_str(), path.count));
        let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
        for connection in snapshot.connections.iter().filter(|it| !it.reason.is_empty()) {
            *reasons.entry(cut(&connection.reason)).or_default() += 1;
        }
        let mut reasons: Vec<_> = reasons
            .into_iter()
            .map(|(reason, connections)| FallbackReason { reason, connections })
            .collect();
        reasons.sort_by_key(|it| Reverse(it.connections));
        reasons.truncate(REASONS_MAX);
        Self { fallbacks: by_name(kinds, KINDS_MAX), fallback_reasons: reasons }
    }

    /// Returns the rows of a server, one for each reason. The last row counts the connections whose
    /// reasons are not shown.
    fn rows(&self, server: &str) -> Vec<[String; COLUMNS.len()]> {
        let shown = sum(self.fallback_reasons.iter().map(|it| it.connections));
        let others = sum(self.fallbacks.values().copied()).saturating_sub(shown);
        let others = (others > 0).then_some((others, "other reasons"));
        let reasons = self.fallback_reasons.iter().map(|it| (it.connections, it.reason.as_str()));
        let row = |(connections, reason): (u64, &str)| {
            [server.to_owned(), output::count(connections), reason.to_owned()]
        };
        reasons.chain(others).map(row).collect()
    }
}

/// Cuts a reason, and marks the cut.
fn cut(reason: &str) -> String {
    match reason.char_indices().nth(REASON_LEN_MAX) {
        Some((end, _)) => format!("{}...", &reason[..end]),
        None => reason.to_owned(),
    }
}

/// Returns the lines of the table of reasons, after an empty one. There are none if no connection
/// wanted another path.
pub(super) fn lines<'a>(servers: impl Iterator<Item = (&'a str, &'a Fallbacks)>) -> Vec<String> {
    let rows: Vec<_> = servers.flat_map(|(server, fallbacks)| fallbacks.rows(server)).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let table = output::table(COLUMNS, rows.into_iter());
    std::iter::once(String::new()).chain(table).collect()
}

#[cfg(test)]
mod tests {
    use farcall::server::admin_api::{Connection, PathCount};

    use super::*;

    fn path(fallback: &str, count: u64) -> PathCount {
        PathCount { transport: "tcp".to_owned(), fallback: fallback.to_owned(), count }
    }

    fn connection(reason: &str) -> Connection {
        Connection { reason: reason.to_owned(), ..Connection::default() }
    }

    fn table(snapshot: &Snapshot) -> Vec<String> {
        lines([("a", &Fallbacks::new(snapshot))].into_iter())
    }

    #[test]
    fn frequent_reasons_are_first_and_the_rest_are_counted() {
        let reasons = ["w", "v", "u", "v", "", "t", "s"];
        let snapshot = Snapshot {
            paths: vec![path("none", 90), path("can_pass", 1007), path("no_device", 3)],
            connections: reasons.map(connection).to_vec(),
            ..Snapshot::default()
        };
        let kinds = Fallbacks::new(&snapshot).fallbacks;
        let expected = [("can_pass".to_owned(), 1007), ("no_device".to_owned(), 3)];
        assert_eq!(kinds, BTreeMap::from(expected));
        let expected = [
            "",
            "server  connections  why not RDMA",
            "a                 2  v",
            "a                 1  s",
            "a                 1  t",
            "a                 1  u",
            "a             1,005  other reasons",
        ];
        assert_eq!(table(&snapshot), expected);
    }

    #[test]
    fn no_fallback_is_no_table() {
        let paths = vec![path("none", 2), path("", 1)];
        let connections = vec![connection("")];
        assert!(table(&Snapshot { paths, connections, ..Snapshot::default() }).is_empty());
    }

    #[test]
    fn long_reasons_of_a_server_are_cut_and_escaped() {
        let hostile = "\u{1b}[2J\n".repeat(1000);
        let reasons = (0..1000).map(|at| connection(&format!("{at}{hostile}")));
        let paths = (0..1000).map(|at| path(&format!("{at}{hostile}"), u64::MAX));
        let (connections, paths) = (reasons.collect(), paths.collect());
        let snapshot = Snapshot { paths, connections, ..Snapshot::default() };
        let lines = table(&snapshot);
        assert_eq!(lines.len(), 2 + REASONS_MAX + 1);
        assert!(lines.iter().all(|line| line.len() < 1000 && !line.contains(char::is_control)));
        let kinds = Fallbacks::new(&snapshot).fallbacks;
        assert!(kinds.len() == KINDS_MAX && kinds.keys().all(|kind| kind.len() <= 60));
    }
}
