//! Message boundaries in the bytes of a body: gRPC's length-prefixed messages.
//!
//! tonic decodes the messages. It treats a body that ends right after a message's prefix as
//! complete, and refuses a message over its limit with a code that names no setting. This module
//! follows the same bytes to catch both. It keeps nothing but a prefix.

/// Length of the prefix of each message: the compressed flag, and the length in big-endian.
const PREFIX_LEN: usize = 5;

/// A position in the messages of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Framing {
    /// Maximum message length in bytes, as sent on the wire.
    max_message_len: u64,
    at: At,
}

/// The part of a message that the position is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Inside a prefix, after `len` bytes.
    Prefix { bytes: [u8; PREFIX_LEN], len: usize },
    /// Inside a message of `len` bytes, with `left` bytes missing.
    Message { left: u64, len: u64, is_compressed: bool },
}

const BETWEEN: At = At::Prefix { bytes: [0; PREFIX_LEN], len: 0 };

/// A message longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong {
    pub(super) len: u64,
    pub(super) max: u64,
}

/// The data that tonic holds until it asks for the next part of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Held {
    /// Length of the incomplete message in bytes; 0 between messages.
    pub(super) len: u64,
    /// True if tonic may inflate a message now: one that these bytes complete, or the incomplete
    /// one.
    pub(super) may_inflate: bool,
}

impl Framing {
    pub(super) fn new(max_message_len: u64) -> Self {
        Self { max_message_len, at: BETWEEN }
    }

    /// Returns the maximum message length in bytes.
    pub(super) fn max_message_len(&self) -> u64 {
        self.max_message_len
    }

    /// Follows the next bytes of the body.
    ///
    /// # Errors
    ///
    /// Returns `TooLong` at the prefix of a message over the limit.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<Held, TooLong> {
        let mut may_inflate = false;
        while !bytes.is_empty() {
            match &mut self.at {
                At::Message { left, is_compressed, .. } => {
                    may_inflate |= *is_compressed;
                    let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    bytes = &bytes[taken..];
                    *left -= taken as u64;
                    if *left == 0 {
                        self.at = BETWEEN;
                    }
                }
                At::Prefix { bytes: prefix, len } => {
                    prefix[*len] = bytes[0];
                    bytes = &bytes[1..];
                    *len += 1;
                    if *len == PREFIX_LEN {
                        let [flag, a, b, c, d] = *prefix;
                        self.begin(flag, u32::from_be_bytes([a, b, c, d]).into())?;
                    }
                }
            }
        }
        let (len, is_compressed) = match self.at {
            At::Message { len, is_compressed, .. } => (len, is_compressed),
            At::Prefix { .. } => (0, false),
        };
        Ok(Held { len, may_inflate: may_inflate || is_compressed })
    }

    fn begin(&mut self, flag: u8, len: u64) -> Result<(), TooLong> {
        if len > self.max_message_len {
            return Err(TooLong { len, max: self.max_message_len });
        }
        // tonic refuses every other flag, so they need no check here.
        let is_compressed = flag == 1;
        self.at = if len == 0 { BETWEEN } else { At::Message { left: len, len, is_compressed } };
        Ok(())
    }

    /// Returns true if the body may end here.
    pub(super) fn is_between_messages(&self) -> bool {
        self.at == BETWEEN
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(lens: &[usize]) -> Vec<u8> {
        let message = |len: &usize| {
            let prefix = u32::try_from(*len).unwrap().to_be_bytes();
            [&[0][..], &prefix, &vec![7; *len]].concat()
        };
        lens.iter().flat_map(message).collect()
    }

    #[test]
    fn an_oversized_message_is_refused_at_its_prefix() {
        let mut framing = Framing::new(10);
        framing.push(&framed(&[10])).unwrap();
        assert_eq!(framing.push(&[0, 0, 0, 0, 11]), Err(TooLong { len: 11, max: 10 }));
    }

    #[test]
    fn inflation_is_possible_from_prefix_to_last_byte() {
        let held = |len, may_inflate| Ok(Held { len, may_inflate });
        let mut framing = Framing::new(10);
        assert_eq!(framing.push(&[1, 0, 0, 0]), held(0, false));
        assert_eq!(framing.push(&[2]), held(2, true));
        assert_eq!(framing.push(&[7]), held(2, true));
        assert_eq!(framing.push(&[7]), held(0, true), "tonic inflates it now");
        assert_eq!(framing.push(&framed(&[3])), held(0, false));
        // Several messages in one piece; the last one is not compressed.
        let several = [&[1, 0, 0, 0, 1, 7][..], &framed(&[2])[..6]].concat();
        assert_eq!(framing.push(&several), held(2, true));
    }

    proptest! {
        /// Holds for every way to cut the body into pieces.
        #[test]
        fn a_body_may_end_between_messages_only(
            lens in prop::collection::vec(0..300_usize, 0..6),
            cuts in prop::collection::vec(1..40_usize, 1..20),
        ) {
            let bytes = framed(&lens);
            let mut ends = vec![0];
            for len in &lens {
                ends.push(ends[ends.len() - 1] + PREFIX_LEN + len);
            }
            let (mut framing, mut at) = (Framing::new(300), 0);
            for cut in cuts.iter().cycle() {
                prop_assert_eq!(framing.is_between_messages(), ends.contains(&at));
                if at == bytes.len() {
                    break;
                }
                let end = bytes.len().min(at + cut);
                framing.push(&bytes[at..end]).unwrap();
                at = end;
            }
        }
    }
}
