//! A set of status codes.

use std::fmt;

use tonic::Code;

/// The codes with their names in gRPC's specification, each at the index that is its number.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// A set of status codes, as a policy names them.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Codes(u32);

impl Codes {
    /// No code.
    pub const NONE: Self = Self(0);

    /// The same set with `code` in it.
    #[must_use]
    pub const fn with(self, code: Code) -> Self {
        Self(self.0 | 1 << code as u32)
    }

    /// Whether `code` is in it.
    #[must_use]
    pub const fn contains(self, code: Code) -> bool {
        self.0 & 1 << code as u32 != 0
    }

    /// Whether no code is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Code> for Codes {
    fn from_iter<I: IntoIterator<Item = Code>>(codes: I) -> Self {
        codes.into_iter().fold(Self::NONE, Self::with)
    }
}

impl<const N: usize> From<[Code; N]> for Codes {
    fn from(codes: [Code; N]) -> Self {
        codes.into_iter().collect()
    }
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = (0..).zip(NAMES);
        f.debug_list()
            .entries(numbers.filter(|(number, _)| self.0 & 1 << number != 0).map(|(_, name)| name))
            .finish()
    }
}

/// The code of a name such as `UNAVAILABLE`, in capitals or not.
#[must_use]
pub fn code_of_name(name: &str) -> Option<Code> {
    let number = (0..).zip(NAMES).find(|(_, it)| it.eq_ignore_ascii_case(name));
    number.map(|(number, _)| Code::from_i32(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_the_codes() {
        for number in 0..17 {
            let code = Code::from_i32(number);
            let name = NAMES[usize::try_from(number).unwrap()];
            assert_eq!(code_of_name(name), Some(code));
            assert_eq!(code_of_name(&name.to_lowercase()), Some(code));
            // tonic's name is the same without underscores.
            assert_eq!(format!("{code:?}").to_uppercase(), name.replace('_', ""));
        }
        assert_eq!(code_of_name("UNAVAILABLY"), None);
    }

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let codes = Codes::from([Code::Unavailable, Code::Ok, Code::Unauthenticated]);
        let has: Vec<_> = (0..17).filter(|&it| codes.contains(Code::from_i32(it))).collect();
        assert_eq!(has, [0, 14, 16]);
        assert_eq!(format!("{codes:?}"), r#"["OK", "UNAVAILABLE", "UNAUTHENTICATED"]"#);
        assert!(Codes::NONE.is_empty() && !codes.is_empty());
    }
}
