//! Metrics and labels that the dashboard and the alerts name are on the page of metrics.

use std::collections::BTreeSet;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/{path}")).unwrap()
}

/// Labels that Prometheus adds, and those of its functions.
const FOREIGN_LABELS: [&str; 2] = ["instance", "le"];

/// The names of Prometheus for a row of the page: metric, type and unit.
fn exported(name: &str, kind: &str, unit: &str) -> Vec<String> {
    let mut name = name.replace('.', "_");
    if ["seconds", "bytes"].contains(&unit) && !name.ends_with(unit) {
        name = format!("{name}_{unit}");
    }
    match kind {
        "counter" => vec![format!("{name}_total")],
        "histogram" => ["bucket", "sum", "count"].map(|it| format!("{name}_{it}")).to_vec(),
        _ => vec![name],
    }
}

/// The cells of the rows of the page's list.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let (_, list) = page.split_once("<!-- the list begins -->").unwrap();
    let (list, _) = list.split_once("<!-- the list ends -->").unwrap();
    let rows = list.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect()).collect()
}

/// The names that begin as metrics of farcall or gRPC do, and are no labels.
fn named_metrics(query: &str) -> BTreeSet<String> {
    let names = query.split(|it: char| !(it.is_ascii_alphanumeric() || it == '_'));
    let labels = ["grpc_method", "grpc_target", "grpc_status"];
    let is_metric = |word: &&str| {
        (word.starts_with("farcall_") || word.starts_with("grpc_")) && !labels.contains(word)
    };
    names.filter(is_metric).map(str::to_owned).collect()
}

/// The labels in matchers, and behind `by`.
fn named_labels(query: &str) -> BTreeSet<String> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let mut labels = BTreeSet::new();
    for matchers in query.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
        let names = matchers.split(',').map(|it| it.trim().split(|it| !is_part(it)).next());
        labels.extend(names.flatten().map(str::to_owned));
    }
    for by in query.split("by (").skip(1).filter_map(|rest| rest.split(')').next()) {
        labels.extend(by.split(',').map(|label| label.trim().to_owned()));
    }
    labels
}

#[test]
fn queries_name_metrics_and_labels_of_the_page() {
    let page = read("docs/book/src/metrics.md");
    let rows = rows(&page);
    let metrics: BTreeSet<String> =
        rows.iter().flat_map(|row| exported(row[1], row[2], row[3])).collect();
    let labels = rows.iter().flat_map(|row| row[4].split(", "));
    let mut labels: BTreeSet<String> =
        labels.map(|label| label.trim_matches('`').replace('.', "_")).collect();
    labels.extend(FOREIGN_LABELS.map(str::to_owned));
    let queries = [dashboard_queries(), alert_queries(), asked_queries()].concat();
    assert!(queries.len() > 20, "{}", queries.len());
    for query in queries {
        let named = named_metrics(&query);
        assert!(!named.is_empty(), "{query}");
        let unknown: Vec<_> = named.difference(&metrics).collect();
        assert!(unknown.is_empty(), "{unknown:?} of {query}");
        let labels_of_query = named_labels(&query);
        let unknown: Vec<_> = labels_of_query.difference(&labels).collect();
        assert!(unknown.is_empty(), "labels {unknown:?} of {query}");
    }
}

fn dashboard_queries() -> Vec<String> {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/farcall.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

fn asked_queries() -> Vec<String> {
    super::prometheus::QUERIES.iter().map(|(_, query)| (*query).to_owned()).collect()
}

fn alert_queries() -> Vec<String> {
    let alerts = read("deploy/prometheus/alerts.yaml");
    let queries = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    queries.map(str::to_owned).collect()
}

#[test]
fn dashboard_has_what_grafana_needs() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/farcall.json")).unwrap();
    assert!(dashboard["title"].is_string() && dashboard["schemaVersion"].is_number());
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(panel["type"].is_string() && panel["title"].is_string(), "{panel}");
        let place = &panel["gridPos"];
        let right = place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap();
        assert!(right <= 24, "{panel}");
    }
}
