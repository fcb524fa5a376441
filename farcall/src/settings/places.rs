//! The origin of each value: a place of the file, or a variable of the environment.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::error::{Misplaced, SettingsError, SettingsFault};

/// The places of a document's values. A variable's place is a number beyond the file's text.
#[derive(Debug)]
pub(super) struct Places {
    origin: String,
    text: String,
    /// The names of the variables and their values, in the order of their places.
    variables: Vec<(String, String)>,
    /// By the names of a key and its tables, each of which may contain a dot.
    values: BTreeMap<Vec<String>, Range<usize>>,
}

impl Places {
    pub(super) fn new(origin: &str, text: &str, variables: Vec<(String, String)>) -> Self {
        let (origin, text) = (origin.to_owned(), text.to_owned());
        Self { origin, text, variables, values: BTreeMap::new() }
    }

    /// The file's name in messages.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The place of the first variable: places of variables follow those of the file's bytes, one
    /// each.
    fn first_variable(&self) -> usize {
        self.text.len() + 1
    }

    /// The place of the variable with that index.
    pub(super) fn variable_range(&self, index: usize) -> Range<usize> {
        let place = self.first_variable() + index;
        place..place
    }

    /// Records where the values of the whole document are.
    pub(super) fn record(&mut self, document: &DeTable<'_>) {
        self.values.clear();
        collect(document, &mut Vec::new(), &mut self.values);
    }

    /// Returns the range of a key's value, by the names of its tables and its own.
    pub(super) fn value_range(&self, names: &[&str]) -> Option<Range<usize>> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        self.values.get(&names).cloned()
    }

    /// Returns the text of a key's value, and its line if it is in the file.
    pub(super) fn written(&self, names: &[String]) -> Option<(&str, Option<usize>)> {
        let place = self.values.get(names)?;
        if let Some(index) = place.start.checked_sub(self.first_variable()) {
            return self.variables.get(index).map(|(_, value)| (value.as_str(), None));
        }
        let line = self.text.get(..place.start)?.matches('\n').count() + 1;
        Some((self.text.get(place.clone())?, Some(line)))
    }

    /// Returns the line of the file that sets a key, or the variable of the environment.
    pub(super) fn source(&self, names: &[&str]) -> Option<String> {
        let place = self.value_range(names)?;
        if let Some(index) = place.start.checked_sub(self.first_variable()) {
            return self.variables.get(index).map(|(name, _)| name.clone());
        }
        let line = self.text.get(..place.start)?.matches('\n').count() + 1;
        Some(format!("{}:{line}", self.origin))
    }

    /// Makes an error at a place. `key` names the place, if the reader knows it already.
    pub(super) fn error(
        &self,
        place: Range<usize>,
        key: Option<String>,
        message: String,
    ) -> SettingsError {
        let index = place.start.checked_sub(self.first_variable());
        if let Some((variable, _)) = index.and_then(|index| self.variables.get(index)) {
            return SettingsFault::Variable { variable: variable.clone(), message }.into();
        }
        let key = key.unwrap_or_else(|| key_at(&self.text, &place));
        let misplaced = Misplaced::new(&self.origin, &self.text, place, key, message);
        SettingsFault::File(misplaced).into()
    }
}

/// Collects the places of all values that are no tables.
fn collect(
    table: &DeTable<'_>,
    path: &mut Vec<String>,
    values: &mut BTreeMap<Vec<String>, Range<usize>>,
) {
    for (key, value) in table {
        path.push(key.get_ref().clone().into_owned());
        match value.get_ref() {
            DeValue::Table(inner) => collect(inner, path, values),
            _ => drop(values.insert(path.clone(), value.span())),
        }
        path.pop();
    }
}

/// A key as TOML writes it: names with dots or slashes stand in quotes.
pub(super) fn dotted(names: &[impl AsRef<str>]) -> String {
    let is_bare = |name: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        !name.is_empty() && name.bytes().all(is_part)
    };
    let written = names.iter().map(AsRef::as_ref).map(|name| match is_bare(name) {
        true => name.to_owned(),
        false => format!("{name:?}"),
    });
    written.collect::<Vec<_>>().join(".")
}

/// The key of what stands at a place of a file, with its tables.
fn key_at(text: &str, place: &Range<usize>) -> String {
    let Ok(document) = DeTable::parse(text) else { return String::new() };
    let mut path = Vec::new();
    descend(document.get_ref(), place, &mut path);
    dotted(&path)
}

/// Returns true if the place is in a table, and appends its keys to the path.
fn descend(table: &DeTable<'_>, place: &Range<usize>, path: &mut Vec<String>) -> bool {
    for (key, value) in table {
        path.push(key.get_ref().clone().into_owned());
        let is_inside = |span: Range<usize>| span.start <= place.start && place.end <= span.end;
        let is_deeper = match value.get_ref() {
            DeValue::Table(inner) => descend(inner, place, path),
            _ => false,
        };
        if is_deeper || is_inside(key.span()) || is_inside(value.span()) {
            return true;
        }
        path.pop();
    }
    false
}
