//! The report as one HTML file: plots in SVG, no script, nothing from another host.

use std::fmt::Write as _;

use crate::bench::report::{Report, micros};
use crate::output::{count, escape};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 200.0;
/// Room for labels at the left and below.
const LEFT: f64 = 90.0;
const BOTTOM: f64 = 24.0;

const STYLE: &str = "body{font:15px system-ui,sans-serif;margin:2em auto;max-width:52em;\
                     color:#1c1c1c;background:#fff}h1{font-size:1.3em}h2{font-size:1.05em;\
                     margin-top:2em}table{border-collapse:collapse}td,th{padding:.2em .9em .2em 0;\
                     text-align:left}td.n{text-align:right}svg text{font:12px \
                     system-ui,sans-serif;fill:#444}svg .bar{fill:#3b6ea8}svg \
                     .grid{stroke:#ddd}";

/// Returns the page.
pub(crate) fn page(report: &Report) -> String {
    let title = format!("{} at {}", shown(&report.method), shown(&report.target));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n"
    );
    let errors: u64 = report.errors.iter().map(|error| error.count).sum();
    let planned =
        report.target_rate.map_or_else(String::new, |rate| format!(", {rate:.0}/s planned"));
    let _ = writeln!(
        page,
        "<p>{}, {} in flight at most{planned}. {} calls in {:.1} s: <b>{:.0} calls/s</b>, {} \
         errors, {} unfinished.</p>",
        report.mode,
        report.concurrency,
        count(report.calls),
        report.seconds,
        report.calls_per_second,
        count(errors),
        count(report.unfinished),
    );
    table(&mut page, "Latency", report.latency.iter().map(|it| (it.name.into(), micros(it.us))));
    let bars: Vec<_> = report
        .histogram
        .iter()
        .map(|bar| (format!("{} to {}", micros(bar.from_us), micros(bar.to_us)), bar.calls))
        .collect();
    let ends = |bars: &[(String, u64)]| {
        let lowest = report.histogram.first().map(|bar| micros(bar.from_us));
        let highest = report.histogram.last().map(|bar| micros(bar.to_us));
        if bars.is_empty() { Default::default() } else { (lowest, highest) }
    };
    plot(&mut page, "Calls by latency, on a logarithmic scale", &bars, ends(&bars));
    let intervals: Vec<_> = report
        .intervals
        .iter()
        .enumerate()
        .map(|(index, &calls)| (format!("interval {}", index + 1), calls))
        .collect();
    let ends = (Some("start".into()), Some("end of the planned duration".into()));
    plot(&mut page, "Calls in each sixtieth of the run", &intervals, ends);
    let errors = report.errors.iter().map(|error| (error.code.to_owned(), count(error.count)));
    table(&mut page, "Errors", errors);
    let paths = report.paths.iter().map(|path| {
        let transport = path.transport.unwrap_or("no connection");
        let text = format!("{transport} ({}), failovers {}", path.reason, path.failovers);
        (shown(&path.server), shown(&text))
    });
    table(&mut page, "Paths", paths);
    page
}

fn table(page: &mut String, title: &str, rows: impl Iterator<Item = (String, String)>) {
    let rows: String =
        rows.map(|(name, value)| format!("<tr><td>{name}<td class=\"n\">{value}\n")).collect();
    if !rows.is_empty() {
        let _ = writeln!(page, "<h2>{title}</h2>\n<table>\n{rows}</table>");
    }
}

/// Draws bars, with the first and the last label below.
fn plot(
    page: &mut String,
    title: &str,
    bars: &[(String, u64)],
    (first, last): (Option<String>, Option<String>),
) {
    let most = bars.iter().map(|(_, calls)| *calls).max().unwrap_or_default();
    if most == 0 {
        return;
    }
    let height = HEIGHT + BOTTOM;
    let _ = writeln!(
        page,
        "<h2>{title}</h2>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{title}\">"
    );
    for share in [0.0, 0.5, 1.0] {
        let y = 10.0 + (HEIGHT - 10.0) * (1.0 - share);
        let label = format!("{:.0}", most as f64 * share);
        let _ = writeln!(
            page,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 8.0,
            y + 4.0,
        );
    }
    let width = (WIDTH - LEFT) / bars.len() as f64;
    for (index, (label, calls)) in bars.iter().enumerate() {
        let bar_height = (HEIGHT - 10.0) * *calls as f64 / most as f64;
        let (x, y) = (LEFT + width * index as f64, HEIGHT - bar_height);
        let _ = writeln!(
            page,
            "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
             height=\"{bar_height:.1}\"><title>{label}: {}</title></rect>",
            width * 0.9,
            count(*calls),
        );
    }
    let y = height - 6.0;
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    let _ = writeln!(
        page,
        "<text x=\"{LEFT}\" y=\"{y}\">{first}</text><text x=\"{WIDTH}\" y=\"{y}\" \
         text-anchor=\"end\">{last}</text>\n</svg>"
    );
}

/// Returns a text of the command line or of a server as HTML.
fn shown(text: &str) -> String {
    let text = escape(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farcall::Channel;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::bench::load::{Load, Plan};
    use clap::Parser as _;

    #[tokio::test]
    async fn texts_of_others_are_no_markup() {
        let line = ["farcall", "bench", "tcp://<b>&", "<script>\x1b[2J/\"M\""];
        let Command::Bench(args) = Cli::parse_from(line).command else { panic!("it is a bench") };
        let plan =
            Plan { concurrency: 1, rate: Some(1e3), duration: Duration::from_secs(1), calls: None };
        let mut results = Load::new(plan).unwrap().finish();
        (50_000..900_000)
            .step_by(1_000)
            .for_each(|nanos| results.latencies.saturating_record(nanos));
        results.intervals.fill(14);
        let channel = Channel::builder("tcp://127.0.0.1:1").unwrap().connect_lazy();
        let page = page(&Report::new(&args.call, &results, &channel));
        assert!(page.contains("&lt;script&gt;\\u{1b}[2J/&quot;M&quot; at tcp://&lt;b&gt;&amp;"));
        assert!(!page.contains("<script") && !page.contains('\x1b'), "{page}");
        assert_eq!(page.matches("<rect ").count(), 72);
    }
}
