//! What a server says of another attempt: the metadata `grpc-retry-pushback-ms`.

use std::time::Duration;

/// The key of a status's metadata. Its value is how many milliseconds to wait, or a negative
/// number.
pub const PUSHBACK_KEY: &str = "grpc-retry-pushback-ms";

/// The key of a request's metadata that says how many attempts preceded it.
pub const ATTEMPTS_KEY: &str = "grpc-previous-rpc-attempts";

/// What a server says of another attempt at a call that it has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushback {
    /// Nothing: the client's policy decides.
    Unsaid,
    /// To make it after exactly that long.
    After(Duration),
    /// To make none.
    Stop,
}

impl Pushback {
    /// Reads the value of the metadata, if there is one. One that is no number asks for no more
    /// attempts, as in gRPC: a server that says anything has trouble.
    #[must_use]
    pub fn read(value: Option<&[u8]>) -> Self {
        let Some(value) = value else { return Self::Unsaid };
        let ms = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i32>().ok());
        match ms.and_then(|ms| u64::try_from(ms).ok()) {
            Some(ms) => Self::After(Duration::from_millis(ms)),
            None => Self::Stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_delay_and_anything_else_stops() {
        let ms = |ms| Pushback::After(Duration::from_millis(ms));
        let table: [(Option<&[u8]>, _); 9] = [
            (None, Pushback::Unsaid),
            (Some(b"0"), ms(0)),
            (Some(b"250"), ms(250)),
            (Some(b"2147483647"), ms(2_147_483_647)),
            (Some(b"2147483648"), Pushback::Stop),
            (Some(b"-1"), Pushback::Stop),
            (Some(b""), Pushback::Stop),
            (Some(b"soon"), Pushback::Stop),
            (Some(b"\xff"), Pushback::Stop),
        ];
        for (value, expected) in table {
            assert_eq!(Pushback::read(value), expected, "{value:?}");
        }
    }
}
