//! The columns of a side in the report, with their headings.

use std::collections::BTreeMap;

/// A column of a table of sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    /// Its name in the results.
    pub(super) name: &'static str,
    /// Its heading.
    pub(super) heading: &'static str,
}

/// The columns, in the order in which they stand. Which of them a table has is a matter of what was
/// measured.
pub(super) const COLUMNS: &[Column] = &[
    column("connections", "connections"),
    column("slots", "slots"),
    column("lanes", "lanes"),
    column("p50_us", "p50, us"),
    column("p99_us", "p99, us"),
    column("calls_per_s", "calls/s"),
    column("mb_per_s", "MB/s"),
    column("cpu_us_per_call", "CPU us/call"),
    column("client_switches_per_call", "switches/call, client"),
    column("server_switches_per_call", "switches/call, server"),
    column("client_system_calls_per_call", "system calls/call, client"),
    column("server_system_calls_per_call", "system calls/call, server"),
    column("allocations_per_call", "allocations/call"),
    column("server_kib_per_connection", "KiB/connection, server"),
    column("idle_percent", "idle, % of a core"),
    column("fairness", "Jain's index"),
    column("small_p99_us", "p99 of small calls beside, us"),
    column("small_alone_p99_us", "without, us"),
    column("memory_of_in_flight", "server's memory over what is in flight"),
    column("greedy_window", "window of a greedy connection"),
    column("receive_kib_per_connection", "receive KiB/connection"),
    column("promised_kib_per_connection", "promised KiB/connection"),
    column("promised_percent", "slots promised, %"),
    column("filled_percent", "slots filled at most, %"),
    column("busy_percent", "lanes busy, %"),
    column("first_answer_round_trips", "a newcomer's first answer, round trips"),
    column("half_share_round_trips", "half a share, round trips"),
    column("handover_round_trips", "hand-over, round trips"),
    column("active_p99_round_trips", "p99 of active, round trips"),
];

const fn column(name: &'static str, heading: &'static str) -> Column {
    Column { name, heading }
}

/// The columns in which any of `sides` has a value.
pub(super) fn present<'a>(
    sides: impl IntoIterator<Item = &'a BTreeMap<String, f64>>,
) -> Vec<Column> {
    let sides: Vec<_> = sides.into_iter().collect();
    let is_there = |column: &&Column| sides.iter().any(|side| side.contains_key(column.name));
    COLUMNS.iter().filter(is_there).copied().collect()
}

/// Returns the column that a figure's plot shows.
pub(super) fn plotted(number: &str) -> Column {
    let name = match number {
        "T1" | "R1" | "R2" => "p50_us",
        "T2" | "T10" | "T13" => "cpu_us_per_call",
        "T4" | "R3" | "R4" | "R7" | "C3" | "C7" => "mb_per_s",
        "T6" | "T15" | "C2" => "server_kib_per_connection",
        "T7" => "allocations_per_call",
        "T8" | "T12" => "p99_us",
        "R6" => "client_system_calls_per_call",
        _ => "calls_per_s",
    };
    COLUMNS.iter().find(|column| column.name == name).copied().unwrap_or(COLUMNS[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::GOALS;

    #[test]
    fn only_what_was_measured_has_a_column() {
        let side = BTreeMap::from([("p50_us".to_owned(), 1.0), ("unheard_of".to_owned(), 2.0)]);
        let present: Vec<&str> = present([&side]).iter().map(|column| column.name).collect();
        assert_eq!(present, ["p50_us"]);
    }

    #[test]
    fn every_figure_plots_a_column_that_there_is() {
        for goal in GOALS {
            assert!(COLUMNS.contains(&plotted(goal.number)));
        }
        assert_eq!(plotted("T6").heading, "KiB/connection, server");
    }
}
