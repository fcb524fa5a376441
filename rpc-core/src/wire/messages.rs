//! The messages that share a frame, each behind its length.

use bytes::{Buf, Bytes};

use super::{MESSAGE_LEN_LEN, ProtocolError};

/// The longest frame of messages that share it, over any transport: more than a reader is likely to
/// take at a time would only wait, and a handler that keeps one message keeps its frame's memory.
pub(crate) const BATCH_LEN_MAX: usize = 32 << 10;

/// By how much a frame of messages may be longer than the longest message.
pub(crate) const MESSAGES_EXTRA: u64 = (MESSAGE_LEN_LEN + BATCH_LEN_MAX) as u64;

/// The lengths of the messages of a frame, in their order; an error, which is the last item, where
/// the frame is too short for what it says.
pub(crate) fn message_lens(frame: &[u8]) -> impl Iterator<Item = Result<usize, ProtocolError>> {
    let mut rest = frame;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let len = first_len(rest);
        rest = len.as_ref().map_or(&[], |len| &rest[MESSAGE_LEN_LEN + len..]);
        Some(len)
    })
}

/// Takes the first message off a frame, which was looked through when it was accepted. The message
/// aliases the frame.
pub(crate) fn split_message(rest: &mut Bytes) -> Bytes {
    let len = first_len(rest).unwrap_or_default();
    rest.advance(MESSAGE_LEN_LEN.min(rest.len()));
    // A part that is everything is not made shared, which allocates.
    if len == rest.len() { std::mem::take(rest) } else { rest.split_to(len) }
}

/// The length of the first message of a frame.
///
/// # Errors
///
/// Returns `ProtocolError` if the frame is too short for it.
fn first_len(rest: &[u8]) -> Result<usize, ProtocolError> {
    let truncated = |len: usize, needed: usize| ProtocolError::Truncated {
        what: "message of a stream",
        len: len as u64,
        needed: needed as u64,
    };
    let Some((len, _)) = rest.split_first_chunk::<MESSAGE_LEN_LEN>() else {
        return Err(truncated(rest.len(), MESSAGE_LEN_LEN));
    };
    let end = MESSAGE_LEN_LEN + u32::from_le_bytes(*len) as usize;
    if rest.len() < end {
        return Err(truncated(rest.len(), end));
    }
    Ok(end - MESSAGE_LEN_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lengths_of_a_frame_end_with_it_or_with_an_error() {
        let frame =
            [&2u32.to_le_bytes()[..], b"ab", &0u32.to_le_bytes(), &1u32.to_le_bytes(), b"c"];
        let frame = frame.concat();
        let lens: Result<Vec<_>, _> = message_lens(&frame).collect();
        assert_eq!(lens, Ok(vec![2, 0, 1]));
        for len in 1..frame.len() {
            let items: Vec<_> = message_lens(&frame[..len]).collect();
            let is_whole = [6, 10].contains(&len);
            assert_eq!(items.iter().all(Result::is_ok), is_whole, "{len} bytes");
            assert_eq!(items.iter().filter(|item| item.is_err()).count(), usize::from(!is_whole));
        }
        assert_eq!(message_lens(&[]).count(), 0);
    }

    #[test]
    fn messages_are_taken_off_their_frame_in_order() {
        let mut rest = Bytes::from_static(&[2, 0, 0, 0, 7, 8, 0, 0, 0, 0, 1, 0, 0, 0, 9]);
        let messages = [(); 3].map(|()| split_message(&mut rest));
        assert_eq!(messages, [&[7, 8][..], &[], &[9]]);
        assert!(rest.is_empty());
    }

    /// Peers of other builds size their limits on frames by it.
    #[test]
    fn a_frame_of_messages_may_be_so_much_longer_than_one() {
        assert_eq!((BATCH_LEN_MAX, MESSAGES_EXTRA), (32_768, 32_772));
    }
}
