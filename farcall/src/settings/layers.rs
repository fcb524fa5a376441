//! The file and the environment as one document, of which every value knows where it came from.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::SettingsError;
use super::left_out::LeftOut;
use super::places::Places;
use super::reader;
use super::strays::{self, PREFIX, existing};
use super::tables::Root;

/// More tables than any setting is in. What is beyond them in a variable's name is one name, so
/// that a long one makes no document that is too deep for the stack.
const MAX_DEPTH: usize = 8;

/// More mistakes than a reader mends at once.
const MISTAKES_MAX: usize = 20;

/// The values of a file and an environment, without those that are mistakes.
pub(super) struct Document {
    pub(super) root: Root,
    pub(super) places: Places,
    pub(super) mistakes: Vec<SettingsError>,
    /// The keys that were left out for a mistake.
    pub(super) left_out: LeftOut,
}

/// Reads a file's text and the variables of an environment, which replace what the file says.
///
/// # Errors
///
/// Returns an error if the text is no TOML, or has more mistakes than a reader mends at once.
pub(super) fn read(
    origin: &str,
    text: &str,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Document, SettingsError> {
    let (mut variables, others): (Vec<_>, Vec<_>) =
        environment.partition(|(name, _)| name.starts_with(PREFIX));
    variables.sort();
    let mut places = Places::new(origin, text, variables.clone());
    let misplaced = |places: &Places, error: &toml::de::Error| {
        places.error(error.span().unwrap_or(0..0), None, error.message().to_owned())
    };
    let (mut document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What the parser made of the rest is a guess.
        let errors = errors.iter().take(MISTAKES_MAX).map(|error| misplaced(&places, error));
        return Err(SettingsError::joined(errors.collect()));
    }
    let (in_file, mut mistakes) = (document.clone(), Vec::new());
    for (index, (name, value)) in variables.iter().enumerate() {
        let names: Vec<&str> = name[PREFIX.len()..].splitn(MAX_DEPTH, "__").collect();
        match strays::check_named(name, &names, in_file.get_ref(), origin) {
            Ok(()) => insert(document.get_mut(), &names, value, &places.variable_range(index)),
            Err(error) => mistakes.push(error),
        }
    }
    let mut root = Root::default();
    let faults = reader::read(document.get_ref(), &mut root);
    let mut left_out = LeftOut::default();
    for fault in faults {
        left_out.push(fault.key);
        mistakes.push(places.error(fault.place, None, fault.message));
    }
    if mistakes.len() >= MISTAKES_MAX {
        mistakes.truncate(MISTAKES_MAX);
        return Err(SettingsError::joined(mistakes));
    }
    places.record(document.get_ref());
    let others = others.iter().map(|(name, _)| name.as_str());
    mistakes.extend(strays::check_others(&root, others).err());
    Ok(Document { root, places, mistakes, left_out })
}

/// Puts a variable's value into the document.
fn insert<'a>(table: &mut DeTable<'a>, names: &[&str], value: &'a str, place: &Range<usize>) {
    let [name, rest @ ..] = names else { return };
    let name = existing(table, name);
    let key = Spanned::new(place.clone(), Cow::Owned(name.clone()));
    if rest.is_empty() {
        // The key's place is the variable's, too.
        table.remove(name.as_str());
        table.insert(key, placed(value_of(value), place));
        return;
    }
    let is_table = table.get(name.as_str()).is_some_and(|it| it.get_ref().is_table());
    if !is_table {
        table.remove(name.as_str());
        table.insert(key, Spanned::new(place.clone(), DeValue::Table(DeTable::new())));
    }
    if let Some(DeValue::Table(inner)) = table.get_mut(name.as_str()).map(Spanned::get_mut) {
        insert(inner, rest, value, place);
    }
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
