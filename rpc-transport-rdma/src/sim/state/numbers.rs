//! Numbers of verbs that a device has to know: statuses, opcodes, error numbers and timers.

use std::io;
use std::time::Duration;

use crate::sys::provider::VerbsError;

/// Nanoseconds since the network began.
pub(crate) type Nanos = u64;

/// `enum ibv_wc_status`.
pub(crate) mod status {
    pub(crate) const LOCAL_LENGTH: u32 = 1;
    pub(crate) const LOCAL_OPERATION: u32 = 2;
    pub(crate) const LOCAL_PROTECTION: u32 = 4;
    pub(crate) const FLUSHED: u32 = 5;
    pub(crate) const WINDOW_BIND: u32 = 6;
    pub(crate) const REMOTE_INVALID_REQUEST: u32 = 9;
    pub(crate) const REMOTE_ACCESS: u32 = 10;
    pub(crate) const RETRY_EXCEEDED: u32 = 12;
    pub(crate) const RECEIVER_NOT_READY: u32 = 13;
}

/// `enum ibv_wc_opcode`.
pub(crate) mod opcode {
    pub(crate) const SEND: u32 = 0;
    pub(crate) const READ: u32 = 2;
    pub(crate) const BIND: u32 = 5;
    pub(crate) const INVALIDATE: u32 = 6;
    pub(crate) const RECEIVE: u32 = 128;
}

/// The number of retries that means for ever.
pub(crate) const RETRY_FOR_EVER: u8 = 7;

/// Hundredths of a millisecond for the 32 values of a receiver-not-ready timer.
const RNR_TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Returns the wait that a receiver-not-ready timer causes for a sender.
pub(crate) fn rnr_timer(value: u8) -> Nanos {
    let hundredths = RNR_TIMERS[usize::from(value) % RNR_TIMERS.len()];
    u64::from(hundredths) * 10_000
}

/// The acknowledgement timeout: 4.096 us times a power of two.
pub(crate) fn acknowledgement_timeout(exponent: u8) -> Nanos {
    4096 << exponent.min(31)
}

/// A duration in nanoseconds, as far as it can be counted.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX / 4)
}

/// A refusal with a system error number.
pub(crate) fn failed(operation: &'static str, errno: i32) -> VerbsError {
    VerbsError::system(operation, io::Error::from_raw_os_error(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_what_the_specification_says() {
        assert_eq!(rnr_timer(12), 640_000);
        assert_eq!(rnr_timer(0), 655_360_000);
        assert_eq!(acknowledgement_timeout(14), 67_108_864);
    }
}
