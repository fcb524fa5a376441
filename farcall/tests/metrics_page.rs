//! The page of metrics, and the declarations behind it.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::path::Path;

use farcall::metrics::{Metric, all};

/// The page, beside the crate.
const PAGE: &str = "../docs/book/src/metrics.md";

/// The lines around the table.
const MARKS: [&str; 2] = ["<!-- the list begins -->\n", "<!-- the list ends -->\n"];

fn row(metric: &Metric) -> String {
    let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let labels = if labels.is_empty() { "none".to_owned() } else { labels.join(", ") };
    let Metric { name, kind, unit, description, question, .. } = metric;
    let (kind, unit) = (kind.name(), unit.name());
    format!("| `{name}` | {kind} | {unit} | {labels} | {description} | {question} |\n")
}

fn table() -> String {
    let head = "| metric | type | unit | labels | counts | answers |\n|---|---|---|---|---|---|\n";
    head.to_owned() + &all().iter().map(row).collect::<String>()
}

/// `FARCALL_WRITE_GOLDEN=1` writes the table anew. The crate alone, as it is packed, has no page.
#[test]
fn page_lists_every_metric_as_it_is_declared() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if !path.ancestors().any(|folder| folder.ends_with("docs") && folder.exists()) {
        return;
    }
    let page = std::fs::read_to_string(&path).expect("the book has the page");
    let [begin, end] = MARKS;
    let (before, rest) = page.split_once(begin).expect("the page has the first mark");
    let (listed, after) = rest.split_once(end).expect("the page has the last mark");
    if std::env::var_os("FARCALL_WRITE_GOLDEN").is_some() {
        let written = format!("{before}{begin}{}{end}{after}", table());
        return std::fs::write(path, written).expect("the page can be written");
    }
    assert_eq!(listed, table(), "FARCALL_WRITE_GOLDEN=1 writes the table anew");
}

#[test]
fn names_are_distinct_and_say_a_unit_of_their_own() {
    let all = all();
    let names: BTreeSet<_> = all.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), all.len());
    for metric in &all {
        let is_plain = |c: char| c.is_ascii_lowercase() || matches!(c, '.' | '_');
        assert!(metric.name.chars().all(is_plain), "{}", metric.name);
        assert!(metric.description.ends_with('.'), "{}", metric.description);
        assert!(metric.question.contains('?'), "{}", metric.question);
    }
}
