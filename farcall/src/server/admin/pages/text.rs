//! The page as text, for terminals.

use std::fmt::Write as _;

use super::tables::{Table, facts, tables};
use crate::server::admin::api::Snapshot;

/// Widest column but the last, in characters.
const WIDTH_MAX: usize = 60;

/// Returns the page.
pub(super) fn page(snapshot: &Snapshot) -> String {
    let facts: Vec<_> =
        facts(snapshot).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
    let mut out = format!("{}\n", facts.join("   "));
    for table in tables(snapshot) {
        add(&mut out, &table);
    }
    out
}

fn add(out: &mut String, table: &Table) {
    let Table { title, empty, columns, rows } = table;
    let _ = writeln!(out, "\n== {title}");
    if rows.is_empty() {
        let _ = writeln!(out, "{empty}");
        return;
    }
    let names: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
    let width = |index: usize| {
        let cells = rows.iter().chain([&names]).filter_map(|row| row.get(index));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default().min(WIDTH_MAX)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for row in [&names].into_iter().chain(rows) {
        let cells = row.iter().zip(columns).zip(&widths);
        let cells = cells.map(|((cell, column), width)| match column.is_figure {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(out, "{}", line.trim_end());
    }
}
