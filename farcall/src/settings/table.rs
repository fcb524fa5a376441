//! What every table of settings has: its keys with their documentation, defaults and checks.
//!
//! A table is declared once, by [`table!`]. The reader, the rule by which one table fills the gaps
//! of another, and the reference file come from that declaration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::marker::PhantomData;

use rpc_core::InvalidSetting;
use serde_core::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

/// A table of settings, each of which may be absent.
pub(super) trait Table: Default + Clone {
    /// This table, with the settings of `defaults` where it has none.
    #[must_use]
    fn or(self, defaults: &Self) -> Self;

    /// Writes each key with its documentation and its default, all commented out.
    /// `reload` is what holds for all keys of the table.
    fn describe(path: &str, reload: Reload, out: &mut String);

    /// Shows `visit` each key that has another value in `new`, with the names of its tables, of
    /// which the first are in `path`, and whether it changes while the program runs.
    fn each_change(
        &self,
        new: &Self,
        reload: Reload,
        path: &mut Vec<String>,
        visit: &mut dyn FnMut(&[String], Reload),
    );

    /// Shows `visit` each key that the table has or could have, with the names of its tables, of
    /// which the first are in `path`.
    fn each_key(&self, path: &mut Vec<String>, visit: &mut dyn FnMut(&[String]));
}

/// When another value of a key takes effect. Each key says so where it is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reload {
    /// While the program runs.
    Live,
    /// When it starts again.
    AtStart,
}

impl Reload {
    /// What holds for a key within a table.
    pub(super) fn within(self, table: Self) -> Self {
        match table {
            Self::Live => self,
            Self::AtStart => Self::AtStart,
        }
    }
}

/// Tables by a name that the file chooses.
#[derive(Debug, Clone)]
pub(super) struct Named<T>(pub(super) BTreeMap<String, T>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Table> Table for Named<T> {
    fn or(mut self, defaults: &Self) -> Self {
        for (name, table) in &defaults.0 {
            self.0.entry(name.clone()).or_insert_with(|| table.clone());
        }
        self
    }

    fn describe(path: &str, reload: Reload, out: &mut String) {
        T::describe(path, reload, out);
    }

    fn each_change(
        &self,
        new: &Self,
        reload: Reload,
        path: &mut Vec<String>,
        visit: &mut dyn FnMut(&[String], Reload),
    ) {
        let (none, names) = (T::default(), self.0.keys().chain(new.0.keys()));
        for name in names.collect::<BTreeSet<_>>() {
            path.push(name.clone());
            let old = self.0.get(name).unwrap_or(&none);
            old.each_change(new.0.get(name).unwrap_or(&none), reload, path, visit);
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

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tables<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Tables<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tables by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut tables = BTreeMap::new();
                while let Some((name, table)) = map.next_entry()? {
                    tables.insert(name, table);
                }
                Ok(Named(tables))
            }
        }
        deserializer.deserialize_map(Tables(PhantomData))
    }
}

/// Reads a key, and refuses one that the table does not have.
pub(super) struct Key(pub(super) &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a setting")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<&'static str, E> {
        let found = self.0.iter().copied().find(|key| *key == text);
        found.ok_or_else(|| E::custom(unknown("setting", text, self.0.iter().copied())))
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

/// Reads a value, and refuses one that its setting does not take.
pub(super) struct Checked<T, F>(F, PhantomData<T>);

impl<T, F> Checked<T, F>
where
    F: FnOnce(&T) -> Result<(), InvalidSetting>,
{
    pub(super) fn new(check: F) -> Self {
        Self(check, PhantomData)
    }
}

impl<'de, T, F> DeserializeSeed<'de> for Checked<T, F>
where
    T: Deserialize<'de>,
    F: FnOnce(&T) -> Result<(), InvalidSetting>,
{
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        let value = T::deserialize(deserializer)?;
        // The reader knows the setting's name by its place.
        let wrong = |error: InvalidSetting| {
            format!("it is {}: it has to be {}", error.value(), error.rule())
        };
        (self.0)(&value).map_err(|error| D::Error::custom(wrong(error)))?;
        Ok(value)
    }
}

/// Writes the heading of a table in the reference file.
pub(super) fn describe_heading(path: &str, docs: &[&str], out: &mut String) {
    if path.is_empty() {
        return;
    }
    out.push('\n');
    describe_docs(docs, out);
    let _ = writeln!(out, "[{path}]");
}

/// Writes one key of the reference file.
pub(super) fn describe_key(
    key: &str,
    default: &str,
    docs: &[&str],
    reload: Reload,
    out: &mut String,
) {
    out.push('\n');
    describe_docs(docs, out);
    let mark = match reload {
        Reload::Live => "  # live",
        Reload::AtStart => "",
    };
    let _ = writeln!(out, "# {key} = {default}{mark}");
}

fn describe_docs(docs: &[&str], out: &mut String) {
    for line in docs {
        let _ = writeln!(out, "#{line}");
    }
}

/// Declares a table: values with a default as TOML has it, when another value takes effect (a
/// variant of [`Reload`]), and a check; then tables within it with their heading in the reference
/// file, which is empty for one that is left out there. A table that is `AtStart` has no key that
/// is `Live`.
macro_rules! table {
    (
        $(#[doc = $about:literal])*
        $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $key:ident: $type:ty = $default:literal, $reload:ident, $check:expr;
            )*
        } tables {
            $($table:ident: $inner:ty = $heading:literal, $within:ident;)*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, Default)]
        pub(super) struct $name {
            $(pub(super) $key: Option<$type>,)*
            $(pub(super) $table: $inner,)*
        }

        impl $crate::settings::table::Table for $name {
            fn or(self, defaults: &Self) -> Self {
                Self {
                    $($key: self.$key.or_else(|| defaults.$key.clone()),)*
                    $($table: self.$table.or(&defaults.$table),)*
                }
            }

            fn describe(path: &str, reload: $crate::settings::table::Reload, out: &mut String) {
                use $crate::settings::table::{self, Reload};

                table::describe_heading(path, &[$($about),*], out);
                $({
                    let (docs, reload) = (&[$($doc),*], Reload::$reload.within(reload));
                    table::describe_key(stringify!($key), $default, docs, reload, out);
                })*
                $(
                    if !$heading.is_empty() {
                        let dot = if path.is_empty() { "" } else { "." };
                        let path = format!("{path}{dot}{}", $heading);
                        <$inner>::describe(&path, Reload::$within.within(reload), out);
                    }
                )*
            }

            fn each_change(
                &self,
                new: &Self,
                reload: $crate::settings::table::Reload,
                path: &mut Vec<String>,
                visit: &mut dyn FnMut(&[String], $crate::settings::table::Reload),
            ) {
                use $crate::settings::table::Reload;

                $(
                    if self.$key != new.$key {
                        path.push(stringify!($key).to_owned());
                        visit(path, Reload::$reload.within(reload));
                        path.pop();
                    }
                )*
                $(
                    path.push(stringify!($table).to_owned());
                    let within = Reload::$within.within(reload);
                    self.$table.each_change(&new.$table, within, path, visit);
                    path.pop();
                )*
            }

            fn each_key(&self, path: &mut Vec<String>, visit: &mut dyn FnMut(&[String])) {
                $(
                    path.push(stringify!($key).to_owned());
                    visit(path);
                    path.pop();
                )*
                $(
                    path.push(stringify!($table).to_owned());
                    self.$table.each_key(path, visit);
                    path.pop();
                )*
            }
        }

        impl<'de> serde_core::Deserialize<'de> for $name {
            fn deserialize<D>(deserializer: D) -> Result<Self, D::Error>
            where
                D: serde_core::Deserializer<'de>,
            {
                use $crate::settings::table;

                struct Values;
                impl<'de> serde_core::de::Visitor<'de> for Values {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a table")
                    }

                    fn visit_map<A>(self, mut map: A) -> Result<$name, A::Error>
                    where
                        A: serde_core::de::MapAccess<'de>,
                    {
                        const KEYS: &[&str] =
                            &[$(stringify!($key),)* $(stringify!($table),)*];
                        let mut table = $name::default();
                        while let Some(key) = map.next_key_seed(table::Key(KEYS))? {
                            match key {
                                $(stringify!($key) => {
                                    let seed = table::Checked::<$type, _>::new($check);
                                    table.$key = Some(map.next_value_seed(seed)?);
                                })*
                                $(stringify!($table) => table.$table = map.next_value()?,)*
                                _ => unreachable!("`Key` gives a key of the table"),
                            }
                        }
                        Ok(table)
                    }
                }
                deserializer.deserialize_map(Values)
            }
        }
    };
}
pub(super) use table;

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
