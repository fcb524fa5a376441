//! Medians and ranges of what rounds gave.

/// The middle and the ends of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The middle value; the mean of the two in the middle when their count is even.
    pub median: f64,
    /// The least value.
    pub least: f64,
    /// The greatest value.
    pub most: f64,
}

impl Spread {
    /// The spread of `values`; none when there is none, or one that is not a finite number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let (below, above) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { median: f64::midpoint(below, above), least, most })
    }
}

/// The ratios of two sides round by round, so that what disturbs a round disturbs both parts of its
/// ratio.
#[must_use]
pub fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        let spread = |values: &[f64]| Spread::of(values).unwrap();
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(spread(&[4.0, 1.0, 3.0, 2.0]).median, 2.5);
        assert_eq!(spread(&[7.0]), Spread { median: 7.0, least: 7.0, most: 7.0 });
    }

    #[test]
    fn nothing_and_what_is_no_number_have_no_median() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
        assert_eq!(Spread::of(&[1.0, f64::INFINITY]), None);
    }

    #[test]
    fn ratios_are_made_round_by_round() {
        assert_eq!(ratios(&[2.0, 9.0], &[4.0, 3.0]), [0.5, 3.0]);
    }
}
