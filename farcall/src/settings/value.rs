//! Values as people write them: sizes with a unit, durations with a unit, words of a list.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use rpc_core::policy::retry::codes::code_of_name;
use serde_core::de::{Deserialize, Deserializer, Error, Visitor};

use crate::Code;

/// A number of bytes: an integer, or text with a unit such as `"64 MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        bytes_of(text, "4194304").map(Self)
    }
}

/// The bytes of a text; an error names another way to write the value.
fn bytes_of(text: &str, other: &str) -> Result<u64, String> {
    let size = text.parse::<ByteSize>().map(|size| size.as_u64());
    size.map_err(|_| format!("`{text}` is not a size: write \"4 MiB\" or {other}"))
}

/// A number of bytes that fits 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size32(pub(super) u32);

impl<'de> Deserialize<'de> for Size32 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Size(bytes) = Size::deserialize(deserializer)?;
        let bytes = u32::try_from(bytes);
        bytes.map(Self).map_err(|_| D::Error::custom("it is 4 GiB or more, and has to be less"))
    }
}

/// A number of bytes, or `"off"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizeOrOff(pub(super) Option<u64>);

impl FromStr for SizeOrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            text => bytes_of(text, "\"off\"").map(|bytes| Self(Some(bytes))),
        }
    }
}

/// How long: text with a unit such as `"10s"` or `"500ms"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period(pub(super) Duration);

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        humantime::parse_duration(text).map(Self).map_err(|_| {
            format!(
                "`{text}` is not a duration: write a number and a unit, as \"10s\" or \"500ms\""
            )
        })
    }
}

/// How long, or `"off"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeriodOrOff(pub(super) Option<Duration>);

impl FromStr for PeriodOrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            text => text
                .parse()
                .map(|Period(period)| Self(Some(period)))
                .map_err(|error: String| format!("{error}, or \"off\"")),
        }
    }
}

/// A count, or `"off"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountOrOff(pub(super) Option<u64>);

impl FromStr for CountOrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            text => Err(format!("`{text}` is no number, and not \"off\"")),
        }
    }
}

/// An integer, or text that is read by its type's `FromStr`.
struct Number<T> {
    expected: &'static str,
    /// What is not negative.
    what: &'static str,
    of: fn(u64) -> T,
}

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Number<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        let number = u64::try_from(number);
        number.map(self.of).map_err(|_| E::custom(format!("{} is not negative", self.what)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Ok((self.of)(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! numbers {
    ($($type:ty: $expected:literal, $what:literal, $of:expr;)*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let number = Number { expected: $expected, what: $what, of: $of };
                deserializer.deserialize_any(number)
            }
        }
    )*};
}

numbers! {
    Size: "a number of bytes, or text such as \"64 MiB\"", "a number of bytes", Size;
    SizeOrOff: "a number of bytes, text such as \"64 MiB\", or \"off\"", "a number of bytes",
        |bytes| SizeOrOff(Some(bytes));
    CountOrOff: "a number, or \"off\"", "a count", |count| CountOrOff(Some(count));
}

/// Permissions of a file in octal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketMode(pub(super) u32);

impl FromStr for SocketMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = u32::from_str_radix(text.trim_start_matches("0o"), 8).map(Self);
        mode.map_err(|_| format!("`{text}` is no mode of a file: write \"0660\" or such"))
    }
}

/// A status code by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodeName(pub(super) Code);

impl FromStr for CodeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = code_of_name(text).map(Self);
        found.ok_or_else(|| format!("`{text}` is not a status code: write \"UNAVAILABLE\" or such"))
    }
}

/// Text that is read by its type's `FromStr`.
struct Text<T>(&'static str, PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! text {
    ($($type:ty: $expected:literal;)*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Text($expected, PhantomData))
            }
        }
    )*};
}

text! {
    Period: "text with a unit, as \"10s\" or \"500ms\"";
    PeriodOrOff: "text with a unit, as \"10s\" or \"500ms\", or \"off\"";
    crate::Address: "an address, as \"auto://host:7000\"";
    SocketMode: "octal digits in quotes, as \"0660\"";
    CodeName: "the name of a status code, as \"UNAVAILABLE\"";
}

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident: $($word:literal),+;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) struct $name(pub(super) &'static str);

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let words = [$($word),+];
                let found = words.iter().find(|word| **word == text);
                let found = found.copied().map(Self);
                found.ok_or_else(|| format!("`{text}` is none of {}", words.join(", ")))
            }
        }

        text! { $name: "text"; }
    )*};
}

words! {
    /// Whether something has to be there.
    Requirement: "required", "optional";
    /// How a call's server is chosen.
    BalancePolicy: "least_loaded", "round_robin", "pick_first", "consistent_hash";
}

#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
words! {
    /// Reach of the keys that a peer is given.
    KeyScope: "auto", "window", "region";
    /// Way to choose the port of a connection.
    Choice: "address", "nearest";
}
