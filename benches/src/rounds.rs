//! The order in which sides are measured: A B, B A, A B, so that a drift of the machine falls on
//! all of them alike.

/// Measures each of `side_count` sides once in each of `round_count` rounds, forwards in even
/// rounds and backwards in odd ones. What comes back is, for each side, the measurements in the
/// order of the rounds.
///
/// # Errors
///
/// The first error of `measure`, which ends the rounds.
pub fn interleaved<T, E>(
    side_count: usize,
    round_count: usize,
    mut measure: impl FnMut(usize) -> Result<T, E>,
) -> Result<Vec<Vec<T>>, E> {
    let mut measured: Vec<Vec<T>> = (0..side_count).map(|_| Vec::new()).collect();
    for round in 0..round_count {
        for side in order(side_count, round) {
            measured[side].push(measure(side)?);
        }
    }
    Ok(measured)
}

/// The order in which `side_count` sides take their turns in a round.
pub fn order(side_count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..side_count).map(move |position| match round % 2 {
        0 => position,
        _ => side_count - 1 - position,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_round_goes_backwards() {
        let mut order = Vec::new();
        let measured = interleaved(3, 3, |side| {
            order.push(side);
            Ok::<_, ()>(order.len())
        });
        assert_eq!(order, [0, 1, 2, 2, 1, 0, 0, 1, 2]);
        assert_eq!(measured, Ok(vec![vec![1, 6, 7], vec![2, 5, 8], vec![3, 4, 9]]));
    }

    #[test]
    fn an_error_ends_the_rounds() {
        let mut count = 0;
        let measured = interleaved(2, 7, |side| {
            count += 1;
            if side == 1 { Err("broken") } else { Ok(side) }
        });
        assert_eq!((measured, count), (Err("broken"), 2));
    }
}
