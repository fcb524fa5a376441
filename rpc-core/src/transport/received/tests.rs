//! Messages in two pieces, against prost's own decoding.

use proptest::prelude::*;

use super::*;
use crate::payload::encode::{Encode as _, Split};
use crate::payload::tail_field::{FieldVisitor, with_fields};
use crate::wire::FrameKind;

#[derive(Clone, PartialEq, prost::Message)]
struct Sample {
    #[prost(bytes = "vec", tag = "1")]
    vector: Vec<u8>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(bytes = "vec", optional, tag = "300")]
    optional: Option<Vec<u8>>,
    #[prost(bytes = "bytes", tag = "4")]
    shared: Bytes,
    #[prost(bytes = "vec", repeated, tag = "5")]
    repeated: Vec<Vec<u8>>,
    #[prost(fixed32, tag = "6")]
    fixed: u32,
    #[prost(double, tag = "7")]
    double: f64,
    #[prost(sint64, tag = "8")]
    number: i64,
}

fn fields(message: Option<&mut dyn Any>, visit: FieldVisitor<'_>) {
    with_fields::<Sample>(message, |Sample { vector, optional, shared, .. }| {
        visit(&mut [(1, vector), (300, optional), (4, shared)]);
    });
}

const DETACHER: Detacher = Detacher::new(fields);

/// The encodings of the fields in `order`, which are those of the message.
fn encoded(message: &Sample, order: &[usize]) -> Vec<u8> {
    let Sample { vector, name, optional, shared, repeated, fixed, double, number } = message;
    let empty = Sample::default();
    let parts = [
        Sample { vector: vector.clone(), ..empty.clone() },
        Sample { name: name.clone(), ..empty.clone() },
        Sample { optional: optional.clone(), ..empty.clone() },
        Sample { shared: shared.clone(), ..empty.clone() },
        Sample { repeated: repeated.clone(), ..empty.clone() },
        Sample { fixed: *fixed, double: *double, number: *number, ..empty },
    ];
    order.iter().flat_map(|part| parts[*part].encode_to_vec()).collect()
}

/// The frame of a request with a block of `block_len` bytes.
fn frame(block_len: usize, message: &[u8]) -> Vec<u8> {
    let mut header = FrameHeader::bare(FrameKind::Request, 7);
    header.metadata_len = u32::try_from(block_len).unwrap();
    header.message_len = message.len() as u64;
    [&header.to_bytes()[..], &vec![9; block_len], message].concat()
}

/// Takes a message apart as a transport does that has seen `first_len` bytes of the frame.
fn split(message: &[u8], block_len: usize, first_len: usize) -> Option<ReceivedMessage> {
    let frame = frame(block_len, message);
    let first = &frame[..first_len.min(frame.len())];
    let mut tail = Tail::find(DETACHER, first, frame.len())?;
    let (head, rest) = frame.split_at(frame.len() - tail.len());
    assert_eq!(tail.left(), rest.len());
    tail.bytes_mut().extend_from_slice(rest);
    assert_eq!(tail.left(), 0);
    let head = Bytes::copy_from_slice(&head[HEADER_LEN + block_len..]);
    Some(ReceivedMessage::new(head, Some(Box::new(tail))))
}

fn tail(message: &ReceivedMessage) -> &[u8] {
    match &message.0 {
        Pieces::One(_) => &[],
        Pieces::Two(split) => &split.tail.bytes,
    }
}

fn sample() -> impl Strategy<Value = Sample> {
    let len = prop_oneof![Just(0), Just(1), Just(DETACH_LEN_MIN - 1), DETACH_LEN_MIN..200_000];
    let bytes = (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]).boxed();
    let repeated = proptest::collection::vec(bytes.clone(), 0..3);
    let plain = (any::<String>(), any::<u32>(), -1e9..1e9, any::<i64>());
    let all = (bytes.clone(), proptest::option::of(bytes.clone()), bytes, repeated, plain);
    all.prop_map(|(vector, optional, shared, repeated, (name, fixed, double, number))| Sample {
        vector,
        name,
        optional,
        shared: shared.into(),
        repeated,
        fixed,
        double,
        number,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the order of the fields, and however much of the frame is seen.
    #[test]
    fn a_split_message_is_the_same(
        message in sample(),
        order in Just([0, 1, 2, 3, 4, 5]).prop_shuffle(),
        block_len in 0..300_usize,
        first_len in 0..1_000_usize,
    ) {
        let bytes = encoded(&message, &order);
        prop_assert_eq!(&Sample::decode(&*bytes).unwrap(), &message);
        for first_len in [first_len, usize::MAX] {
            if let Some(split) = split(&bytes, block_len, first_len) {
                prop_assert_eq!(split.len(), bytes.len());
                prop_assert_eq!(&split.to_bytes(), &bytes);
                prop_assert_eq!(&split.decode::<Sample>().unwrap(), &message);
            }
        }
    }

    #[test]
    fn any_bytes_are_looked_at(first: Vec<u8>, len in 0..200_000_usize) {
        prop_assert!(last_field(&first, len).is_none_or(|field| field.len <= len));
        let frame = frame(0, &first);
        let _ = Tail::find(DETACHER, &frame, frame.len() + len);
    }
}

#[test]
fn vectors_of_64_kib_at_the_end_are_tails() {
    let bytes = |len| vec![3; len];
    let long = Sample { vector: bytes(DETACH_LEN_MIN), ..Sample::default() };
    let optional = Sample { optional: Some(bytes(100_000)), ..Sample::default() };
    for message in [&long, &optional] {
        let address = |message: &Sample| {
            message.optional.as_ref().unwrap_or(&message.vector).as_slice().as_ptr()
        };
        let split = split(&message.encode_to_vec(), 5, 60).expect("it ends with a long vector");
        let received = tail(&split).as_ptr();
        let decoded: Sample = split.decode().unwrap();
        assert_eq!(&decoded, message);
        assert_eq!(address(&decoded), received, "the field is the memory that was received into");
    }
    let short = Sample { vector: bytes(DETACH_LEN_MIN - 1), ..Sample::default() };
    let shared = Sample { shared: bytes(100_000).into(), ..Sample::default() };
    let repeated = Sample { repeated: vec![bytes(100_000)], ..Sample::default() };
    let followed = Sample { number: 1, ..long.clone() };
    for message in [short, shared, repeated, followed] {
        assert!(split(&message.encode_to_vec(), 5, usize::MAX).is_none());
    }
    let unseen = Sample { name: "n".repeat(500), ..optional };
    let unseen = encoded(&unseen, &[1, 2]);
    assert!(split(&unseen, 0, 500).is_none(), "the field begins behind what is seen");
    assert!(split(&unseen, 0, 600).is_some());
    let group = [&[0x0b, 0x0c][..], &long.encode_to_vec()].concat();
    assert!(split(&group, 0, usize::MAX).is_none());
}

/// The order of the fields is the sender's, so a sender of this library puts the field last.
#[test]
fn what_a_sender_takes_apart_is_found() {
    let plain = Sample { name: "name".into(), fixed: 5, ..Sample::default() };
    for message in [
        Sample { vector: vec![1; 100_000], optional: Some(vec![2; 99_999]), ..plain.clone() },
        Sample { vector: vec![1; 99_999], optional: Some(vec![2; 100_000]), ..plain },
    ] {
        let sent = Split::new(message.clone(), Some(DETACHER));
        let taken = sent.tail().expect("it is long").clone();
        let mut bytes = vec![0; sent.len() - taken.len()];
        sent.encode_head(&mut bytes);
        bytes.extend_from_slice(&taken);
        let found = split(&bytes, 100, 256 + 99_999 + 8).expect("its last field is a vector");
        assert_eq!(tail(&found), taken);
        assert_eq!(found.decode::<Sample>().unwrap(), message);
    }
}

#[test]
fn a_message_is_as_long_as_its_bytes() {
    assert_eq!(size_of::<ReceivedMessage>(), size_of::<Bytes>());
}

/// A field that comes twice has the value that comes last.
#[test]
fn a_tail_replaces_what_came_before_it() {
    let early = Sample { vector: vec![1; 10], ..Sample::default() }.encode_to_vec();
    let late = Sample { vector: vec![2; DETACH_LEN_MIN], ..Sample::default() };
    let bytes = [early, late.encode_to_vec()].concat();
    assert_eq!(split(&bytes, 0, usize::MAX).unwrap().decode::<Sample>().unwrap(), late);
}

#[test]
fn a_message_of_another_type_is_decoded_from_one_piece() {
    let message = Sample { vector: vec![1; DETACH_LEN_MIN], ..Sample::default() };
    let split = split(&message.encode_to_vec(), 0, usize::MAX).unwrap();
    assert_eq!(split.decode::<Vec<u8>>().unwrap(), message.vector);
}
