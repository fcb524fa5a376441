//! Values as people write them in a file: numbers, texts with a unit, words and lists.

mod numbers;

use std::fmt::{self, Debug};
use std::time::Duration;

pub use numbers::{
    CountOrAll, CountOrAuto, CountOrOff, OptionalMode, OptionalSize, Size, SizeOrNever, SizeOrOff,
};

/// A value of a file that was parsed, and not read as that of a setting yet.
#[derive(Debug, Clone)]
pub enum Raw<'a> {
    /// True or false.
    Bool(bool),
    /// A number without a fraction.
    Integer(i128),
    /// A number with a fraction.
    Float(f64),
    /// A text.
    Text(&'a str),
    /// A list of values.
    List(Vec<Self>),
    /// A table, or a time.
    Map,
}

impl fmt::Display for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "boolean `{value}`"),
            Self::Integer(number) => write!(f, "integer `{number}`"),
            Self::Float(number) => write!(f, "floating point `{number:?}`"),
            Self::Text(text) => write!(f, "string {text:?}"),
            Self::List(_) => f.write_str("sequence"),
            Self::Map => f.write_str("map"),
        }
    }
}

/// Parsers of texts with a unit, which the reader of a file brings along.
#[derive(Debug, Clone, Copy)]
pub struct Units {
    /// Parses a duration, as "10s".
    pub duration: fn(&str) -> Option<Duration>,
    /// Parses a number of bytes, as "4 MiB".
    pub size: fn(&str) -> Option<u64>,
}

/// A value that a setting does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Description of the fault.
    pub message: String,
    /// The item of a list that is at fault.
    pub item: Option<usize>,
}

impl Mismatch {
    /// A value of a type that is not `expected`.
    #[must_use]
    pub fn wrong_type(raw: &Raw<'_>, expected: &str) -> Self {
        format!("invalid type: {raw}, expected {expected}").into()
    }
}

impl From<String> for Mismatch {
    fn from(message: String) -> Self {
        Self { message, item: None }
    }
}

/// A type that values of settings have.
pub trait Value: Sized + Debug {
    /// Reads a value.
    ///
    /// # Errors
    ///
    /// Returns an error if the value has another type or is not written as it has to be.
    fn read(raw: &Raw<'_>, units: &Units) -> Result<Self, Mismatch>;

    /// Writes the value as a file has it.
    fn write(&self) -> String {
        format!("{self:?}")
    }
}

/// A way to write the values of a setting, where their type allows several.
pub trait Format<V> {
    /// The value without the case that there is none.
    type Inner: Debug;

    /// The value, if there is one: it has a range.
    fn inner(value: &V) -> Option<&Self::Inner>;

    /// Reads a value.
    ///
    /// # Errors
    ///
    /// Returns an error if the value has another type or is not written as it has to be.
    fn read(raw: &Raw<'_>, units: &Units) -> Result<V, Mismatch>;

    /// Writes a value as a file has it; `None` if the file has no way to write it.
    fn write(value: &V) -> Option<String>;
}

/// A value as its type has it.
#[derive(Debug)]
pub struct Plain;

/// True or false.
pub type Switch = Plain;

/// A list of texts.
pub type Texts = Plain;

/// A value that may be absent, for which a file has no word.
#[derive(Debug)]
pub struct Optional;

/// A value, or "off".
#[derive(Debug)]
pub struct OrOff;

/// A text that may be absent.
pub type Text = Optional;

impl<V: Value> Format<V> for Plain {
    type Inner = V;

    fn inner(value: &V) -> Option<&V> {
        Some(value)
    }

    fn read(raw: &Raw<'_>, units: &Units) -> Result<V, Mismatch> {
        V::read(raw, units)
    }

    fn write(value: &V) -> Option<String> {
        Some(value.write())
    }
}

impl<V: Value> Format<Option<V>> for Optional {
    type Inner = V;

    fn inner(value: &Option<V>) -> Option<&V> {
        value.as_ref()
    }

    fn read(raw: &Raw<'_>, units: &Units) -> Result<Option<V>, Mismatch> {
        V::read(raw, units).map(Some)
    }

    fn write(value: &Option<V>) -> Option<String> {
        value.as_ref().map(V::write)
    }
}

const OFF: &str = "off";

impl<V: Value> Format<Option<V>> for OrOff {
    type Inner = V;

    fn inner(value: &Option<V>) -> Option<&V> {
        value.as_ref()
    }

    fn read(raw: &Raw<'_>, units: &Units) -> Result<Option<V>, Mismatch> {
        if let Raw::Text(OFF) = raw {
            return Ok(None);
        }
        let or_off = |wrong: Mismatch| Mismatch::from(format!("{}, or \"off\"", wrong.message));
        V::read(raw, units).map(Some).map_err(or_off)
    }

    fn write(value: &Option<V>) -> Option<String> {
        Some(value.as_ref().map_or_else(|| format!("{OFF:?}"), V::write))
    }
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Value for $type {
            fn read(raw: &Raw<'_>, _: &Units) -> Result<Self, Mismatch> {
                let expected = stringify!($type);
                let Raw::Integer(number) = raw else {
                    return Err(Mismatch::wrong_type(raw, expected));
                };
                Self::try_from(*number)
                    .map_err(|_| format!("invalid value: {raw}, expected {expected}").into())
            }
        }
    )*};
}

integers! { u8 u16 u32 u64 }

macro_rules! floats {
    ($($type:ident)*) => {$(
        #[allow(clippy::cast_possible_truncation, reason = "the nearest value is the one meant")]
        #[allow(clippy::cast_precision_loss, reason = "the nearest value is the one meant")]
        impl Value for $type {
            fn read(raw: &Raw<'_>, _: &Units) -> Result<Self, Mismatch> {
                match raw {
                    Raw::Float(number) => Ok(*number as $type),
                    Raw::Integer(number) => Ok(*number as $type),
                    _ => Err(Mismatch::wrong_type(raw, stringify!($type))),
                }
            }
        }
    )*};
}

floats! { f32 f64 }

impl Value for bool {
    fn read(raw: &Raw<'_>, _: &Units) -> Result<Self, Mismatch> {
        match raw {
            Raw::Bool(value) => Ok(*value),
            _ => Err(Mismatch::wrong_type(raw, "a boolean")),
        }
    }
}

impl Value for String {
    fn read(raw: &Raw<'_>, _: &Units) -> Result<Self, Mismatch> {
        match raw {
            Raw::Text(text) => Ok((*text).to_owned()),
            _ => Err(Mismatch::wrong_type(raw, "a string")),
        }
    }
}

impl<V: Value> Value for Vec<V> {
    fn read(raw: &Raw<'_>, units: &Units) -> Result<Self, Mismatch> {
        let Raw::List(items) = raw else { return Err(Mismatch::wrong_type(raw, "a sequence")) };
        let read = |(index, item)| {
            V::read(item, units).map_err(|wrong| Mismatch { item: Some(index), ..wrong })
        };
        items.iter().enumerate().map(read).collect()
    }

    fn write(&self) -> String {
        let items: Vec<_> = self.iter().map(V::write).collect();
        format!("[{}]", items.join(", "))
    }
}

const PERIOD: &str = "text with a unit, such as \"10s\" or \"500ms\"";

impl Value for Duration {
    fn read(raw: &Raw<'_>, units: &Units) -> Result<Self, Mismatch> {
        let Raw::Text(text) = raw else { return Err(Mismatch::wrong_type(raw, PERIOD)) };
        (units.duration)(text).ok_or_else(|| {
            let right = "write a number and a unit, such as \"10s\" or \"500ms\"";
            format!("`{text}` is not a duration: {right}").into()
        })
    }

    fn write(&self) -> String {
        match (self.subsec_micros(), self.as_secs()) {
            (0, seconds) => format!("\"{seconds}s\""),
            (micros, _) if micros % 1000 == 0 => format!("\"{}ms\"", self.as_millis()),
            _ => format!("\"{}us\"", self.as_micros()),
        }
    }
}

/// Implements [`Value`] for an enum whose values are words of a file.
#[macro_export]
macro_rules! setting_words {
    ($type:ty { $($word:literal => $value:path),+ $(,)? }) => {
        #[doc(hidden)]
        impl $crate::settings::Value for $type {
            fn read(
                raw: &$crate::settings::Raw<'_>,
                _: &$crate::settings::Units,
            ) -> Result<Self, $crate::settings::Mismatch> {
                match raw {
                    $($crate::settings::Raw::Text($word) => Ok($value),)+
                    $crate::settings::Raw::Text(text) => {
                        let list = [$($word),+].join(", ");
                        Err(format!("`{text}` is not one of {list}").into())
                    }
                    _ => Err($crate::settings::Mismatch::wrong_type(raw, "text")),
                }
            }

            fn write(&self) -> String {
                match self {
                    $($value => format!("{:?}", $word),)+
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: Units = Units {
        duration: |text| text.strip_suffix('s')?.parse().ok().map(Duration::from_secs),
        size: |text| text.strip_suffix(" KiB")?.parse::<u64>().ok().map(|it| it << 10),
    };

    #[test]
    fn values_are_read_as_they_are_written() {
        for bytes in [0, 1, 1023, 4352, 7 << 10] {
            let text = <Size as Format<u64>>::write(&bytes).unwrap();
            let raw = match text.trim_matches('"') {
                number if number == text => Raw::Integer(number.parse().unwrap()),
                text => Raw::Text(text),
            };
            assert_eq!(Size::read(&raw, &UNITS), Ok(bytes), "{text}");
        }
        let (ms, us) = (Duration::from_millis(1500), Duration::from_micros(20));
        assert_eq!([ms, us, ms * 2].map(|it| it.write()), ["\"1500ms\"", "\"20us\"", "\"3s\""]);
        let off: Option<Duration> = OrOff::read(&Raw::Text("off"), &UNITS).unwrap();
        assert_eq!(<OrOff as Format<_>>::write(&off).unwrap(), "\"off\"");
        assert_eq!(vec![true, false].write(), "[true, false]");
    }

    #[test]
    fn mistakes_name_the_value_and_another() {
        let read = |raw: Raw<'_>| {
            [
                u16::read(&raw, &UNITS).unwrap_err().message,
                <Size as Format<u32>>::read(&raw, &UNITS).unwrap_err().message,
                <OrOff as Format<Option<Duration>>>::read(&raw, &UNITS).unwrap_err().message,
            ]
        };
        let size = "a number of bytes is not negative";
        let time = "expected text with a unit, such as \"10s\" or \"500ms\", or \"off\"";
        assert_eq!(
            read(Raw::Integer(-1)),
            [
                "invalid value: integer `-1`, expected u16",
                size,
                &format!("invalid type: integer `-1`, {time}"),
            ]
        );
        assert_eq!(
            read(Raw::Text("x")),
            [
                "invalid type: string \"x\", expected u16",
                "`x` is not a size: write \"4 MiB\" or 4194304",
                "`x` is not a duration: write a number and a unit, such as \"10s\" or \"500ms\", \
                 or \
                 \"off\"",
            ]
        );
        let list = Raw::List(vec![Raw::Bool(true), Raw::Map]);
        assert_eq!(Vec::<bool>::read(&list, &UNITS).unwrap_err().item, Some(1));
    }
}
