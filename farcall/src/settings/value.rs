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

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;
        impl Visitor<'_> for Sizes {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or text such as \"64 MiB\"")
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                let bytes = u64::try_from(bytes);
                bytes.map(Size).map_err(|_| E::custom("a number of bytes is not negative"))
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                let size: ByteSize = text.parse().map_err(|_| {
                    E::custom(format!("`{text}` is not a size: write \"4 MiB\" or 4194304"))
                })?;
                Ok(Size(size.as_u64()))
            }
        }
        deserializer.deserialize_any(Sizes)
    }
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

impl<'de> Deserialize<'de> for SizeOrOff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;
        impl Visitor<'_> for Sizes {
            type Value = SizeOrOff;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, text such as \"64 MiB\", or \"off\"")
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<SizeOrOff, E> {
                let bytes = u64::try_from(bytes);
                let bytes = bytes.map_err(|_| E::custom("a number of bytes is not negative"))?;
                Ok(SizeOrOff(Some(bytes)))
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<SizeOrOff, E> {
                Ok(SizeOrOff(Some(bytes)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<SizeOrOff, E> {
                if text == "off" {
                    return Ok(SizeOrOff(None));
                }
                let size: ByteSize = text.parse().map_err(|_| {
                    E::custom(format!("`{text}` is not a size: write \"4 MiB\" or \"off\""))
                })?;
                Ok(SizeOrOff(Some(size.as_u64())))
            }
        }
        deserializer.deserialize_any(Sizes)
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

impl<'de> Deserialize<'de> for CountOrOff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counts;
        impl Visitor<'_> for Counts {
            type Value = CountOrOff;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or \"off\"")
            }

            fn visit_i64<E: Error>(self, count: i64) -> Result<CountOrOff, E> {
                let count = u64::try_from(count);
                let count = count.map_err(|_| E::custom("a count is not negative"))?;
                Ok(CountOrOff(Some(count)))
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<CountOrOff, E> {
                Ok(CountOrOff(Some(count)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<CountOrOff, E> {
                match text {
                    "off" => Ok(CountOrOff(None)),
                    text => Err(E::custom(format!("`{text}` is no number, and not \"off\""))),
                }
            }
        }
        deserializer.deserialize_any(Counts)
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
    /// How far the keys reach that a peer is given.
    KeyScope: "auto", "window", "region";
    /// Whether something has to be there.
    Requirement: "required", "optional";
    /// How the port of a connection is chosen.
    Choice: "address", "nearest";
    /// How a call's server is chosen.
    BalancePolicy: "least_loaded", "round_robin", "pick_first", "consistent_hash";
}
