//! The page as HTML.

use std::fmt::Write as _;

use super::plot::plots;
use super::tables::{Table, facts, tables};
use crate::server::admin::api::Snapshot;

/// Seconds between two loads of the page.
const REFRESH: u32 = 5;

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--a:#1769aa;--b:#c25e00;--c:#c62828;--dim:#666}
@media(prefers-color-scheme:dark){:root{--a:#64b5f6;--b:#ffb74d;--c:#ef9a9a;--dim:#aaa}}
*{box-sizing:border-box}
body{font:14px/1.45 system-ui,sans-serif;margin:0 auto;padding:16px;max-width:1400px}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 16px}
h1{font-size:20px;margin:0}
h2{font-size:15px;margin:24px 0 6px}
a{color:var(--a)}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(140px,1fr));gap:10px;margin:14px 0}
dt{color:var(--dim);font-size:12px}
dd{margin:0;font-weight:600;overflow-wrap:anywhere}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(270px,1fr));gap:14px}
figure{margin:0;border:1px solid var(--line);border-radius:6px;padding:8px 10px}
figcaption{font-weight:600}
figcaption span{font-weight:400;white-space:nowrap;margin-left:6px}
span.a{color:var(--a)}span.b{color:var(--b)}span.c{color:var(--c)}
svg{display:block;width:100%;height:90px;margin:6px 0 2px;border-bottom:1px solid var(--line)}
polyline{fill:none;stroke-width:1.6;vector-effect:non-scaling-stroke}
polyline.a{stroke:var(--a)}polyline.b{stroke:var(--b)}polyline.c{stroke:var(--c)}
.axis{display:flex;justify-content:space-between;color:var(--dim);font-size:12px}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}
th,td{padding:3px 14px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{color:var(--dim);font-weight:500;white-space:nowrap}
td{white-space:nowrap}
td:last-child{white-space:normal;min-width:20em;overflow-wrap:anywhere}
.n{text-align:right}
.none{color:var(--dim)}";

/// Returns the page. It is loaded again by itself unless `is_still`.
pub(super) fn page(snapshot: &Snapshot, is_still: bool) -> String {
    let refresh = match is_still {
        true => String::new(),
        false => format!("<meta http-equiv=\"refresh\" content=\"{REFRESH}\">"),
    };
    let toggle = match is_still {
        true => "<a href=\"/debug/farcall\">refresh every 5 s</a>",
        false => "<a href=\"/debug/farcall?refresh=off\">stop refreshing</a>",
    };
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">{refresh}\
         <title>farcall</title><style>{STYLE}</style></head><body>\
         <header><h1>farcall</h1>{toggle}</header><dl>"
    );
    for (name, value) in facts(snapshot) {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value));
    }
    let _ = write!(out, "</dl><div class=\"plots\">{}</div>", plots(&snapshot.history));
    for table in tables(snapshot) {
        add(&mut out, &table);
    }
    out.push_str("</body></html>\n");
    out
}

fn add(out: &mut String, Table { title, empty, columns, rows }: &Table) {
    let _ = write!(out, "<section><h2>{title}</h2>");
    if rows.is_empty() {
        let _ = write!(out, "<p class=\"none\">{empty}</p></section>");
        return;
    }
    out.push_str("<div class=\"wide\"><table><thead><tr>");
    let class = |is_figure: bool| if is_figure { " class=\"n\"" } else { "" };
    for column in columns {
        let _ = write!(out, "<th{}>{}</th>", class(column.is_figure), column.name);
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for (cell, column) in row.iter().zip(columns) {
            let _ = write!(out, "<td{}>{}</td>", class(column.is_figure), escape(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></section>");
}

/// Escapes a text for HTML.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(character),
        }
    }
    out
}
