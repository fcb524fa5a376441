//! The content of the page as tables, for HTML and for text.

use std::time::Duration;

use rpc_core::Code;

use crate::server::admin::api::{
    Connection, Endpoint, FailedCall, Lane, Method, PathCount, Snapshot, quantile,
};

/// Longest text of a cell, in characters.
const CELL_LEN_MAX: usize = 300;

/// A table of the page.
pub(super) struct Table {
    pub(super) title: &'static str,
    /// Text in place of the rows, if there are none.
    pub(super) empty: &'static str,
    pub(super) columns: Vec<Column>,
    /// Rows with a cell for each column.
    pub(super) rows: Vec<Vec<String>>,
}

/// The head of a column.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// True for figures, which are aligned at the right.
    pub(super) is_figure: bool,
}

impl Table {
    /// Names of columns of figures begin with `#`.
    fn new<const N: usize>(
        (title, empty): (&'static str, &'static str),
        columns: [&'static str; N],
        rows: impl Iterator<Item = [String; N]>,
    ) -> Self {
        let column = |name: &'static str| Column {
            name: name.trim_start_matches('#'),
            is_figure: name.starts_with('#'),
        };
        let row = |cells: [String; N]| cells.map(|cell| visible(&cell)).to_vec();
        Self { title, empty, columns: columns.map(column).to_vec(), rows: rows.map(row).collect() }
    }
}

impl Clone for Column {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

/// Returns the facts of the head, each with its name.
pub(super) fn facts(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let Snapshot { memory_held, memory_limit, rss_bytes, .. } = *snapshot;
    let connections: u64 = snapshot.paths.iter().map(|path| path.count).sum();
    let upgraded = snapshot.paths.iter().filter(|path| path.transport == "rdma");
    let upgraded: u64 = upgraded.map(|path| path.count).sum();
    let last = snapshot.history.last();
    let per_second = last.map_or(0, |sample| {
        sample.calls.saturating_mul(1000) / u64::from(sample.interval_ms.max(1))
    });
    vec![
        ("calls/s", count(per_second)),
        ("running calls", count(snapshot.calls_running)),
        ("connections", format!("{}, {} on RDMA", count(connections), count(upgraded))),
        ("memory of clients", format!("{} of {}", bytes(memory_held), bytes(memory_limit))),
        ("resident", bytes(rss_bytes)),
        ("up", time(snapshot.uptime_ms * 1000)),
        ("farcall", visible(&snapshot.version)),
        ("process", snapshot.pid.to_string()),
    ]
}

/// Returns all tables.
pub(super) fn tables(snapshot: &Snapshot) -> Vec<Table> {
    vec![
        paths(&snapshot.paths),
        connections(snapshot),
        methods(&snapshot.methods),
        failed_calls(snapshot),
        lanes(&snapshot.lanes),
        channels(snapshot),
        certificates(snapshot),
        reload(snapshot),
        settings(snapshot),
    ]
}

fn paths(paths: &[PathCount]) -> Table {
    let rows = paths.iter().map(|path| {
        let meaning = match path.fallback.as_str() {
            "none" => "as asked for",
            "no_device" => "a host has no RDMA device",
            "can_pass" => "RDMA failed, and is tried again",
            _ => "RDMA is not possible on these connections",
        };
        [path.transport.clone(), count(path.count), meaning.to_owned()]
    });
    Table::new(("Paths", "no connection"), ["path", "#connections", "why this path"], rows)
}

fn connections(snapshot: &Snapshot) -> Table {
    let columns = [
        "peer",
        "identity",
        "path",
        "#age",
        "#calls",
        "#in flight",
        "#memory",
        "#credits",
        "#queued",
        "#window",
        "#sent",
        "#received",
        "why not RDMA",
    ];
    let dashed = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), bytes);
    let rows = snapshot.connections.iter().map(|it: &Connection| {
        let waits = if it.is_sending { " (waits)" } else { "" };
        [
            it.peer.clone(),
            dash(&it.identity),
            it.transport.clone(),
            time(it.age_ms.saturating_mul(1000)),
            count(it.calls_started),
            count(it.calls_in_flight),
            memory(it.memory_held, snapshot.memory_limit) + waits,
            it.credits.map_or_else(|| "-".to_owned(), count),
            dashed(it.queued_bytes),
            dashed(it.window_bytes),
            bytes(it.sent_bytes),
            bytes(it.received_bytes),
            dash(&it.reason),
        ]
    });
    Table::new(("Connections", "no connection"), columns, rows)
}

/// Returns the memory of a client with its share of the server's budget.
fn memory(held: u64, limit: u64) -> String {
    let percent = u128::from(held) * 100 / u128::from(limit.max(1));
    if percent > 0 { format!("{}, {percent} %", bytes(held)) } else { bytes(held) }
}

fn methods(methods: &[Method]) -> Table {
    let columns = ["method", "kind", "#calls", "#failed", "#p50", "#p99", "codes"];
    let rows = methods.iter().filter(|method| !method.codes.is_empty()).map(|method| {
        let total: u64 = method.codes.iter().map(|it| it.count).sum();
        let failed = method.codes.iter().filter(|it| it.code != 0).map(|it| it.count).sum();
        let codes = method.codes.iter().map(|it| format!("{} {}", code(it.code), count(it.count)));
        let below = |share| quantile(&method.latency, share).map_or_else(|| "-".to_owned(), time);
        let path = if method.path.is_empty() { "unknown methods" } else { &method.path };
        [
            path.to_owned(),
            method.kind.replace('_', " "),
            count(total),
            count(failed),
            below(0.5),
            below(0.99),
            codes.collect::<Vec<_>>().join(", "),
        ]
    });
    Table::new(("Methods", "no call yet"), columns, rows)
}

fn failed_calls(snapshot: &Snapshot) -> Table {
    let columns = ["#ago", "code", "method", "peer", "path", "#took", "message"];
    let rows = snapshot.failed_calls.iter().map(|call: &FailedCall| {
        [
            time(snapshot.unix_ms.saturating_sub(call.unix_ms).saturating_mul(1000)),
            code(call.code),
            call.method.clone(),
            call.peer.clone(),
            call.transport.clone(),
            time(call.took_us),
            call.message.clone(),
        ]
    });
    Table::new(("Failed calls, the last first", "no call has failed"), columns, rows)
}

fn lanes(lanes: &[Lane]) -> Table {
    let columns = [
        "device",
        "#lane",
        "#connections",
        "#slots",
        "#promised",
        "#missing",
        "#sending",
        "#reads",
        "#registered",
        "#credit waits",
    ];
    let rows = lanes.iter().map(|lane| {
        [
            lane.device.clone(),
            lane.number.to_string(),
            count(lane.connections),
            count(lane.receive_slots),
            count(lane.promised_slots),
            count(lane.missing_slots),
            count(lane.send_slots_in_use),
            bytes(lane.read_bytes),
            bytes(lane.registered_bytes),
            count(lane.credit_waits),
        ]
    });
    Table::new(("RDMA lanes", "no device is in use"), columns, rows)
}

fn channels(snapshot: &Snapshot) -> Table {
    let columns = [
        "channel",
        "server",
        "state",
        "#weight",
        "#in flight",
        "#latency",
        "#cost",
        "#failovers",
        "path",
    ];
    let measured = |micros| if micros > 0 { time(micros) } else { "-".to_owned() };
    let nowhere = Endpoint { address: "none yet".to_owned(), ..Endpoint::default() };
    let all = snapshot.channels.iter();
    let rows = all.flat_map(|channel| {
        let none = channel.endpoints.is_empty().then_some(&nowhere);
        channel.endpoints.iter().chain(none).map(move |endpoint| (channel, endpoint))
    });
    let rows = rows.map(|(channel, endpoint)| {
        let ejected = if endpoint.is_ejected { ", ejected" } else { "" };
        [
            channel.target.clone(),
            endpoint.address.clone(),
            format!("{}{ejected}", endpoint.connectivity.replace('_', " ")),
            endpoint.weight.to_string(),
            count(endpoint.in_flight.into()),
            measured(endpoint.latency_us),
            measured(endpoint.cost_us),
            count(endpoint.failovers),
            endpoint.path.clone(),
        ]
    });
    Table::new(("Channels of this process", "none is shown"), columns, rows)
}

fn certificates(snapshot: &Snapshot) -> Table {
    let rows = snapshot.certificates.iter().map(|certificate| {
        let now = i64::try_from(snapshot.unix_ms / 1000).unwrap_or_default();
        let left = certificate.expires_unix.saturating_sub(now);
        let days = left / 86_400;
        let state = if left > 0 { format!("{days} days") } else { "EXPIRED".to_owned() };
        [certificate.name.clone(), state]
    });
    Table::new(("Certificates", "no TLS"), ["certificate", "#left"], rows)
}

fn reload(snapshot: &Snapshot) -> Table {
    let rows = snapshot.last_reload.iter().flat_map(|reload| {
        let ago = snapshot.unix_ms.saturating_sub(reload.unix_ms).saturating_mul(1000);
        let row =
            move |result: &str, change: &str| [time(ago), result.to_owned(), change.to_owned()];
        match (reload.error.as_str(), reload.changes.as_slice()) {
            ("", []) => vec![row("ok", "nothing has changed")],
            ("", changes) => changes.iter().map(|change| row("ok", change)).collect(),
            (error, _) => vec![row("error", error)],
        }
    });
    let columns = ["#ago", "result", "change"];
    Table::new(("Last reload of the settings", "none since the start"), columns, rows)
}

fn settings(snapshot: &Snapshot) -> Table {
    let all = snapshot.settings.iter();
    let rows = all.map(|it| [it.key.clone(), it.value.clone(), it.source.clone()]);
    Table::new(("Settings in force", "none"), ["setting", "value", "set by"], rows)
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// Returns the name of a code.
fn code(code: i32) -> String {
    let code = Code::from(code);
    let name = format!("{code:?}");
    let mut written = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() && !written.is_empty() {
            written.push('_');
        }
        written.push(character.to_ascii_uppercase());
    }
    written
}

/// Escapes the characters of a text that are not printed as they are, and cuts it.
pub(super) fn visible(text: &str) -> String {
    let mut out = String::new();
    for (index, character) in text.chars().enumerate() {
        if index >= CELL_LEN_MAX {
            out.push_str("...");
            break;
        }
        match character {
            '\\' | '"' | '\'' => out.push(character),
            _ => out.extend(character.escape_debug()),
        }
    }
    out
}

/// Returns a number with commas between thousands.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a size with the unit that fits it.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(size < 10.0);
    format!("{size:.decimals$} {}", UNITS[unit])
}

/// Returns a time with the unit that fits it.
pub(super) fn time(micros: u64) -> String {
    let time = Duration::from_micros(micros);
    match time.as_secs() {
        0 if micros < 1000 => format!("{micros} us"),
        0 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        seconds @ 1..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}
