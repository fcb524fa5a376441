//! Numbers of bytes, counts and modes of files.

use std::num::NonZero;
use std::thread;

use super::{Format, Mismatch, OFF, Raw, Units, Value as _};

/// Permissions of a file in octal digits, which may be absent.
#[derive(Debug)]
pub struct OptionalMode;

/// A number of bytes.
#[derive(Debug)]
pub struct Size;

/// A number of bytes that may be absent, for which a file has no word.
#[derive(Debug)]
pub struct OptionalSize;

/// A number of bytes, or "off".
#[derive(Debug)]
pub struct SizeOrOff;

/// A number of bytes, or "off" for the greatest number.
#[derive(Debug)]
pub struct SizeOrNever;

/// A count, or "off".
#[derive(Debug)]
pub struct CountOrOff;

/// A count, or "all" for as many as the process may use processors.
#[derive(Debug)]
pub struct CountOrAll;

/// A count, or "auto" for one that depends on the host.
#[derive(Debug)]
pub struct CountOrAuto;

impl Format<Option<u16>> for CountOrAuto {
    type Inner = u16;

    fn inner(value: &Option<u16>) -> Option<&u16> {
        value.as_ref()
    }

    fn read(raw: &Raw<'_>, units: &Units) -> Result<Option<u16>, Mismatch> {
        match raw {
            Raw::Text("auto") => Ok(None),
            Raw::Text(text) => Err(format!("`{text}` is neither a number nor \"auto\"").into()),
            _ => u16::read(raw, units).map(Some),
        }
    }

    fn write(value: &Option<u16>) -> Option<String> {
        Some(value.map_or_else(|| "\"auto\"".to_owned(), |count| count.to_string()))
    }
}

impl Format<u32> for CountOrAll {
    type Inner = u32;

    fn inner(value: &u32) -> Option<&u32> {
        Some(value)
    }

    fn read(raw: &Raw<'_>, _: &Units) -> Result<u32, Mismatch> {
        let wrong = || Mismatch::wrong_type(raw, "a number, or \"all\"");
        match raw {
            Raw::Text("all") => {
                let count = thread::available_parallelism().map_or(1, NonZero::get);
                u32::try_from(count).map_err(|_| wrong())
            }
            Raw::Text(text) => Err(format!("`{text}` is neither a number nor \"all\"").into()),
            Raw::Integer(..0) => Err("a count is not negative".to_owned().into()),
            // A greater number is out of every range.
            Raw::Integer(number) => Ok(u32::try_from(*number).unwrap_or(u32::MAX)),
            _ => Err(wrong()),
        }
    }

    fn write(value: &u32) -> Option<String> {
        Some(value.to_string())
    }
}

impl Format<Option<u32>> for OptionalMode {
    type Inner = u32;

    fn inner(value: &Option<u32>) -> Option<&u32> {
        value.as_ref()
    }

    fn read(raw: &Raw<'_>, _: &Units) -> Result<Option<u32>, Mismatch> {
        let Raw::Text(text) = raw else {
            return Err(Mismatch::wrong_type(raw, "octal digits in quotes, such as \"0660\""));
        };
        let mode = u32::from_str_radix(text.trim_start_matches("0o"), 8).map(Some);
        mode.map_err(|_| format!("`{text}` is not a file mode: write one such as \"0660\"").into())
    }

    fn write(value: &Option<u32>) -> Option<String> {
        value.map(|mode| format!("\"{mode:04o}\""))
    }
}

/// Reads a number of bytes. An error names `other` as another way to write it.
fn bytes(raw: &Raw<'_>, units: &Units, expected: &str, other: &str) -> Result<u64, Mismatch> {
    match raw {
        Raw::Integer(..0) => Err("a number of bytes is not negative".to_owned().into()),
        Raw::Integer(number) => {
            u64::try_from(*number).map_err(|_| Mismatch::wrong_type(raw, expected))
        }
        Raw::Text(text) => (units.size)(text)
            .ok_or_else(|| format!("`{text}` is not a size: write \"4 MiB\" or {other}").into()),
        _ => Err(Mismatch::wrong_type(raw, expected)),
    }
}

/// The number with the greatest unit that divides it.
fn written_bytes(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |shift: &u32| bytes != 0 && bytes.is_multiple_of(1 << shift);
    match units.iter().find(|(shift, _)| fits(shift)) {
        Some((shift, unit)) => format!("\"{} {unit}\"", bytes >> shift),
        None => bytes.to_string(),
    }
}

impl Format<u64> for Size {
    type Inner = u64;

    fn inner(value: &u64) -> Option<&u64> {
        Some(value)
    }

    fn read(raw: &Raw<'_>, units: &Units) -> Result<u64, Mismatch> {
        bytes(raw, units, "a number of bytes, or text such as \"64 MiB\"", "4194304")
    }

    fn write(value: &u64) -> Option<String> {
        Some(written_bytes(*value))
    }
}

impl Format<u32> for Size {
    type Inner = u32;

    fn inner(value: &u32) -> Option<&u32> {
        Some(value)
    }

    fn read(raw: &Raw<'_>, units: &Units) -> Result<u32, Mismatch> {
        let bytes: u64 = Self::read(raw, units)?;
        let long = |_| "the value must be less than 4 GiB".to_owned().into();
        u32::try_from(bytes).map_err(long)
    }

    fn write(value: &u32) -> Option<String> {
        Some(written_bytes((*value).into()))
    }
}

impl Format<Option<u64>> for OptionalSize {
    type Inner = u64;

    fn inner(value: &Option<u64>) -> Option<&u64> {
        value.as_ref()
    }

    fn read(raw: &Raw<'_>, units: &Units) -> Result<Option<u64>, Mismatch> {
        Size::read(raw, units).map(Some)
    }

    fn write(value: &Option<u64>) -> Option<String> {
        value.map(written_bytes)
    }
}

impl Format<u32> for SizeOrNever {
    type Inner = u32;

    fn inner(value: &u32) -> Option<&u32> {
        Some(value)
    }

    fn read(raw: &Raw<'_>, units: &Units) -> Result<u32, Mismatch> {
        // Nothing has the greatest length, so that it is as good as none.
        let bytes = SizeOrOff::read(raw, units)?;
        Ok(bytes.map_or(u32::MAX, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX)))
    }

    fn write(value: &u32) -> Option<String> {
        SizeOrOff::write(&(*value < u32::MAX).then_some(u64::from(*value)))
    }
}

impl Format<Option<u64>> for SizeOrOff {
    type Inner = u64;

    fn inner(value: &Option<u64>) -> Option<&u64> {
        value.as_ref()
    }

    fn read(raw: &Raw<'_>, units: &Units) -> Result<Option<u64>, Mismatch> {
        let expected = "a number of bytes, text such as \"64 MiB\", or \"off\"";
        match raw {
            Raw::Text(OFF) => Ok(None),
            _ => bytes(raw, units, expected, "\"off\"").map(Some),
        }
    }

    fn write(value: &Option<u64>) -> Option<String> {
        Some(value.map_or_else(|| format!("{OFF:?}"), written_bytes))
    }
}

impl Format<Option<u64>> for CountOrOff {
    type Inner = u64;

    fn inner(value: &Option<u64>) -> Option<&u64> {
        value.as_ref()
    }

    fn read(raw: &Raw<'_>, _: &Units) -> Result<Option<u64>, Mismatch> {
        let wrong = || Mismatch::wrong_type(raw, "a number, or \"off\"");
        match raw {
            Raw::Text(OFF) => Ok(None),
            Raw::Text(text) => Err(format!("`{text}` is neither a number nor \"off\"").into()),
            Raw::Integer(..0) => Err("a count is not negative".to_owned().into()),
            Raw::Integer(number) => u64::try_from(*number).map(Some).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }

    fn write(value: &Option<u64>) -> Option<String> {
        Some(value.map_or_else(|| format!("{OFF:?}"), |count| count.to_string()))
    }
}

/// A greater count is the greatest: it bounds nothing either.
impl Format<Option<u32>> for CountOrOff {
    type Inner = u32;

    fn inner(value: &Option<u32>) -> Option<&u32> {
        value.as_ref()
    }

    fn read(raw: &Raw<'_>, units: &Units) -> Result<Option<u32>, Mismatch> {
        let count: Option<u64> = Self::read(raw, units)?;
        Ok(count.map(|count| u32::try_from(count).unwrap_or(u32::MAX)))
    }

    fn write(value: &Option<u32>) -> Option<String> {
        Self::write(&value.map(u64::from))
    }
}
