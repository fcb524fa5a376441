//! The parts of the pages in `docs` that are made from the declarations of settings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use rpc_core::settings::{Description, Effect, Key, Table as _};

use super::tables::Root;
use super::tests::assert_is_file;

/// A key of a table, with the effect that it has there.
struct Row<'a> {
    /// `targets`, `servers`, or the table that is neither.
    side: &'static str,
    /// The table within the target or server.
    table: String,
    key: &'a Key,
    effect: Effect,
}

impl Row<'_> {
    /// The key as a page names it. One that only code sets has the name of its field.
    fn name(&self) -> String {
        match (self.effect, &*self.table) {
            (Effect::CodeOnly, _) | (_, "") => self.key.name.to_owned(),
            (_, table) => format!("{table}.{}", self.key.name),
        }
    }
}

fn rows<'a>(
    (side, table): (&'static str, &str),
    of: &'a Description,
    effect: Effect,
    all: &mut Vec<Row<'a>>,
) {
    for key in of.keys.iter().chain(&of.in_code) {
        let effect = match key.effect {
            Effect::CodeOnly => Effect::CodeOnly,
            other => other.within(effect),
        };
        all.push(Row { side, table: table.to_owned(), key, effect });
    }
    for group in of.groups.iter().filter(|group| !group.heading.is_empty()) {
        let effect = group.effect.within(effect);
        let name = group.name;
        let (side, table) = match (side, table) {
            ("", _) if name == "targets" || name == "servers" => (name, String::new()),
            ("" | "all", "") => ("all", name.to_owned()),
            (side, "") => (side, name.to_owned()),
            (side, table) => (side, format!("{table}.{name}")),
        };
        rows((side, &table), &group.table, effect, all);
    }
}

/// One row for each key that has a range. A key of both sides has one row where it is the same.
fn ranges(root: &Description) -> String {
    let mut all = Vec::new();
    rows(("", ""), root, Effect::Live, &mut all);
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for row in &all {
        let Some(range) = &row.key.range else { continue };
        let shown = &row.key.shown;
        let default = if shown.is_example { "not set" } else { shown.text.trim_matches('"') };
        let line = format!("`{}` | {default} | {range} |", row.name());
        match lines.iter_mut().find(|(it, _)| *it == line) {
            Some((_, sides)) if sides.contains(&row.side) => {}
            Some((_, sides)) => sides.push(row.side),
            None => lines.push((line, vec![row.side])),
        }
    }
    let mut text = "| of | setting | default | range |\n|---|---|---|---|\n".to_owned();
    for (line, sides) in lines {
        let sides = sides.join(", ").replace("all", "the process");
        writeln!(text, "| {sides} | {line}").unwrap();
    }
    text
}

/// One row for each table, with its keys by the time when a reload applies them.
fn effects(root: &Description) -> String {
    let mut all = Vec::new();
    rows(("", ""), root, Effect::Live, &mut all);
    let mut tables: Vec<(String, BTreeMap<bool, Vec<&str>>)> = Vec::new();
    for row in all.iter().filter(|row| row.effect != Effect::CodeOnly) {
        let name = match (row.side, &*row.table) {
            ("all", table) => table.to_owned(),
            (side, "") => format!("{side}.*"),
            (side, table) => format!("{side}.*.{table}"),
        };
        if tables.last().is_none_or(|(last, _)| *last != name) {
            tables.push((name, BTreeMap::new()));
        }
        let Some((_, keys)) = tables.last_mut() else { unreachable!("one was pushed") };
        keys.entry(row.effect == Effect::Live).or_default().push(row.key.name);
    }
    let mut text =
        "| table | while the program runs | at its next start |\n|---|---|---|\n".to_owned();
    for (name, keys) in tables {
        let [live, start] = [true, false].map(|is_live| {
            let names = keys.get(&is_live).map_or(&[][..], |names| names);
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        });
        writeln!(text, "| `{name}` | {live} | {start} |").unwrap();
    }
    text
}

/// Compares the block of a page that has a name with `text`, as [`assert_is_file`] does.
fn assert_is_block(page: &str, name: &str, text: &str) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(page);
    let held = std::fs::read_to_string(file).unwrap();
    let (begin, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->");
    let (before, rest) = held.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    assert_is_file(page, &format!("{before}{begin}{text}{end}{after}"));
}

#[test]
fn ranges_of_settings_are_in_limits() {
    assert_is_block("../docs/book/src/limits.md", "ranges", &ranges(&Root::describe()));
}

#[test]
fn effects_of_a_reload_are_in_reload() {
    assert_is_block("../docs/book/src/reload.md", "effects", &effects(&Root::describe()));
}
