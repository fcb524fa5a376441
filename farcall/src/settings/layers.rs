//! The file and the environment as one document, of which every value knows where it came from.

use std::borrow::Cow;
use std::ops::Range;

use serde_core::Deserialize;
use serde_core::de::IntoDeserializer;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Misplaced, SettingsError};
use super::tables::Root;

/// What a variable's name begins with. Two underscores separate the names of tables.
const PREFIX: &str = "FARCALL__";

/// Reads a file's text and the variables of an environment, which replace what the file says.
///
/// # Errors
///
/// At the first value that cannot be.
pub(super) fn read(
    origin: &str,
    text: &str,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Root, SettingsError> {
    let variables: Vec<(String, String)> = {
        let ours = environment.filter(|(name, _)| name.starts_with(PREFIX));
        let mut ours: Vec<_> = ours.collect();
        ours.sort();
        ours
    };
    let misplaced = |error: &toml::de::Error| {
        let place = error.span().unwrap_or(0..0);
        match place.start.checked_sub(first_variable(text)) {
            Some(index) => SettingsError::Variable {
                variable: variables[index.min(variables.len() - 1)].0.clone(),
                message: error.message().to_owned(),
            },
            None => {
                let (key, message) = (key_at(text, &place), error.message().to_owned());
                SettingsError::File(Box::new(Misplaced::new(origin, text, place, key, message)))
            }
        }
    };
    let mut document = DeTable::parse(text).map_err(|error| misplaced(&error))?;
    for (index, (name, value)) in variables.iter().enumerate() {
        let place = first_variable(text) + index;
        insert(document.get_mut(), &name[PREFIX.len()..], value, place..place);
    }
    Root::deserialize(document.into_deserializer()).map_err(|error| misplaced(&error))
}

/// The place of the first variable: places of variables follow those of the file's bytes, one each.
fn first_variable(text: &str) -> usize {
    text.len() + 1
}

/// Puts a variable's value into the document.
fn insert<'a>(table: &mut DeTable<'a>, path: &str, value: &'a str, place: Range<usize>) {
    let (name, rest) = match path.split_once("__") {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    let name = existing(table, name);
    let key = Spanned::new(place.clone(), Cow::Owned(name.clone()));
    let Some(rest) = rest else {
        // The key's place is the variable's, too.
        table.remove(name.as_str());
        table.insert(key, placed(value_of(value), &place));
        return;
    };
    let is_table = table.get(name.as_str()).is_some_and(|it| it.get_ref().is_table());
    if !is_table {
        table.remove(name.as_str());
        table.insert(key, Spanned::new(place.clone(), DeValue::Table(DeTable::new())));
    }
    if let Some(DeValue::Table(inner)) = table.get_mut(name.as_str()).map(Spanned::get_mut) {
        insert(inner, rest, value, place);
    }
}

/// The key that a variable means: one that is there but for its case and its hyphens, or a new one.
fn existing(table: &DeTable<'_>, name: &str) -> String {
    let plain = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let wanted = plain(name);
    let found = table.keys().map(Spanned::get_ref).find(|key| plain(key) == wanted);
    found.map_or(wanted, |key| key.clone().into_owned())
}

/// A variable's text as a value: TOML where it is that, such as `8`, `true` or `["mlx5_0"]`, and
/// otherwise the text itself.
fn value_of(text: &str) -> DeValue<'_> {
    match DeValue::parse(text) {
        Ok(value) => value.into_inner(),
        Err(_) => DeValue::String(Cow::Borrowed(text)),
    }
}

/// The value with one place for all of it.
fn placed<'a>(mut value: DeValue<'a>, place: &Range<usize>) -> Spanned<DeValue<'a>> {
    match &mut value {
        DeValue::Array(items) => {
            for item in items.iter_mut() {
                let inner = std::mem::replace(item.get_mut(), DeValue::Boolean(false));
                *item = placed(inner, place);
            }
        }
        DeValue::Table(table) => {
            let entries = std::mem::take(table);
            for (key, value) in entries {
                let key = Spanned::new(place.clone(), key.into_inner());
                table.insert(key, placed(value.into_inner(), place));
            }
        }
        _ => {}
    }
    Spanned::new(place.clone(), value)
}

/// Where the value of a key with its tables stands in a file's text, if it is there.
pub(super) fn place_of(text: &str, key: &str) -> Option<Range<usize>> {
    let document = DeTable::parse(text).ok()?;
    let mut names = key.split('.');
    let mut value = document.get_ref().get(names.next()?)?;
    for name in names {
        let DeValue::Table(table) = value.get_ref() else { return None };
        value = table.get(name)?;
    }
    Some(value.span())
}

/// The key of what stands at a place of a file, with its tables.
fn key_at(text: &str, place: &Range<usize>) -> String {
    let Ok(document) = DeTable::parse(text) else { return String::new() };
    let mut path = Vec::new();
    descend(document.get_ref(), place, &mut path);
    path.join(".")
}

/// Whether the place is in a table; its keys are in the path then.
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
