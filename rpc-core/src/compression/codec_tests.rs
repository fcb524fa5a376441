//! Inflating returns the compressed message, and anything else ends in an error.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::payload::encode::Encode;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A message of which the tail lies elsewhere.
#[derive(Debug)]
struct Parts {
    head: Vec<u8>,
    tail: Option<Bytes>,
}

impl Encode for Parts {
    fn len(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, Bytes::len)
    }

    fn tail(&self) -> Option<&Bytes> {
        self.tail.as_ref()
    }

    fn encode_head(&self, out: &mut [u8]) {
        out.copy_from_slice(&self.head);
    }
}

/// Returns a compressed message without its length.
fn deflated(message: &[u8]) -> Option<Bytes> {
    let parts = Parts { head: message.to_vec(), tail: None };
    block_on(deflate(&parts)).map(|bytes| bytes.slice(8..))
}

fn text(len: usize) -> Vec<u8> {
    b"{\"name\": \"Ada\", \"number\": 1815}, ".iter().copied().cycle().take(len).collect()
}

/// Bytes that no compressor makes shorter.
fn noise(len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

#[test]
fn messages_of_every_length_come_back() {
    for len in [100, 1024, PIECE_LEN - 1, PIECE_LEN, PIECE_LEN + 1, 5 * PIECE_LEN + 3] {
        let text = text(len);
        let short = deflated(&text).expect("it repeats itself");
        assert!(short.len() < len, "{len}");
        assert_eq!(block_on(inflate(&short, len)), Ok(Bytes::from(text)));
    }
}

#[test]
fn a_tail_is_compressed_with_its_message() {
    let all = text(300_000);
    let parts = Parts { head: all[..1000].to_vec(), tail: Some(all[1000..].to_vec().into()) };
    let whole = Parts { head: all.clone(), tail: None };
    let [parts, whole] = [parts, whole].map(|it| block_on(deflate(&it)).unwrap());
    assert_eq!(parts[..8], 300_000_u64.to_le_bytes());
    assert_eq!(block_on(inflate(&parts[8..], all.len())), Ok(Bytes::from(all)));
    assert!(whole.len() < 10_000);
}

#[test]
fn what_does_not_become_smaller_goes_as_it_is() {
    for len in [0, 1, 20, 1024, 3 * PIECE_LEN, 3 << 20] {
        assert_eq!(deflated(&noise(len)), None, "{len}");
    }
}

#[test]
fn a_message_has_exactly_the_length_that_it_says() {
    let text = text(100_000);
    let short = deflated(&text).unwrap();
    let inflated = |bytes: &[u8], len| block_on(inflate(bytes, len)).unwrap_err();
    assert_eq!(inflated(&short, 99_999), "it inflates beyond its announced length");
    assert_eq!(inflated(&short, 10), "it inflates beyond its announced length");
    assert_eq!(inflated(&short, 100_001), "it inflates to less than its announced length");
    let most = short.len() * RATIO_MAX;
    assert_eq!(inflated(&short, most), "it inflates to less than its announced length");
    let message = "its announced length is impossible for so few compressed bytes";
    assert_eq!(inflated(&short, most + 1), message);
    assert_eq!(inflated(&[], usize::MAX), message);
    assert_eq!(inflated(&[&short[..], b"x"].concat(), 100_000), "data follows its end");
    for len in 97..short.len() {
        assert_eq!(inflated(&short[..len], 100_000), "it is cut short", "{len}");
    }
}

/// The most that deflate can do: a stream of zeros.
#[test]
fn the_highest_ratio_is_allowed() {
    let zeros = vec![0; 1 << 20];
    let short = deflated(&zeros).unwrap();
    assert_eq!(block_on(inflate(&short, zeros.len())), Ok(Bytes::from(zeros)));
}

proptest! {
    #[test]
    fn garbage_is_an_error_or_as_long_as_it_says(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        has_header in any::<bool>(),
        len in 0..10_000_usize,
    ) {
        if has_header && bytes.len() > 2 {
            // What zlib begins with, so that some of it is looked at.
            bytes[..2].copy_from_slice(&[0x78, 0x01]);
        }
        if let Ok(inflated) = block_on(inflate(&bytes, len)) {
            prop_assert_eq!(inflated.len(), len);
        }
    }

    #[test]
    fn a_flipped_bit_never_goes_unnoticed(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let text = text(5000);
        let mut short = deflated(&text).unwrap().to_vec();
        let at = at.index(short.len());
        short[at] ^= 1_u8 << bit;
        // The bits of the header say how it was made, and are checked; two say nothing more.
        if let Ok(inflated) = block_on(inflate(&short, 5000)) {
            prop_assert_eq!(inflated, text);
        }
    }

    #[test]
    fn anything_comes_back(message in prop::collection::vec(0..4_u8, 0..5000)) {
        if let Some(short) = deflated(&message) {
            prop_assert_eq!(block_on(inflate(&short, message.len())), Ok(Bytes::from(message)));
        }
    }
}
