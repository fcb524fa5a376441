//! Settings in layers: what a file sets, and over it what the program's code sets.

use std::fmt::Debug;

use super::{InvalidSetting, Table};

/// Settings that are declared: resolved values, each of which may be set in several layers.
///
/// [`define_settings`](crate::define_settings) implements it.
pub trait Settings: Clone + Debug {
    /// A table of these settings in which each may be absent.
    type Overlay: Table + Debug + From<Self>;

    /// The defaults.
    const DEFAULTS: Self;

    /// Lays what is set over `defaults`.
    #[must_use]
    fn over(overlay: &Self::Overlay, defaults: &Self) -> Self;

    /// Lays what is set over the defaults.
    #[must_use]
    fn resolve(overlay: &Self::Overlay) -> Self {
        Self::over(overlay, &Self::DEFAULTS)
    }

    /// Checks the range of each value, and the rules for several together.
    ///
    /// # Errors
    ///
    /// Returns the first value that cannot be.
    fn check_all(&self) -> Result<(), InvalidSetting>;

    /// Returns the first value that cannot be of each group, or else of the whole.
    fn faults(&self) -> Vec<InvalidSetting> {
        self.check_all().err().into_iter().collect()
    }
}

/// The values that are set, by the place that sets them. Code takes precedence, key by key.
#[derive(Debug)]
pub struct Layers<T: Settings> {
    /// The keys that a file and the environment set.
    pub file: T::Overlay,
    /// The keys that the program's code sets.
    pub code: T::Overlay,
}

impl<T: Settings> Layers<T> {
    /// Lays the file over the defaults, and the code over both.
    #[must_use]
    pub fn resolve(&self) -> T {
        T::resolve(&self.code.clone().or(&self.file))
    }
}

impl<T: Settings> Clone for Layers<T> {
    fn clone(&self) -> Self {
        Self { file: self.file.clone(), code: self.code.clone() }
    }
}

impl<T: Settings> Default for Layers<T> {
    fn default() -> Self {
        Self { file: T::Overlay::default(), code: T::Overlay::default() }
    }
}
