//! Settings composed of others: in layers, of what a file sets and over it what the program's code
//! sets; and tables by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use super::{Description, Effect, Slot, Slots, Table};
use crate::settings::InvalidSetting;

/// Tables by a name that the file chooses.
#[derive(Debug, Clone)]
pub struct Named<T>(pub BTreeMap<String, T>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Table> Slots for Named<T> {
    fn names(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn slot(&mut self, name: &str) -> Option<Slot<'_>> {
        Some(Slot::Table(self.0.entry(name.to_owned()).or_default()))
    }

    fn kind(&self) -> &'static str {
        "tables by name"
    }
}

impl<T: Table> Table for Named<T> {
    fn or(mut self, defaults: &Self) -> Self {
        // A method's name may begin with a slash or not.
        let bare = |name: &str| name.trim_start_matches('/').to_owned();
        let own: BTreeSet<_> = self.0.keys().map(|name| bare(name)).collect();
        let others = defaults.0.iter().filter(|(name, _)| !own.contains(&bare(name)));
        self.0.extend(others.map(|(name, table)| (name.clone(), table.clone())));
        self
    }

    fn describe() -> Description {
        T::describe()
    }

    fn each_change(
        &self,
        new: &Self,
        effect: Effect,
        path: &mut Vec<String>,
        visit: &mut dyn FnMut(&[String], Effect),
    ) {
        let (none, names) = (T::default(), self.0.keys().chain(new.0.keys()));
        for name in names.collect::<BTreeSet<_>>() {
            path.push(name.clone());
            let old = self.0.get(name).unwrap_or(&none);
            old.each_change(new.0.get(name).unwrap_or(&none), effect, path, visit);
            path.pop();
        }
    }

    fn each_key(&self, path: &mut Vec<String>, visit: &mut dyn FnMut(&[String], Option<String>)) {
        for (name, table) in &self.0 {
            path.push(name.clone());
            table.each_key(path, visit);
            path.pop();
        }
    }

    fn written(&self, key: &str) -> Option<String> {
        let (name, key) = key.rsplit_once('.')?;
        self.0.get(name)?.written(key)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    crate::define_overlay! {
        /// A table.
        Inner of Inner {
            /// A number.
            number: u8 as Plain = "1", Live, .., "";
        } tables {}
    }

    #[test]
    fn slash_before_a_method_makes_no_other_name() {
        let named = |all: &[(&str, u8)]| {
            let all = all.iter().map(|(name, number)| ((*name).to_owned(), Some(*number)));
            Named(all.map(|(name, number)| (name, Inner { number })).collect())
        };
        let both = named(&[("a.B/C", 1), ("/d.E/F", 2)]).or(&named(&[("/a.B/C", 3), ("d.E", 4)]));
        let numbers: Vec<_> = both.0.iter().map(|(name, it)| (name.as_str(), it.number)).collect();
        assert_eq!(numbers, [("/d.E/F", Some(2)), ("a.B/C", Some(1)), ("d.E", Some(4))]);
    }
}
