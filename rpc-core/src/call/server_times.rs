//! The times of a server for the account of a call: the client's wish for them, and the trailer
//! that has them.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

use crate::wire::{ProtocolError, metadata};

/// Key of the metadata entry that asks a server for its times, and of the trailer that has them.
pub(crate) const KEY: &str = "farcall-explain";

/// Maximum length of the trailer in bytes: two names, and two numbers of 20 digits.
const TRAILER_LEN_MAX: usize = 64;

/// Times that a server has measured. They are its claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerTimes {
    pub(super) queue: Duration,
    pub(super) handler: Duration,
}

impl ServerTimes {
    /// Reads a trailer; `None` for one that no server of ours sends.
    pub(super) fn parse(value: &AsciiMetadataValue) -> Option<Self> {
        let bytes = value.as_encoded_bytes();
        if bytes.len() > TRAILER_LEN_MAX {
            return None;
        }
        let (queue, handler) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        let nanos = |text: Option<&str>| text?.parse().ok().map(Duration::from_nanos);
        let queue = nanos(queue.strip_prefix("queue="))?;
        Some(Self { queue, handler: nanos(handler.strip_prefix("handler="))? })
    }

    pub(super) fn fits(self, window: Duration) -> bool {
        self.queue.checked_add(self.handler).is_some_and(|sum| sum <= window)
    }
}

/// Appends the entry that asks a server for its times to a request's block.
pub(crate) fn encode_wish(block: &mut Vec<u8>) -> Result<(), ProtocolError> {
    metadata::encode_entry(KEY, b"1", block)
}

/// A call on a server whose client asks for the server's times.
#[derive(Debug)]
pub(crate) struct ArrivedCall {
    at: Instant,
    dispatched: Instant,
    /// Place of the client's wish in the request's block.
    wish: Range<usize>,
}

impl ArrivedCall {
    /// Looks whether a request's block asks for times, without decoding it. Boxed: hardly any call
    /// has one.
    #[inline]
    pub(crate) fn new(block: &[u8]) -> Option<Box<Self>> {
        if block.is_empty() {
            return None;
        }
        let wish = metadata::find(block, KEY)?;
        let at = Instant::now();
        Some(Box::new(Self { at, dispatched: at, wish }))
    }

    /// Returns the request's block without the entry, which is no concern of handlers and of the
    /// calls that they make.
    pub(crate) fn strip(&self, block: &[u8]) -> Bytes {
        [&block[..self.wish.start], &block[self.wish.end..]].concat().into()
    }

    /// Records that the call goes to its handler.
    pub(crate) fn dispatch(&mut self) {
        self.dispatched = Instant::now();
    }

    /// Adds the times up to now to the trailers of the answer.
    pub(crate) fn insert(&self, trailers: &mut MetadataMap) {
        let (queue, handler) = (self.dispatched - self.at, self.dispatched.elapsed());
        // Of one length up to 1,000 s: the measurement does not change the frame.
        let (queue, handler) = (queue.as_nanos(), handler.as_nanos());
        let value = format!("queue={queue:012} handler={handler:012}");
        if let Ok(value) = AsciiMetadataValue::try_from(value) {
            trailers.insert(KEY, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(text: &'static str) -> Option<ServerTimes> {
        ServerTimes::parse(&AsciiMetadataValue::from_static(text))
    }

    #[test]
    fn server_times_are_two_numbers_and_nothing_else() {
        let expected = (Duration::from_nanos(12), Duration::from_nanos(3400));
        let times_of = times("queue=12 handler=3400").map(|it| (it.queue, it.handler));
        assert_eq!(times_of, Some(expected));
        for hostile in [
            "",
            "queue=12",
            "handler=1 queue=2",
            "queue=-1 handler=2",
            "queue=1 handler=99999999999999999999",
            "queue=1 handler=2 ",
            "queue=1 handler=2                                                          ",
        ] {
            assert_eq!(times(hostile), None, "{hostile:?}");
        }
    }
}
