//! The reader of a document: each value goes to its key, or is a mistake at its place.

use std::ops::Range;

use rpc_core::settings::{Mismatch, Raw, Slot, Slots};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::table::unknown;
use super::value::UNITS;

/// A key or a value that cannot be.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) place: Range<usize>,
    /// The key with its tables.
    pub(super) key: Vec<String>,
    pub(super) message: String,
}

/// Reads a document into `table`, and returns every mistake.
pub(super) fn read(document: &DeTable<'_>, table: &mut dyn Slots) -> Vec<Fault> {
    let mut reader = Reader { path: Vec::new(), faults: Vec::new() };
    reader.read(document, table);
    reader.faults
}

struct Reader {
    path: Vec<String>,
    faults: Vec<Fault>,
}

impl Reader {
    fn read(&mut self, document: &DeTable<'_>, table: &mut dyn Slots) {
        for (key, value) in document {
            let name: &str = key.get_ref();
            self.path.push(name.to_owned());
            if let Some(slot) = table.slot(name) {
                self.fill(key.span(), value, slot);
            } else {
                self.fault(key.span(), unknown("setting", name, table.names().into_iter()));
            }
            self.path.pop();
        }
    }

    fn fill(&mut self, key: Range<usize>, value: &Spanned<DeValue<'_>>, slot: Slot<'_>) {
        match (slot, value.get_ref()) {
            (Slot::Ignored, _) => {}
            (Slot::Elsewhere(message), _) => self.misplaced(key, value, &message),
            (Slot::Table(table), DeValue::Table(inner)) => self.read(inner, table),
            (Slot::Table(table), other) => {
                let wrong = raw(other).map(|raw| Mismatch::wrong_type(&raw, table.kind()));
                self.fault(value.span(), wrong.unwrap_or_else(|wrong| wrong).message);
            }
            (Slot::Value(read), _) => {
                let read = raw(value.get_ref()).and_then(|raw| read(&raw, &UNITS));
                let Err(Mismatch { message, item }) = read else { return };
                let place = match (value.get_ref(), item) {
                    (DeValue::Array(items), Some(index)) => items.get(index).map(Spanned::span),
                    _ => None,
                };
                self.fault(place.unwrap_or_else(|| value.span()), message);
            }
        }
    }

    /// A key that no file sets, or each key of such a table.
    fn misplaced(&mut self, key: Range<usize>, value: &Spanned<DeValue<'_>>, message: &str) {
        match value.get_ref() {
            DeValue::Table(inner) if !inner.is_empty() => {
                for (key, value) in inner {
                    self.path.push(key.get_ref().clone().into_owned());
                    self.misplaced(key.span(), value, message);
                    self.path.pop();
                }
            }
            _ => self.fault(key, message.to_owned()),
        }
    }

    fn fault(&mut self, place: Range<usize>, message: String) {
        self.faults.push(Fault { place, key: self.path.clone(), message });
    }
}

fn raw<'a>(value: &'a DeValue<'_>) -> Result<Raw<'a>, Mismatch> {
    Ok(match value {
        DeValue::String(text) => Raw::Text(text),
        DeValue::Integer(number) => {
            let parsed = i128::from_str_radix(number.as_str(), number.radix());
            Raw::Integer(parsed.map_err(|_| overflowed("integer"))?)
        }
        DeValue::Float(number) => {
            let parsed: f64 = number.as_str().parse().map_err(|_| overflowed("floating-point"))?;
            if parsed.is_infinite() && !number.as_str().contains("inf") {
                return Err(overflowed("floating-point"));
            }
            Raw::Float(parsed)
        }
        DeValue::Boolean(value) => Raw::Bool(*value),
        DeValue::Array(items) => {
            let items = items.iter().enumerate().map(|(index, item)| {
                raw(item.get_ref()).map_err(|wrong| Mismatch { item: Some(index), ..wrong })
            });
            Raw::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Datetime(_) | DeValue::Table(_) => Raw::Map,
    })
}

fn overflowed(number: &str) -> Mismatch {
    format!("{number} number overflowed").into()
}
