//! Panels of bars side by side, as SVG for the README.
//!
//! The background is transparent. The colours have a contrast of more than 3 to 1 on white and on
//! the dark background of a code host.

use std::fmt::Write as _;

use crate::figures::short;

/// Bars of one quantity.
#[derive(Debug)]
pub(super) struct Panel<'a> {
    pub(super) title: &'a str,
    /// The label of the axis, with its unit.
    pub(super) axis: &'a str,
    /// The name and value of each bar. The first is highlighted.
    pub(super) bars: Vec<(&'a str, f64)>,
}

/// Pixels.
const PANEL: f64 = 380.0;
const LABELS: f64 = 64.0;
const BAR: f64 = 240.0;
const TOP: f64 = 46.0;
const ROW: f64 = 28.0;
const FOOT: f64 = 52.0;

const STYLE: &str = "text{font:13px sans-serif;fill:#6e7781}.title{font-weight:bold}\
                     .ours{fill:#1f78d1}.other{fill:#8b949e}line{stroke:#8b949e}";

/// Draws `panels` from left to right.
pub(super) fn draw(title: &str, panels: &[Panel<'_>]) -> String {
    let rows = panels.iter().map(|panel| panel.bars.len()).max().unwrap_or(0);
    let bottom = TOP + ROW * rows as f64;
    let (width, height) = (PANEL * panels.len() as f64, bottom + FOOT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" \
         height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n"
    );
    for (index, panel) in panels.iter().enumerate() {
        let left = PANEL * index as f64;
        // Writing to a string cannot fail.
        let _ = writeln!(svg, "<g transform=\"translate({left} 0)\">");
        add_axis(&mut svg, panel, bottom);
        add_bars(&mut svg, panel);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn add_bars(svg: &mut String, panel: &Panel<'_>) {
    let end = end(panel);
    for (row, (name, value)) in panel.bars.iter().enumerate() {
        let (top, middle) = (TOP + ROW * row as f64 + 4.0, TOP + ROW * row as f64 + 18.0);
        let length = value / end * BAR;
        let class = if row == 0 { "ours" } else { "other" };
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{name}</text>\n\
             <rect class=\"{class}\" x=\"{LABELS}\" y=\"{top}\" width=\"{length:.1}\" \
             height=\"20\"/>\n<text x=\"{:.1}\" y=\"{middle}\">{}</text>",
            LABELS - 8.0,
            LABELS + length + 6.0,
            short(*value),
        );
    }
}

fn add_axis(svg: &mut String, panel: &Panel<'_>, bottom: f64) {
    let right = LABELS + BAR;
    let _ = writeln!(
        svg,
        "<text class=\"title\" x=\"{LABELS}\" y=\"24\">{}</text>\n\
         <line x1=\"{LABELS}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        panel.title,
        LABELS + BAR / 2.0,
        bottom + 40.0,
        panel.axis,
    );
    let (step, end) = (step(panel), end(panel));
    for tick in (0..).map(|index| step * f64::from(index)).take_while(|tick| *tick <= end) {
        let x = LABELS + tick / end * BAR;
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{}\"/>\n\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>",
            bottom + 4.0,
            bottom + 18.0,
        );
    }
}

/// The distance of ticks: 1, 2 or 5 times a power of ten, for at most five of them.
fn step(panel: &Panel<'_>) -> f64 {
    let most = panel.bars.iter().map(|bar| bar.1).fold(f64::MIN_POSITIVE, f64::max);
    let power = 10_f64.powf((most / 5.0).log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0].into_iter();
    factors.map(|factor| factor * power).find(|step| most <= step * 5.0).unwrap_or(most)
}

/// The value at the end of the axis.
fn end(panel: &Panel<'_>) -> f64 {
    let step = step(panel);
    let most = panel.bars.iter().map(|bar| bar.1).fold(f64::MIN_POSITIVE, f64::max);
    (most / step).ceil() * step
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(bars: &[(&'static str, f64)]) -> Panel<'static> {
        Panel { title: "CPU per call", axis: "µs", bars: bars.to_vec() }
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let svg = draw("a title", &[panel(&[("farcall", 25.0), ("tonic", 100.0)])]);
        assert!(svg.contains("role=\"img\"") && svg.contains("<title>a title</title>"), "{svg}");
        assert!(svg.contains("class=\"ours\" x=\"64\" y=\"50\" width=\"60.0\""), "{svg}");
        assert!(svg.contains("class=\"other\" x=\"64\" y=\"78\" width=\"240.0\""), "{svg}");
        assert!(svg.contains(">µs</text>") && svg.contains(">100</text>"), "{svg}");
    }

    #[test]
    fn axes_end_at_a_round_number() {
        let scale = |most| {
            let panel = panel(&[("farcall", most)]);
            (step(&panel), end(&panel))
        };
        assert_eq!(scale(65.0), (20.0, 80.0));
        assert_eq!(scale(280.0), (100.0, 300.0));
        assert_eq!(scale(1.0), (0.2, 1.0));
    }
}
