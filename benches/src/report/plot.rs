//! Plots, as SVG: bars of sides, and how far figures are from their aims.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// One bar.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: f64,
    /// The value as it is written at the bar's end.
    pub(super) shown: String,
}

/// A value as a multiple of its aim.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) label: String,
    /// The worst round.
    pub(super) least: f64,
    /// The median.
    pub(super) value: f64,
    /// The best round.
    pub(super) most: f64,
    /// The multiple at which the value may be shipped.
    pub(super) ship: f64,
}

/// Pixels.
const WIDTH: i32 = 760;
const LABELS: i32 = 270;
const VALUES: i32 = 80;
const ROW: i32 = 24;
const HEAD: i32 = 40;

const BLUE: RGBColor = RGBColor(48, 99, 170);
const GREY: RGBColor = RGBColor(140, 140, 140);
const RED: RGBColor = RGBColor(190, 60, 50);

/// The multiples of the aim at the ends of the scale, which is logarithmic.
const MULTIPLES: (f64, f64) = (1.0 / 16.0, 4.0);

/// Bars, one a row, the first in another colour than those that it is compared with.
pub(super) fn bars(title: &str, bars: &[Bar]) -> Result<String> {
    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    draw(bars.len(), |area| {
        text(area, title, (10, HEAD / 2), HPos::Left)?;
        for (row, bar) in (0..).zip(bars) {
            let middle = middle(row);
            let end = LABELS + pixels(bar.value / most * f64::from(WIDTH - LABELS - VALUES));
            let colour = if bar.label.starts_with("farcall") { BLUE } else { GREY };
            let corners = [(LABELS, middle - ROW / 3), (end, middle + ROW / 3)];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
            text(area, &bar.label, (LABELS - 8, middle), HPos::Right)?;
            text(area, &bar.shown, (end + 6, middle), HPos::Left)?;
        }
        Ok(())
    })
}

/// A row for each mark: the range of its rounds, its median, and what may be shipped, on a scale
/// whose line in the middle is the aim.
pub(super) fn marks(marks: &[Mark]) -> Result<String> {
    draw(marks.len() + 1, |area| {
        text(area, "times as good as the aim (red: ship)", (10, HEAD / 2), HPos::Left)?;
        let rows = i32::try_from(marks.len())?;
        let (top, bottom) = (HEAD, middle(rows) - ROW / 2);
        for multiple in [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0] {
            let x = position(multiple);
            let colour = if multiple == 1.0 { BLACK } else { RGBColor(215, 215, 215) };
            area.draw(&PathElement::new([(x, top), (x, bottom)], colour))?;
            text(area, &multiple.to_string(), (x, bottom + ROW / 2), HPos::Center)?;
        }
        for (row, mark) in (0..).zip(marks) {
            let y = middle(row);
            text(area, &mark.label, (LABELS - 8, y), HPos::Right)?;
            let range = [(position(mark.least), y), (position(mark.most), y)];
            area.draw(&PathElement::new(range, BLUE.stroke_width(3)))?;
            area.draw(&Circle::new((position(mark.value), y), 5, BLUE.filled()))?;
            let x = position(mark.ship);
            area.draw(&PathElement::new([(x, y - 8), (x, y + 8)], RED.stroke_width(2)))?;
        }
        Ok(())
    })
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(row_count: usize, onto: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    canvas(HEAD + ROW * i32::try_from(row_count)? + ROW / 2, onto)
}

/// A drawing of this height in pixels.
pub(super) fn canvas(height: i32, onto: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let size = (u32::try_from(WIDTH)?, u32::try_from(height)?);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        onto(&area)?;
        area.present()?;
    }
    Ok(svg)
}

pub(super) fn text(area: &Area<'_>, message: &str, at: (i32, i32), side: HPos) -> Result<()> {
    let style = ("sans-serif", 14).into_text_style(area).pos(Pos::new(side, VPos::Center));
    Ok(area.draw(&Text::new(message.to_owned(), at, style))?)
}

fn middle(row: i32) -> i32 {
    HEAD + row * ROW + ROW / 2
}

/// Returns the position of a multiple of the aim. Beyond the scale it is the end of the scale.
fn position(multiple: f64) -> i32 {
    let (least, most) = MULTIPLES;
    let part = (multiple.clamp(least, most) / least).ln() / (most / least).ln();
    LABELS + pixels(part * f64::from(WIDTH - LABELS - VALUES))
}

#[allow(clippy::cast_possible_truncation, reason = "a plot is a few hundred pixels wide")]
pub(super) fn pixels(length: f64) -> i32 {
    length.round() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_labels_and_values() {
        let bar = |label: &str, value: f64| Bar {
            label: label.to_owned(),
            value,
            shown: value.to_string(),
        };
        let svg = bars("a title", &[bar("farcall", 2.0), bar("a < b", 4.0)]).unwrap();
        assert!(svg.starts_with("<svg"), "{svg}");
        assert!(svg.contains("a title") && svg.contains("farcall") && svg.contains("a &lt; b"));
    }

    #[test]
    fn the_scale_is_logarithmic_and_has_ends() {
        assert!(position(1.0) - position(0.5) == position(0.5) - position(0.25));
        assert_eq!(position(0.0), position(MULTIPLES.0));
        assert_eq!(position(1000.0), position(MULTIPLES.1));
        let mark = Mark { label: "T1".into(), least: 0.5, value: 0.7, most: 0.9, ship: 0.8 };
        assert!(marks(&[mark]).unwrap().contains("T1"));
    }
}
