//! Curves, as SVG: what something costs over ever more of something else, both on logarithmic
//! scales. What a model says is a line without points.

use anyhow::{Result, ensure};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::plot::{Area, canvas, pixels, text};

/// One curve.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) label: String,
    /// By their places on the horizontal scale.
    pub(super) points: Vec<(f64, f64)>,
}

/// The labels of the scales.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axes<'a> {
    pub(super) across: &'a str,
    pub(super) up: &'a str,
}

/// Pixels: the field of the curves, within the whole.
const HEIGHT: i32 = 360;
const LEFT: i32 = 80;
const RIGHT: i32 = 500;
const TOP: i32 = 44;
const BOTTOM: i32 = HEIGHT - 60;
const LEGEND_ROW: i32 = 20;

const COLOURS: [RGBColor; 6] = [
    RGBColor(48, 99, 170),
    RGBColor(190, 60, 50),
    RGBColor(60, 140, 70),
    RGBColor(150, 90, 170),
    RGBColor(200, 130, 30),
    RGBColor(60, 150, 160),
];
const GRID: RGBColor = RGBColor(225, 225, 225);
const MODEL: RGBColor = RGBColor(140, 140, 140);

/// Draws them.
///
/// # Errors
///
/// Returns an error if there is nothing to draw.
pub(super) fn draw(title: &str, axes: Axes<'_>, curves: &[Curve]) -> Result<String> {
    let points = || curves.iter().flat_map(|curve| curve.points.iter());
    ensure!(points().all(|(x, y)| *x > 0.0 && *y > 0.0), "logarithms of what is above zero");
    let across = Scale::of(points().map(|point| point.0), (LEFT, RIGHT))?;
    let up = Scale::of(points().map(|point| point.1), (BOTTOM, TOP))?;
    canvas(HEIGHT, |area| {
        text(area, title, (10, 20), HPos::Left)?;
        text(area, axes.across, ((LEFT + RIGHT) / 2, HEIGHT - 16), HPos::Center)?;
        text(area, axes.up, (LEFT, TOP - 8), HPos::Left)?;
        for (mark, x) in across.marks() {
            area.draw(&PathElement::new([(x, TOP), (x, BOTTOM)], GRID))?;
            text(area, &mark, (x, BOTTOM + 14), HPos::Center)?;
        }
        for (mark, y) in up.marks() {
            area.draw(&PathElement::new([(LEFT, y), (RIGHT, y)], GRID))?;
            text(area, &mark, (LEFT - 6, y), HPos::Right)?;
        }
        let mut colours = COLOURS.into_iter().cycle();
        for (row, curve) in (0..).zip(curves) {
            let is_model = is_model(curve);
            let colour = if is_model { MODEL } else { colours.next().unwrap_or(BLACK) };
            let places: Vec<(i32, i32)> =
                curve.points.iter().map(|(x, y)| (across.place(*x), up.place(*y))).collect();
            let legend = TOP + LEGEND_ROW * row + LEGEND_ROW / 2;
            line(area, &places, (colour, is_model))?;
            line(area, &[(RIGHT + 12, legend), (RIGHT + 32, legend)], (colour, is_model))?;
            text(area, &curve.label, (RIGHT + 38, legend), HPos::Left)?;
        }
        Ok(())
    })
}

/// Draws a line. A model is a line alone; measured values have their points on it.
fn line(
    area: &Area<'_>,
    places: &[(i32, i32)],
    (colour, is_model): (RGBColor, bool),
) -> Result<()> {
    let width = if is_model { 1 } else { 2 };
    area.draw(&PathElement::new(places.to_vec(), colour.stroke_width(width)))?;
    if !is_model {
        for &place in places {
            area.draw(&Circle::new(place, 4, colour.filled()))?;
        }
    }
    Ok(())
}

fn is_model(curve: &Curve) -> bool {
    curve.label.starts_with("model")
}

/// A logarithmic scale between two pixels.
struct Scale {
    least: f64,
    most: f64,
    ends: (i32, i32),
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>, ends: (i32, i32)) -> Result<Self> {
        let (least, most) = values
            .fold((f64::MAX, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        ensure!(least <= most, "no point to draw");
        // A little room, so that no point lies on the frame.
        Ok(Self { least: least / 1.25, most: most * 1.25, ends })
    }

    fn place(&self, value: f64) -> i32 {
        let part = (value / self.least).ln() / (self.most / self.least).ln();
        let (from, to) = self.ends;
        from + pixels(part * f64::from(to - from))
    }

    /// Powers of ten, and where those are few, twice and five times them too.
    fn marks(&self) -> Vec<(String, i32)> {
        let factors: &[f64] =
            if self.most / self.least > 200.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let powers = (-3..9).map(|power| 10_f64.powi(power));
        let values = powers.flat_map(|power| factors.iter().map(move |factor| factor * power));
        let inside = values.filter(|value| (self.least..=self.most).contains(value));
        inside.map(|value| (shown(value), self.place(value))).collect()
    }
}

fn shown(value: f64) -> String {
    let digits = usize::from(value < 1.0) * 3;
    let text = format!("{value:.digits$}");
    if digits == 0 { text } else { text.trim_end_matches('0').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(label: &str, points: &[(f64, f64)]) -> Curve {
        Curve { label: label.to_owned(), points: points.to_vec() }
    }

    #[test]
    fn curves_have_names_and_points_and_models_have_none() {
        let axes = Axes { across: "connections", up: "window" };
        let curves = [curve("lanes", &[(1.0, 2.0), (1000.0, 4.0)]), curve("model", &[(1.0, 1.0)])];
        let svg = draw("a title", axes, &curves).unwrap();
        assert!(svg.contains("a title") && svg.contains("connections") && svg.contains("lanes"));
        // Two points and two in the legend.
        assert_eq!(svg.matches("<circle").count(), 4, "{svg}");
        assert!(draw("nothing", axes, &[]).is_err());
        assert!(draw("below", axes, &[curve("a", &[(0.0, 1.0)])]).is_err());
    }

    #[test]
    fn marks_are_round_numbers() {
        let scale = Scale::of([0.5, 8.0].into_iter(), (0, 100)).unwrap();
        let marks: Vec<String> = scale.marks().into_iter().map(|(mark, _)| mark).collect();
        assert_eq!(marks, ["0.5", "1", "2", "5", "10"]);
        let scale = Scale::of([1.0, 1000.0].into_iter(), (0, 100)).unwrap();
        assert_eq!(scale.marks().len(), 4);
    }
}
