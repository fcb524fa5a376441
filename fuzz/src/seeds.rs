//! Seeds for scripts: bytes of which a script is made in full.
//!
//! A script is drawn from bytes by `arbitrary`, which has no way back from a script to its bytes.
//! So seeds are searched for: of many random inputs, those are kept that give the most steps for
//! their length.

use arbitrary::{Arbitrary, Unstructured};
use fastrand::Rng;

/// Number of seeds of each target.
const COUNT: usize = 24;

/// Length of a seed, in bytes.
const LEN: usize = 400;

/// Of how many inputs a seed is the best.
const TRIES: usize = 30;

/// Seeds for scripts of `Step`s.
pub(crate) fn seeds<Step: for<'a> Arbitrary<'a>>() -> Vec<Vec<u8>> {
    let mut random = Rng::with_seed(5);
    let mut best = || {
        let tries = (0..TRIES).map(|_| (0..LEN).map(|_| random.u8(..)).collect::<Vec<_>>());
        tries.max_by_key(|input| step_count::<Step>(input)).unwrap_or_default()
    };
    (0..COUNT).map(|_| best()).collect()
}

fn step_count<Step: for<'a> Arbitrary<'a>>(input: &[u8]) -> usize {
    let mut input = Unstructured::new(input);
    let steps =
        std::iter::from_fn(
            || {
                if input.is_empty() { None } else { Step::arbitrary(&mut input).ok() }
            },
        );
    steps.count()
}
