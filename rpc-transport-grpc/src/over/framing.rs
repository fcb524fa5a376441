//! Where messages begin and end in the bytes of a body: gRPC's length-prefixed messages.
//!
//! tonic reads the messages. It takes a body that ends right behind a message's prefix for one that
//! has ended well, and answers a message over its limit with a code that names no setting. So the
//! bytes are followed here, too; nothing of them is kept but a prefix.

/// The compressed flag and the length, big-endian, before each message.
const PREFIX_LEN: usize = 5;

/// How far the bytes of a body have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Framing {
    /// The longest message that is taken, in bytes as it travels.
    max_message_len: u64,
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// So many bytes of a prefix are there.
    Prefix { bytes: [u8; PREFIX_LEN], len: usize },
    /// So many bytes of a message of that length are to come.
    Message { left: u64, len: u64, is_compressed: bool },
}

const BETWEEN: At = At::Prefix { bytes: [0; PREFIX_LEN], len: 0 };

/// A message that is longer than is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong {
    pub(super) len: u64,
    pub(super) max: u64,
}

/// What tonic keeps of a message until the next part of the body is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Held {
    /// The bytes of the message of which a part has come; 0 between messages.
    pub(super) len: u64,
    /// Whether a message may be inflated: one that has ended with these bytes, or the one that has
    /// begun.
    pub(super) may_inflate: bool,
}

impl Framing {
    pub(super) fn new(max_message_len: u64) -> Self {
        Self { max_message_len, at: BETWEEN }
    }

    /// The longest message that is taken, in bytes.
    pub(super) fn max_message_len(&self) -> u64 {
        self.max_message_len
    }

    /// Follows the next bytes of the body.
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
        // tonic refuses every other flag.
        let is_compressed = flag == 1;
        self.at = if len == 0 { BETWEEN } else { At::Message { left: len, len, is_compressed } };
        Ok(())
    }

    /// Whether the body may end here.
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
    fn a_message_over_the_limit_is_known_by_its_prefix() {
        let mut framing = Framing::new(10);
        framing.push(&framed(&[10])).unwrap();
        assert_eq!(framing.push(&[0, 0, 0, 0, 11]), Err(TooLong { len: 11, max: 10 }));
    }

    #[test]
    fn what_may_be_inflated_is_known_from_the_prefix_to_the_last_byte() {
        let held = |len, may_inflate| Ok(Held { len, may_inflate });
        let mut framing = Framing::new(10);
        assert_eq!(framing.push(&[1, 0, 0, 0]), held(0, false));
        assert_eq!(framing.push(&[2]), held(2, true));
        assert_eq!(framing.push(&[7]), held(2, true));
        assert_eq!(framing.push(&[7]), held(0, true), "tonic inflates it now");
        assert_eq!(framing.push(&framed(&[3])), held(0, false));
        // Several in a piece, of which the last is not compressed.
        let several = [&[1, 0, 0, 0, 1, 7][..], &framed(&[2])[..6]].concat();
        assert_eq!(framing.push(&several), held(2, true));
    }

    proptest! {
        /// Whatever the pieces that the bytes come in.
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
