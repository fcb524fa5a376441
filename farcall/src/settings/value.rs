//! Values of the file that no other crate knows, and the units of all.

use std::str::FromStr;

use bytesize::ByteSize;
use rpc_core::policy::retry_config::code_of_name;
use rpc_core::settings::{Mismatch, Raw, Units, Value};

use crate::Code;

/// Sizes and durations as libraries parse them.
pub(super) const UNITS: Units = Units {
    duration: |text| humantime::parse_duration(text).ok(),
    size: |text| text.parse::<ByteSize>().ok().map(|size| size.as_u64()),
};

/// A status code by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodeName(pub(super) Code);

impl FromStr for CodeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = code_of_name(text).map(Self);
        found.ok_or_else(|| {
            format!(
                "`{text}` is not a status code: write one such as \
                                     \"UNAVAILABLE\""
            )
        })
    }
}

macro_rules! text {
    ($($type:ty: $expected:literal;)*) => {$(
        #[doc(hidden)]
        impl Value for $type {
            fn read(raw: &Raw<'_>, _: &Units) -> Result<Self, Mismatch> {
                match raw {
                    Raw::Text(text) => {
                        text.parse().map_err(|error| Mismatch::from(format!("{error}")))
                    }
                    _ => Err(Mismatch::wrong_type(raw, $expected)),
                }
            }
        }
    )*};
}

text! {
    crate::Address: "an address such as \"auto://host:7000\"";
    CodeName: "the name of a status code, such as \"UNAVAILABLE\"";
}

/// A rule for something that may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requirement {
    Required,
    Optional,
}

rpc_core::setting_words! {
    Requirement { "required" => Self::Required, "optional" => Self::Optional }
}
