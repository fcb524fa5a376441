//! Jain's fairness index: how equal shares are.

/// Jain's index (Jain, Chiu and Hawe, 1984): 1 when all shares are the same, 1/n when one of n has
/// everything. Where nothing is shared, all are alike.
#[must_use]
pub fn jain(shares: impl IntoIterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    if squares == 0.0 { 1.0 } else { sum * sum / (count * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_alike_or_one_has_everything() {
        assert_eq!(jain([2.0, 2.0, 2.0]), 1.0);
        assert_eq!(jain([1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!((jain([]), jain([0.0, 0.0])), (1.0, 1.0));
    }
}
