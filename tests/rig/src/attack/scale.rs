//! The short form of the attacks, and the full one.

use clap::ValueEnum;

/// The scale of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scale {
    /// A few seconds a row, for every build.
    Quick,
    /// The sizes at which the defects were found.
    Full,
}

impl Scale {
    /// One of two values.
    pub(super) fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        self.pick("quick", "full")
    }
}
