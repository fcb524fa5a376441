//! Payloads that tell their seed: every byte is checked, and none is like another call's.

use bytes::Bytes;

use crate::failure::{Cause, Failure};

/// The pseudo-random payload of that seed and length.
#[must_use]
pub fn payload(seed: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes.into()
}

/// Checks every byte; a failure names the first that differs instead of showing all.
#[track_caller]
pub(crate) fn check_payload(what: &str, found: &[u8], expected: &[u8]) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).position(|(found, expected)| found != expected);
    let describe = |bytes: &[u8]| match at {
        Some(at) => format!("{} bytes with {:#04x} at {at}", bytes.len(), bytes[at]),
        None => format!("{} bytes", bytes.len()),
    };
    let (found, expected) = (describe(found), describe(expected));
    Err(Failure::new(Cause::Different { what: what.to_owned(), expected, found }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_named() {
        let expected = payload(1, 100);
        let mut found = expected.to_vec();
        found[70] ^= 1;
        let failure = check_payload("it", &found, &expected).unwrap_err().to_string();
        assert!(failure.contains("at 70"), "{failure}");
        let shorter = check_payload("it", &expected[..99], &expected).unwrap_err().to_string();
        assert!(shorter.contains("99 bytes instead of 100 bytes"), "{shorter}");
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(payload(1, 64), payload(2, 64));
        assert_eq!(payload(3, 64), payload(3, 64));
    }
}
