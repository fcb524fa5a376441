//! Checks of payloads, every byte, for calls whose ends are counted by status.

use farcall::Status;
use farcall_testkit::calls::same_bytes;

/// Checks every byte; a failure names the first that differs instead of showing all.
pub(crate) fn same_payload(what: &str, found: &[u8], expected: &[u8]) -> Result<(), Status> {
    same_bytes(found, expected)
        .map_err(|difference| Status::data_loss(format!("{what}: {difference}")))
}
