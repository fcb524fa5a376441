//! The changes from one reading of the file to the next, and when each takes effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rpc_core::settings::{Effect, Named, Table as _};

use crate::settings::loaded::Loaded;
use crate::settings::places::dotted;
use crate::settings::tables::Root;

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reload {
    /// The keys that have other values, table by table. Empty where only files of TLS have changed,
    /// or nothing.
    pub changes: Vec<SettingChange>,
}

/// A key that has another value than before.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingChange {
    /// The key with its tables, as `targets.inventory.timeout`.
    pub key: String,
    /// The line of the new value, from 1; `None` where it is gone, or came from the environment.
    pub line: Option<usize>,
    /// The value before as it was written; `None` where there was none.
    pub old: Option<String>,
    /// The value now as it is written; `None` where there is none any more.
    pub new: Option<String>,
    /// Time at which the new value takes effect.
    pub effect: TakesEffect,
}

/// The time at which a new value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TakesEffect {
    /// From the next call, connection or accept on.
    Now,
    /// At the program's next start. Existing channels and servers keep the old value.
    NextStart,
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, line, old, new, effect } = self;
        write!(f, "{key}")?;
        if let Some(line) = line {
            write!(f, " (line {line})")?;
        }
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
        write!(f, ": was {}, is now {}", value(old), value(new))?;
        match effect {
            TakesEffect::Now => Ok(()),
            TakesEffect::NextStart => f.write_str("; that takes effect at the next start"),
        }
    }
}

/// The keys of targets and servers that those in use cannot take now, by the first name after
/// theirs: `tls` is the whole table.
#[derive(Debug, Default)]
pub(super) struct HeldBack {
    pub(super) targets: BTreeMap<String, BTreeSet<&'static str>>,
    pub(super) servers: BTreeMap<String, BTreeSet<&'static str>>,
    pub(super) log_filter: LogFilter,
}

/// The program's handling of its log filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum LogFilter {
    /// It has a hook for it.
    Hooked,
    /// It reads the filter when it starts, if ever.
    #[default]
    ReadAtStart,
}

/// Returns the changes from `old` to `new`.
pub(super) fn changes(old: &Loaded, new: &Loaded, held: &HeldBack) -> Vec<SettingChange> {
    let mut changes = Vec::new();
    old.root.each_change(&new.root, Effect::Live, &mut Vec::new(), &mut |names, effect| {
        let (was, is) = (old.places.written(names), new.places.written(names));
        changes.push(SettingChange {
            key: dotted(names),
            line: is.and_then(|(_, line)| line),
            old: was.map(|(text, _)| text.to_owned()),
            new: is.map(|(text, _)| text.to_owned()),
            effect: takes_effect(names, effect, (&old.root, &new.root), held),
        });
    });
    changes
}

fn takes_effect(
    names: &[String],
    effect: Effect,
    (old, new): (&Root, &Root),
    held: &HeldBack,
) -> TakesEffect {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let is_held = |held: Option<&BTreeSet<&str>>, key| held.is_some_and(|it| it.contains(key));
    let is_held_of_any = |held: &BTreeMap<String, BTreeSet<&'static str>>, key| {
        held.values().any(|it| is_held(Some(it), key))
    };
    let (existence, is_held) = match names[..] {
        ["targets", name, key, ..] => {
            let existence = Existence::new(name, &old.targets, &new.targets);
            (existence, is_held(held.targets.get(name), key))
        }
        ["servers", name, key, ..] => {
            let existence = Existence::new(name, &old.servers, &new.servers);
            (existence, is_held(held.servers.get(name), key))
        }
        ["defaults", "target", key, ..] => (Existence::Stays, is_held_of_any(&held.targets, key)),
        ["defaults", "server", key, ..] => (Existence::Stays, is_held_of_any(&held.servers, key)),
        ["log", ..] => (Existence::Stays, held.log_filter == LogFilter::ReadAtStart),
        _ => (Existence::Stays, false),
    };
    match (existence, effect) {
        // Nothing in use has another value.
        (Existence::Comes, _) => TakesEffect::Now,
        (Existence::Stays, Effect::Live) if !is_held => TakesEffect::Now,
        _ => TakesEffect::NextStart,
    }
}

/// The presence of a target or a server in both readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existence {
    Comes,
    Stays,
    /// It was removed. Channels or servers in use go on unchanged.
    Goes,
}

impl Existence {
    fn new<T>(name: &str, old: &Named<T>, new: &Named<T>) -> Self {
        match (old.0.contains_key(name), new.0.contains_key(name)) {
            (false, _) => Self::Comes,
            (true, true) => Self::Stays,
            (true, false) => Self::Goes,
        }
    }
}
