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
    Message { left: u64, len: u64 },
}

const BETWEEN: At = At::Prefix { bytes: [0; PREFIX_LEN], len: 0 };

/// A message that is longer than is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong {
    pub(super) len: u64,
    pub(super) max: u64,
}

impl Framing {
    pub(super) fn new(max_message_len: u64) -> Self {
        Self { max_message_len, at: BETWEEN }
    }

    /// Follows the next bytes of the body.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            match &mut self.at {
                At::Message { left, .. } => {
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
                        let [_, a, b, c, d] = *prefix;
                        self.begin(u32::from_be_bytes([a, b, c, d]).into())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, len: u64) -> Result<(), TooLong> {
        if len > self.max_message_len {
            return Err(TooLong { len, max: self.max_message_len });
        }
        self.at = if len == 0 { BETWEEN } else { At::Message { left: len, len } };
        Ok(())
    }

    /// The length of the message of which a part has come.
    pub(super) fn message_len(&self) -> Option<u64> {
        match self.at {
            At::Message { len, .. } => Some(len),
            At::Prefix { .. } => None,
        }
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
