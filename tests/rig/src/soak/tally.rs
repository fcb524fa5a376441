//! Counts of calls by their ends.

use std::fmt;

/// The kinds of calls, by their names.
pub(super) const KINDS: [&str; 4] = ["unary", "download", "upload", "chat"];

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With the answer that it had to have.
    Answered,
    /// Because its deadline passed.
    TimedOut,
    /// Because the client dropped it.
    Cancelled,
}

/// Number of calls of each kind, by end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    counts: [[u64; 3]; KINDS.len()],
}

impl Tally {
    pub(super) fn add(&mut self, kind: usize, ended: Ended) {
        self.counts[kind][ended as usize] += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let pairs = self.counts.as_flattened_mut().iter_mut().zip(other.counts.as_flattened());
        pairs.for_each(|(mine, theirs)| *mine += theirs);
    }

    /// All calls that ended.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.as_flattened().iter().sum()
    }

    /// The calls that ended so, of all kinds.
    #[must_use]
    pub fn ended(&self, how: Ended) -> u64 {
        self.counts.iter().map(|counts| counts[how as usize]).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, [answered, timed_out, cancelled]) in KINDS.iter().zip(self.counts) {
            writeln!(
                f,
                "  {kind:<8} {answered:>7} answered {timed_out:>7} timed out \
                 {cancelled:>7} cancelled",
            )?;
        }
        Ok(())
    }
}
