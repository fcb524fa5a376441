//! Tables that the file gives names, and the reference of all tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use rpc_core::settings::{Description, Effect, Slot, Slots, Table};

/// Tables by a name that the file chooses.
#[derive(Debug, Clone)]
pub(super) struct Named<T>(pub(super) BTreeMap<String, T>);

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
        for (name, table) in &defaults.0 {
            self.0.entry(name.clone()).or_insert_with(|| table.clone());
        }
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
pub(super) struct Joined<A, B>(pub(super) A, pub(super) B);

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

/// Says that a name is none of those that there are, and which one was probably meant.
pub(super) fn unknown<'a>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let near = known.clone().map(|it| (strsim::damerau_levenshtein(name, it), it)).min();
    match near {
        Some((distance, near)) if distance <= 1 + name.len() / 4 => {
            format!("there is no {kind} `{name}`: did you mean `{near}`?")
        }
        Some(_) => {
            let known: Vec<_> = known.collect();
            format!("there is no {kind} `{name}` here: there is {}", known.join(", "))
        }
        None => format!("there is no {kind} `{name}`, and no other"),
    }
}

/// Writes each key with its documentation and its default, all commented out. `effect` holds for
/// all keys of the table.
pub(super) fn describe(path: &str, table: &Description, effect: Effect, out: &mut String) {
    if table.keys.is_empty() && table.groups.is_empty() {
        return;
    }
    if !path.is_empty() {
        out.push('\n');
        describe_docs(table.docs, out);
        let _ = writeln!(out, "[{path}]");
    }
    for key in &table.keys {
        out.push('\n');
        describe_docs(key.docs, out);
        let mark = match key.effect.within(effect) {
            Effect::Live => "  # live",
            Effect::Start | Effect::CodeOnly => "",
        };
        let _ = writeln!(out, "# {} = {}{mark}", key.name, key.shown);
    }
    for group in table.groups.iter().filter(|group| !group.heading.is_empty()) {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{}", group.heading);
        describe(&path, &group.table, group.effect.within(effect), out);
    }
}

/// The first paragraph: what follows is for programmers.
fn describe_docs(docs: &[&str], out: &mut String) {
    for line in docs.iter().take_while(|line| !line.is_empty()) {
        let _ = writeln!(out, "#{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_the_one_that_was_meant() {
        let known = ["max_calls", "max_message_len"];
        let meant = |name| unknown("setting", name, known.into_iter());
        assert_eq!(meant("max_call"), "there is no setting `max_call`: did you mean `max_calls`?");
        assert!(meant("colour").ends_with("there is max_calls, max_message_len"));
    }
}
