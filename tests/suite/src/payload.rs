//! Checks of payloads, every byte.

pub use farcall_testkit::calls::payload;
use farcall_testkit::calls::same_bytes;

use crate::failure::{Cause, Failure};

/// Checks every byte; a failure names the first that differs instead of showing all.
#[track_caller]
pub(crate) fn check_payload(what: &str, found: &[u8], expected: &[u8]) -> Result<(), Failure> {
    same_bytes(found, expected)
        .map_err(|difference| Failure::new(Cause::Bytes { what: what.to_owned(), difference }))
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
        assert!(failure.contains("from 70 to 70"), "{failure}");
        let shorter = check_payload("it", &expected[..99], &expected).unwrap_err().to_string();
        assert!(shorter.contains("99 bytes instead of 100 bytes"), "{shorter}");
    }
}
