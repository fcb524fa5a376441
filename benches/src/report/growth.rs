//! The figures that are curves: those that were measured at growing numbers.

use super::columns::COLUMNS;
use super::curves::Curve;
use crate::figures::Part;

/// A plot of a figure: what grows, and what of it is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    number: &'static str,
    pub(super) across: &'static str,
    pub(super) up: &'static str,
}

const GROWTHS: &[Growth] = &[
    growth("C1", "connections", "calls_per_s"),
    growth("C1", "connections", "cpu_us_per_call"),
    growth("C1", "connections", "p99_us"),
    growth("C4", "connections", "greedy_window"),
    growth("C4", "connections", "promised_kib_per_connection"),
    growth("C4", "connections", "half_share_round_trips"),
    growth("C4", "slots", "greedy_window"),
    growth("C5", "connections", "calls_per_s"),
    growth("C5", "connections", "p99_us"),
];

const fn growth(number: &'static str, across: &'static str, up: &'static str) -> Growth {
    Growth { number, across, up }
}

/// The plots of a figure; none for one that is shown as bars.
pub(super) fn of(number: &str) -> Vec<Growth> {
    GROWTHS.iter().filter(|growth| growth.number == number).copied().collect()
}

/// The curves of a plot: a side's name is that of its curve, a comma, and where it was measured.
/// Curves of a single point are left out.
pub(super) fn curves(part: &Part, growth: Growth) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (side, values) in &part.sides {
        let point = values.get(growth.across).zip(values.get(growth.up));
        let Some(((label, _), (&x, &y))) = side.rsplit_once(", ").zip(point) else { continue };
        if x <= 0.0 || y <= 0.0 {
            continue;
        }
        match curves.iter_mut().find(|curve| curve.label == label) {
            Some(curve) => curve.points.push((x, y)),
            None => curves.push(Curve { label: label.to_owned(), points: vec![(x, y)] }),
        }
    }
    curves.retain(|curve| curve.points.len() > 1);
    for curve in &mut curves {
        curve.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    curves
}

/// Returns the report's heading of a column.
pub(super) fn heading(name: &str) -> &'static str {
    COLUMNS.iter().find(|column| column.name == name).map_or("", |column| column.heading)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{GOALS, Sides, goal};

    #[test]
    fn sides_of_a_name_are_a_curve() {
        let at =
            |x: f64, y: f64| [("connections".to_owned(), x), ("calls_per_s".to_owned(), y)].into();
        let sides = Sides::from([
            ("farcall, 1000".into(), at(1000.0, 3.0)),
            ("farcall, 16".into(), at(16.0, 2.0)),
            ("farcall, 256".into(), at(256.0, 1.0)),
            ("tonic, 16".into(), at(16.0, 1.0)),
        ]);
        let part = Part::new(&goal("C1").unwrap().parts[0], vec![1.0], sides).unwrap();
        let curves = curves(&part, of("C1")[0]);
        assert_eq!(curves.len(), 1, "one point is no curve");
        assert_eq!(curves[0].points, [(16.0, 2.0), (256.0, 1.0), (1000.0, 3.0)]);
    }

    #[test]
    fn growths_are_of_figures_and_columns_that_there_are() {
        for growth in GROWTHS {
            assert!(GOALS.iter().any(|goal| goal.number == growth.number));
            assert!(!heading(growth.up).is_empty() && !heading(growth.across).is_empty());
        }
        assert!(of("T1").is_empty());
    }
}
