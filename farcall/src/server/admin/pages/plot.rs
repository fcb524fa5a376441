//! Plots of the last minutes, as SVG within the page.

use std::fmt::Write as _;

use super::tables::{count, time};
use crate::server::admin::api::Sample;

/// Size of a plot's area in its own units.
const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 90.0;

/// A line of a plot.
struct Line {
    name: &'static str,
    /// The class of its color.
    class: &'static str,
    values: Vec<f64>,
}

/// Returns the plots of calls, latency and paths.
pub(super) fn plots(history: &[Sample]) -> String {
    let line = |name, class, value: fn(&Sample) -> f64| {
        let values = history.iter().map(value).collect();
        Line { name, class, values }
    };
    let mut out = String::new();
    let calls = [
        line("all", "a", |sample| per_second(sample, sample.calls)),
        line("failed", "c", |sample| per_second(sample, sample.failed)),
    ];
    add(&mut out, "Calls per second", &calls, &|top| count(whole(top)));
    let latency = [
        line("p99", "b", |sample| figure(sample.p99_us)),
        line("p50", "a", |sample| figure(sample.p50_us)),
    ];
    add(&mut out, "Latency of unary calls", &latency, &|top| time(whole(top)));
    let shares = [
        line("RDMA", "a", |sample| share(sample, true)),
        line("others", "b", |sample| share(sample, false)),
    ];
    add(&mut out, "Share of connections", &shares, &|top| format!("{top:.0} %"));
    out
}

#[expect(clippy::cast_precision_loss, reason = "a plot needs three digits")]
fn figure(number: u64) -> f64 {
    number as f64
}

/// Returns the rate of `calls` in a sample.
fn per_second(sample: &Sample, calls: u64) -> f64 {
    1000.0 * figure(calls) / figure(sample.interval_ms.max(1).into())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a label")]
fn whole(number: f64) -> u64 {
    number.ceil() as u64
}

/// Returns the share in percent of the connections that are on RDMA, or of the others.
fn share(sample: &Sample, is_rdma: bool) -> f64 {
    let paths = || sample.paths.iter();
    let all: u64 = paths().map(|path| path.count).sum();
    let these = paths().filter(|path| (path.transport == "rdma") == is_rdma);
    let these: u64 = these.map(|path| path.count).sum();
    if all == 0 { 0.0 } else { 100.0 * figure(these) / figure(all) }
}

/// Adds a plot. No text of it comes from a peer.
fn add(out: &mut String, title: &str, lines: &[Line], label: &dyn Fn(f64) -> String) {
    let values = lines.iter().flat_map(|line| &line.values);
    let top = values.copied().fold(0.0, f64::max);
    let scale = if top > 0.0 { top } else { 1.0 };
    let _ = write!(out, "<figure><figcaption>{title}");
    for Line { name, class, values } in lines {
        let last = values.last().map_or_else(|| "-".to_owned(), |last| label(*last));
        let _ = write!(out, " <span class=\"{class}\">{name} {last}</span>");
    }
    let _ = write!(
        out,
        "</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\" \
         preserveAspectRatio=\"none\">"
    );
    for Line { class, values, .. } in lines {
        let step = WIDTH / figure(values.len().saturating_sub(1).max(1) as u64);
        let point = |(index, value): (usize, &f64)| {
            let (x, y) =
                (figure(index as u64) * step, HEIGHT - 1.0 - value / scale * (HEIGHT - 2.0));
            format!("{x:.1},{y:.1}")
        };
        let points: Vec<_> = values.iter().enumerate().map(point).collect();
        let _ = write!(out, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }
    let minutes = lines.first().map_or(0, |line| line.values.len()) as u64 * 5;
    let _ = write!(
        out,
        "</svg><div class=\"axis\"><span>{} ago</span><span>top {}</span></div></figure>",
        time(minutes * 1_000_000),
        label(top)
    );
}
