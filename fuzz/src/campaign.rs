//! Replaying a corpus, and mutating it for a bounded number of runs.
//!
//! `FARCALL_FUZZ_SEED` repeats a campaign, `FARCALL_FUZZ_FACTOR` makes it longer. What fails is
//! printed as hexadecimal digits, and belongs into the corpus once it is understood.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use mutatis::Session;

use crate::Target;

/// Inputs do not grow beyond this.
const LEN_MAX: usize = 2048;

/// The most mutations of one input.
const MUTATIONS_MAX: usize = 8;

/// The length and the seed of a campaign.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// Seed of the mutations.
    pub seed: u64,
    /// Length, as a multiple of the short campaign's.
    pub factor: u32,
}

impl Campaign {
    /// Reads the campaign from the environment. Without variables it is a short one with a fixed
    /// seed.
    #[must_use]
    pub fn from_env() -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        Self {
            seed: number("FARCALL_FUZZ_SEED").unwrap_or(1).into(),
            factor: number("FARCALL_FUZZ_FACTOR").unwrap_or(1),
        }
    }
}

/// Prints an input that made its target panic.
struct Shown<'a> {
    target: &'a Target,
    input: &'a [u8],
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut digits = String::new();
            for byte in self.input {
                // Writing to a `String` cannot fail.
                let _ = write!(digits, "{byte:02x}");
            }
            eprintln!("{} panics on {digits}", self.target.name);
        }
    }
}

/// Returns the folder of a target's corpus.
#[must_use]
pub fn corpus_dir(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// The corpus of a target, in the order of its files' names.
///
/// # Errors
///
/// Returns an error if it cannot be read.
pub fn corpus(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let entries = fs::read_dir(corpus_dir(target))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    paths.iter().map(fs::read).collect()
}

/// Runs a target on its corpus, then on mutations of it, and says how often it ran.
///
/// # Errors
///
/// Returns an error if the corpus cannot be read.
///
/// # Panics
///
/// Panics if the target does; the input is printed.
pub fn run(target: &Target, campaign: Campaign) -> io::Result<u32> {
    let corpus = corpus(target)?;
    corpus.iter().for_each(|input| once(target, input));
    let mut random = Rng::with_seed(campaign.seed);
    let mut mutations = Session::new().seed(campaign.seed);
    let runs = target.runs.saturating_mul(campaign.factor);
    for _ in 0..runs {
        let input = mutated(&corpus, &mut random, &mut mutations);
        once(target, &input);
    }
    Ok(runs)
}

fn once(target: &Target, input: &[u8]) {
    let _shown = Shown { target, input };
    (target.run)(input);
}

/// One input of the corpus, perhaps with another's end, changed in a few places.
fn mutated(corpus: &[Vec<u8>], random: &mut Rng, mutations: &mut Session) -> Vec<u8> {
    let Some(mut input) = random.choice(corpus).cloned() else { return Vec::new() };
    if random.u8(0..4) == 0
        && let Some(other) = random.choice(corpus)
    {
        input.truncate(random.usize(0..=input.len()));
        input.extend_from_slice(&other[random.usize(0..=other.len())..]);
        input.truncate(LEN_MAX);
    }
    for _ in 0..random.usize(1..=MUTATIONS_MAX) {
        // Nothing can be removed from an empty input, and so on: then it stays as it is.
        let _ = mutations.mutate(&mut input);
    }
    input
}
