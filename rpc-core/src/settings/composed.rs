//! Tables that consist of others: several by name, and two that are one in the file.

use std::collections::{BTreeMap, BTreeSet};

use super::{Description, Effect, Slot, Slots, Table};

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

    fn each_key(&self, path: &mut Vec<String>, visit: &mut dyn FnMut(&[String])) {
        for (name, table) in &self.0 {
            path.push(name.clone());
            table.each_key(path, visit);
            path.pop();
        }
    }
}

/// Two tables that are one in the file.
#[derive(Debug, Clone, Default)]
pub struct Joined<A, B>(pub A, pub B);

impl<A: Table, B: Table> Slots for Joined<A, B> {
    fn names(&self) -> Vec<&'static str> {
        Self::describe().names()
    }

    fn slot(&mut self, name: &str) -> Option<Slot<'_>> {
        let Self(first, second) = self;
        first.slot(name).or_else(|| second.slot(name))
    }
}

impl<A: Table, B: Table> Table for Joined<A, B> {
    fn or(self, defaults: &Self) -> Self {
        Self(self.0.or(&defaults.0), self.1.or(&defaults.1))
    }

    fn describe() -> Description {
        let (mut all, second) = (A::describe(), B::describe());
        all.keys.extend(second.keys);
        all.groups.extend(second.groups);
        all
    }

    fn each_change(
        &self,
        new: &Self,
        effect: Effect,
        path: &mut Vec<String>,
        visit: &mut dyn FnMut(&[String], Effect),
    ) {
        self.0.each_change(&new.0, effect, path, visit);
        self.1.each_change(&new.1, effect, path, visit);
    }

    fn each_key(&self, path: &mut Vec<String>, visit: &mut dyn FnMut(&[String])) {
        self.0.each_key(path, visit);
        self.1.each_key(path, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::define_overlay! {
        /// A table.
        Inner {
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
