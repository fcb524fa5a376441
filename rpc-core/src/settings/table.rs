//! Tables of settings, each of which may be absent: what a file says, laid over other tables.

use super::format::{Format, Mismatch, Raw, Units};
use super::range::{Allowed, Reason};

/// The time when another value of a setting takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// While the program runs.
    Live,
    /// At the program's next start.
    Start,
    /// Never by a file: only code sets it.
    CodeOnly,
}

impl Effect {
    /// The effect of a key within a table.
    #[must_use]
    pub fn within(self, table: Self) -> Self {
        match table {
            Self::Live => self,
            Self::Start | Self::CodeOnly => table,
        }
    }
}

/// Reads the value of one key, and checks its range.
pub type Read<'a> = Box<dyn FnOnce(&Raw<'_>, &Units) -> Result<(), Mismatch> + 'a>;

/// A key of a table.
#[allow(missing_debug_implementations, reason = "functions have no text")]
pub enum Slot<'a> {
    /// A value.
    Value(Read<'a>),
    /// A table within the table.
    Table(&'a mut dyn Slots),
    /// A value that another build reads.
    Ignored,
    /// No setting of a file: the text says what is in its place.
    Elsewhere(String),
}

/// The keys of a table that a file can set.
pub trait Slots {
    /// The names of all keys.
    fn names(&self) -> Vec<&'static str>;

    /// Returns the key of that name, if there is one.
    fn slot(&mut self, name: &str) -> Option<Slot<'_>>;

    /// The kind of table, for errors.
    fn kind(&self) -> &'static str {
        "a table"
    }
}

/// A table of settings.
pub trait Table: Slots + Default + Clone {
    /// This table, with the settings of `defaults` where it has none.
    #[must_use]
    fn or(self, defaults: &Self) -> Self;

    /// Returns all keys with their documentation.
    fn describe() -> Description;

    /// Calls `visit` for each key that has another value in `new`, with the names of its tables, of
    /// which the first are in `path`, and with its effect.
    fn each_change(
        &self,
        new: &Self,
        effect: Effect,
        path: &mut Vec<String>,
        visit: &mut dyn FnMut(&[String], Effect),
    );

    /// Calls `visit` for each key that the table has or could have, with the names of its tables,
    /// of which the first are in `path`. Keys that no file sets have the text that says what is in
    /// their place.
    fn each_key(&self, path: &mut Vec<String>, visit: &mut dyn FnMut(&[String], Option<String>));

    /// The value of a key as a file has it, if it is set. A key of a table within this one has the
    /// names of the tables before its own, with dots between them.
    fn written(&self, key: &str) -> Option<String>;
}

/// The documentation of a table.
#[derive(Debug, Clone)]
pub struct Description {
    /// The lines of its documentation.
    pub docs: &'static [&'static str],
    /// Its keys.
    pub keys: Vec<Key>,
    /// The keys that only code sets, by the names of their fields.
    pub in_code: Vec<Key>,
    /// The tables within.
    pub groups: Vec<Group>,
}

/// A value of a key as a file has it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The value.
    pub text: String,
    /// True for an example in the place of a default.
    pub is_example: bool,
}

impl From<&str> for Shown {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), is_example: false }
    }
}

/// The documentation of a key.
#[derive(Debug, Clone)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The lines of its documentation.
    pub docs: &'static [&'static str],
    /// Its default as a file has it, or an example where there is none.
    pub shown: Shown,
    /// Its range and the reason for it, if it has one that can be written down.
    pub range: Option<String>,
    /// The time when another value takes effect.
    pub effect: Effect,
}

/// A table within a table.
#[derive(Debug, Clone)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// Its heading in a reference; empty where that leaves it out.
    pub heading: &'static str,
    /// Its keys.
    pub table: Description,
    /// The bound on the effect of its keys.
    pub effect: Effect,
}

impl Description {
    /// The same description with the values of `table` in the place of the defaults.
    #[must_use]
    pub fn showing(mut self, table: &impl Table) -> Self {
        for key in self.keys.iter_mut().chain(&mut self.in_code) {
            let name = key.name.rsplit("::").next().unwrap_or_default();
            if let Some(written) = table.written(name) {
                key.shown = (&*written).into();
            }
        }
        self
    }

    /// The names of all keys and tables.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let keys = self.keys.iter().map(|key| key.name);
        keys.chain(self.groups.iter().map(|group| group.name)).collect()
    }
}

/// Reads a value of the format `F` and checks its range.
///
/// # Errors
///
/// Returns an error if the value has another type, is not written as it has to be, or is out of
/// range.
#[doc(hidden)]
#[allow(clippy::needless_pass_by_value, reason = "ranges and reasons are literals")]
pub fn read<F: Format<V>, V>(
    (raw, units): (&Raw<'_>, &Units),
    range: impl Allowed<F::Inner>,
    reason: impl Reason,
) -> Result<V, Mismatch> {
    let value = F::read(raw, units)?;
    if let Some(inner) = F::inner(&value) {
        // The reader knows the setting's name by its place.
        range
            .check("", inner, &reason)
            .map_err(|error| format!("is {}, but must be {}", error.value(), error.rule()))?;
    }
    Ok(value)
}

/// The error of a key that only code sets, in the field of that name.
#[doc(hidden)]
#[must_use]
pub fn in_code(field: &str) -> String {
    gone(&format!("set in code: `{field}`"))
}

/// The error of a key that no file sets, with what is in its place.
#[doc(hidden)]
#[must_use]
pub fn gone(instead: &str) -> String {
    format!("not a setting of the file; {instead}")
}

/// Checks the range of a value of the format `F`.
///
/// # Errors
///
/// Returns an error if the value is out of range.
#[doc(hidden)]
#[allow(clippy::needless_pass_by_value, reason = "ranges and reasons are literals")]
pub fn check<F: Format<V>, V>(
    name: &'static str,
    value: &V,
    range: impl Allowed<F::Inner>,
    reason: impl Reason,
) -> Result<(), super::InvalidSetting> {
    F::inner(value).map_or(Ok(()), |inner| range.check(name, inner, &reason))
}

/// The default of a key as a file has it, or the example where it has none.
#[doc(hidden)]
#[must_use]
pub fn shown<F: Format<V>, V>(default: &V, example: Option<&str>) -> Shown {
    let written = F::write(default);
    let is_example = written.is_none();
    let text = written.or(example.map(str::to_owned)).unwrap_or_default();
    Shown { text, is_example }
}

/// The range of a value of the format `F`, with the reason for it.
#[doc(hidden)]
#[allow(clippy::needless_pass_by_value, reason = "ranges and reasons are literals")]
pub fn range<F: Format<V>, V>(
    range: impl Allowed<F::Inner>,
    reason: impl Reason,
) -> Option<String> {
    range.text().map(|text| reason.rule(&text))
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro is for public types")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::settings::{InvalidSetting, Settings as _, define_settings};

    define_settings! {
        /// Inner settings.
        Inner, InnerOverlay, "outer.inner", [], derive(PartialEq) {
            /// A time.
            ///
            /// More of it.
            delay, with_delay: Duration as Plain = Duration::from_secs(1), Live,
                Duration::from_millis(1).., "time passes";
            /// An index.
            index, with_index: Option<u8> as Optional = None => "3", Start, 1.., "0 is none";
        }
    }

    impl Inner {
        fn check(&self) -> Result<(), InvalidSetting> {
            self.check_each()
        }
    }

    define_settings! {
        /// Outer settings.
        Outer, OuterOverlay, "outer", [const], derive(PartialEq) {
            /// A size.
            len, with_len: u64 as Size = 4 << 20, Live, 1.., "nothing would fit";
            /// A number that only code sets.
            hidden, with_hidden: u8 as Plain = 7, CodeOnly, .., "";
        } groups {
            /// Others.
            inner, with_inner: Inner, InnerOverlay, Start;
        } private {
            is_odd: bool = true;
        } gone {
            enabled: "`len = 1` switches it off";
        }
    }

    impl Outer {
        fn check(&self) -> Result<(), InvalidSetting> {
            self.check_each()
        }
    }

    const UNITS: Units = Units { duration: |_| None, size: |_| None };

    fn read(table: &mut dyn Slots, name: &str, raw: &Raw<'_>) -> Result<(), Mismatch> {
        match table.slot(name) {
            Some(Slot::Value(read)) => read(raw, &UNITS),
            _ => panic!("{name} is no value"),
        }
    }

    #[test]
    fn declaration_gives_defaults_setters_and_checks() {
        let outer = Outer::default();
        assert_eq!((outer.len, outer.hidden, outer.is_odd), (4 << 20, 7, true));
        assert_eq!(outer.inner.delay, Duration::from_secs(1));
        let error = outer.clone().with_len(0).check_each().unwrap_err().to_string();
        assert_eq!(error, "outer.len is 0: at least 1, since nothing would fit");
        let inner = Inner::default().with_index(Some(0)).with_delay(Duration::from_secs(2));
        let error = outer.with_inner(inner).with_hidden(8).check_each().unwrap_err().to_string();
        assert_eq!(error, "outer.inner.index is 0: at least 1, since 0 is none");
    }

    #[test]
    fn overlay_knows_what_was_set() {
        let (mut file, mut defaults) = (OuterOverlay::default(), OuterOverlay::default());
        read(&mut file, "len", &Raw::Integer(5)).unwrap();
        read(&mut defaults, "len", &Raw::Integer(6)).unwrap();
        read(&mut defaults.inner, "index", &Raw::Integer(2)).unwrap();
        let both = Outer::resolve(&file.clone().or(&defaults));
        assert_eq!((both.len, both.inner.index, both.hidden), (5, Some(2), 7));
        let wrong = read(&mut file, "len", &Raw::Integer(0)).unwrap_err();
        assert_eq!(wrong.message, "is 0, but must be at least 1, since nothing would fit");
        assert!(file.slot("colour").is_none());
        for (name, instead) in [
            ("hidden", "not a setting of the file; set in code: `Outer::hidden`"),
            ("enabled", "not a setting of the file; `len = 1` switches it off"),
        ] {
            let Some(Slot::Elsewhere(text)) = file.slot(name) else { panic!("{name} is a key") };
            assert_eq!(text, instead);
        }
        assert!(matches!(file.slot("inner"), Some(Slot::Table(_))));

        let mut changes = Vec::new();
        file.each_change(&defaults, Effect::Live, &mut Vec::new(), &mut |path, effect| {
            changes.push((path.join("."), effect));
        });
        let expected = [("len", Effect::Live), ("inner.index", Effect::Start)];
        assert_eq!(changes, expected.map(|(key, effect)| (key.to_owned(), effect)));
    }

    #[test]
    fn description_has_every_key_of_a_file() {
        let all = OuterOverlay::describe();
        assert_eq!(all.names(), ["len", "inner"]);
        assert_eq!(
            (all.keys[0].shown.text.as_str(), all.docs),
            ("\"4 MiB\"", &[" Outer settings."][..])
        );
        let range = "at least 1, since nothing would fit";
        assert_eq!(all.keys[0].range.as_deref(), Some(range));
        assert_eq!(all.in_code[0].name, "Outer::hidden");
        let inner = &all.groups[0].table;
        let shown: Vec<_> = inner.keys.iter().map(|key| key.shown.text.as_str()).collect();
        assert_eq!(shown, ["\"1s\"", "3"]);
        let mut keys = Vec::new();
        OuterOverlay::default().each_key(&mut Vec::new(), &mut |path, elsewhere| {
            keys.push((path.join("."), elsewhere.is_none()));
        });
        let expected = ["len", "hidden", "enabled", "inner.delay", "inner.index"];
        let is_of_file = |key| !["hidden", "enabled"].contains(&key);
        assert_eq!(keys, expected.map(|key| (key.to_owned(), is_of_file(key))));
        let set = OuterOverlay::from(Outer::default());
        let written = expected.map(|key| set.written(key));
        let values = [Some("\"4 MiB\""), Some("7"), None, Some("\"1s\""), None];
        assert_eq!(written, values.map(|value| value.map(str::to_owned)));
    }
}
