//! Record streams, read in steps of any length.

use proptest::prelude::*;

use super::*;
use crate::codec::record::ack;
use rpc_core::wire::{FrameHeader, FrameKind};

/// Feeds `bytes` in steps and collects the frames. `accept` decides on every large frame.
fn feed(bytes: &[u8], step: usize, accept: bool) -> Result<Vec<Bytes>, ProtocolError> {
    let steps: Vec<_> = bytes.chunks(step).collect();
    feed_counted(&steps, accept).map(|(frames, _)| frames)
}

/// Feeds these reads, and also returns the number of copied bytes.
fn feed_counted(steps: &[&[u8]], accept: bool) -> Result<(Vec<Bytes>, u64), ProtocolError> {
    let mut decoder = Decoder::new(Pool::new(0));
    let mut frames = Vec::new();
    let mut steps = steps.iter();
    let mut rest: &[u8] = &[];
    loop {
        if rest.is_empty() {
            let Some(next) = steps.next() else { break };
            rest = next;
        }
        decoder.read(&mut rest, usize::MAX);
        while let Some(event) = decoder.next()? {
            match event {
                DecoderEvent::Announced { .. } if accept => {
                    decoder.admit(Admission::Accept { deadline: None, detacher: Some(VECTOR) });
                }
                DecoderEvent::Announced { .. } => decoder.admit(Admission::Refuse),
                DecoderEvent::Frame { frame, delivery } => frames.push(joined(frame, delivery)),
                DecoderEvent::Ack { .. } => {}
            }
        }
        decoder.release_if_empty();
    }
    assert!(decoder.is_between_frames());
    Ok((frames, decoder.take_copied_bytes()))
}

fn record(kind: RecordKind, transfer: u32, frame_len: Option<u64>, body: &[u8]) -> Vec<u8> {
    let len = body.len() + frame_len.map_or(0, |_| FRAME_LEN_LEN);
    let mut out = RecordHeader { kind, len, transfer, wants_ack: false }.to_bytes().to_vec();
    out.extend(frame_len.iter().flat_map(|len| len.to_le_bytes()));
    out.extend_from_slice(body);
    out
}

fn interleaved() -> Vec<u8> {
    [
        record(RecordKind::First, 1, Some(100_000), &[1; 60_000]),
        record(RecordKind::Single, 0, None, &[2; 40]),
        record(RecordKind::First, 2, Some(70_000), &[3; 50_000]),
        record(RecordKind::Next, 1, None, &[1; 40_000]),
        record(RecordKind::Next, 2, None, &[3; 20_000]),
    ]
    .concat()
}

#[test]
fn interleaved_frames_are_separated_at_any_step() {
    for step in [1, 11, 4096, 65_000, 1 << 20] {
        let frames = feed(&interleaved(), step, true).unwrap();
        let firsts: Vec<_> = frames.iter().map(|frame| (frame[0], frame.len())).collect();
        assert_eq!(firsts, [(2, 40), (1, 100_000), (3, 70_000)], "step {step}");
        assert!(frames.iter().all(|frame| frame.iter().all(|byte| *byte == frame[0])));
    }
}

#[test]
fn frames_arrive_whole_and_long_ones_are_barely_copied() {
    let lens = [40, 26_000, 16_384, 16_383, 65_536, 26_000, 32, 26_000, 40_000, 26_000];
    let sent: Vec<_> = (1u8..).zip(lens).map(|(byte, len)| vec![byte; len]).collect();
    let records: Vec<_> =
        sent.iter().map(|frame| record(RecordKind::Single, 0, None, frame)).collect();
    let together = records.concat();
    for step in [1, 1000, 30_000, 1 << 20] {
        let steps: Vec<_> = together.chunks(step).collect();
        let (frames, _) = feed_counted(&steps, true).unwrap();
        assert_eq!(frames, sent, "step {step}");
    }
    let one_by_one: Vec<_> = records.iter().map(|record| &record[..]).collect();
    let (frames, copied_bytes) = feed_counted(&one_by_one, true).unwrap();
    assert_eq!((frames, copied_bytes), (sent.into_iter().map(Bytes::from).collect(), 16_455));
}

#[test]
fn a_large_frame_is_read_into_its_final_memory() {
    let chunks = (1..64).map(|_| record(RecordKind::Next, 1, None, &[1; 100_000]));
    let first = record(RecordKind::First, 1, Some(6_400_000), &[1; 100_000]);
    let chunks: Vec<_> = std::iter::once(first).chain(chunks).collect();
    let together = chunks.concat();
    let one_by_one: Vec<_> = chunks.iter().map(|chunk| &chunk[..]).collect();
    for steps in [&one_by_one[..], &[&together[..]]] {
        let (frames, copied_bytes) = feed_counted(steps, true).unwrap();
        assert_eq!(frames[0].len(), 6_400_000);
        // Bytes that arrive with the first header, before the frame is known, and little else.
        assert!(copied_bytes < 70_000, "{copied_bytes}");
    }
}

/// The frame of a request whose message is one vector, behind `block_len` bytes of metadata.
fn frame_of_a_vector(block_len: usize, vector: &[u8]) -> Vec<u8> {
    let message = rpc_core::codegen::prost::Message::encode_to_vec(&vector.to_vec());
    let mut header = FrameHeader::bare(FrameKind::Request, 1);
    header.metadata_len = u32::try_from(block_len).unwrap();
    header.message_len = message.len() as u64;
    [&header.to_bytes()[..], &vec![5; block_len], &message].concat()
}

/// Cuts a frame into the records of a transfer, of these lengths.
fn chunked(transfer: u32, frame: &[u8], lens: &[usize]) -> Vec<Vec<u8>> {
    let (mut rest, mut records) = (frame, Vec::new());
    for &len in lens.iter().chain(std::iter::once(&usize::MAX)) {
        let (chunk, behind) = rest.split_at(len.min(rest.len()));
        rest = behind;
        let (kind, frame_len) = match records.is_empty() {
            true => (RecordKind::First, Some(frame.len() as u64)),
            false => (RecordKind::Next, None),
        };
        if !chunk.is_empty() {
            records.push(record(kind, transfer, frame_len, chunk));
        }
    }
    records
}

#[test]
fn a_vector_is_read_into_its_final_memory() {
    let vector: Vec<u8> = (0..=250).cycle().take(3_000_000).collect();
    let frame = frame_of_a_vector(7, &vector);
    let mut decoder = Decoder::new(Pool::new(0));
    let stream = chunked(1, &frame, &[100_000; 29]).concat();
    let mut rest = &stream[..];
    decoder.read(&mut rest, 1000);
    assert!(matches!(decoder.next(), Ok(Some(DecoderEvent::Announced { .. }))));
    decoder.admit(Admission::Accept { deadline: None, detacher: Some(VECTOR) });
    assert!(matches!(decoder.next(), Ok(None)));
    let address = decoder.tail().expect("a vector").0.as_ptr();
    let mut event = None;
    while event.is_none() {
        decoder.read(&mut rest, 60_000);
        event = decoder.next().unwrap();
    }
    assert_eq!(decoder.acks.read_bytes(), frame.len() as u64);
    assert!(decoder.is_between_frames() && rest.is_empty());
    // Of each chunk what announces it, and what came before the frame was admitted.
    assert!(decoder.take_copied_bytes() < 3_000);
    let Some(DecoderEvent::Frame { frame: head, delivery: Delivery::Split(mut tail) }) = event
    else {
        panic!("{event:?}")
    };
    assert_eq!((head.len(), tail.len()), (frame.len() - vector.len(), vector.len()));
    assert_eq!((tail.bytes_mut().as_ptr(), &*tail.bytes_mut()), (address, &vector));
}

#[test]
fn a_frame_beside_others_is_announced_by_its_first_bytes() {
    for (block_len, is_split) in [(0, true), (100, true), (8_000, true), (9_000, false)] {
        let others = record(RecordKind::First, 1, Some(100_000), &[1; 60_000]);
        let frame = frame_of_a_vector(block_len, &[3; 70_000]);
        let stream = [others, chunked(2, &frame, &[]).concat()].concat();
        let (mut decoder, mut rest) = (Decoder::new(Pool::new(0)), &stream[..]);
        for detacher in [None, Some(VECTOR)] {
            while !matches!(decoder.next(), Ok(Some(DecoderEvent::Announced { .. }))) {
                decoder.read(&mut rest, 60_020);
            }
            decoder.admit(Admission::Accept { deadline: None, detacher });
        }
        assert!(matches!(decoder.next(), Ok(None)));
        assert_eq!(decoder.tail().is_some(), is_split, "{block_len} bytes of metadata");
        let copied_len = decoder.take_copied_bytes();
        assert!(copied_len < 69_000, "{copied_len} for {block_len} bytes of metadata");
    }
}

#[test]
fn a_refused_frame_is_discarded_alone() {
    for step in [1, 1000, 1 << 20] {
        let frames = feed(&interleaved(), step, false).unwrap();
        assert_eq!(frames.len(), 1);
    }
}

#[test]
fn chunks_that_do_not_fit_their_frame_are_violations() {
    let too_much = record(RecordKind::First, 1, Some(50), &[1; 60]);
    assert!(matches!(feed(&too_much, 1000, true), Err(ProtocolError::TooLong { .. })));
    let unknown = record(RecordKind::Next, 9, None, &[1; 60]);
    assert!(matches!(feed(&unknown, 1000, true), Err(ProtocolError::Invalid { .. })));
    let first = record(RecordKind::First, 1, Some(100), &[1; 60]);
    let twice = [first.clone(), first].concat();
    assert!(matches!(feed(&twice, 1000, true), Err(ProtocolError::Invalid { .. })));
}

#[test]
fn a_chunk_longer_than_its_frames_rest_is_a_violation() {
    let first = record(RecordKind::First, 1, Some(100), &[1; 60]);
    for is_accepted in [true, false] {
        let with_next = |len| {
            let next = record(RecordKind::Next, 1, None, &vec![1; len]);
            feed(&[&first[..], &next].concat(), 1000, is_accepted)
        };
        assert_eq!(with_next(40).map(|frames| frames.len()), Ok(usize::from(is_accepted)));
        assert!(matches!(with_next(41), Err(ProtocolError::TooLong { len: 41, max: 40, .. })));
    }
}

#[test]
fn a_frame_is_announced_with_its_header() {
    let frame: Vec<u8> = (0..100).collect();
    let mut decoder = Decoder::new(Pool::new(0));
    read(&mut decoder, &record(RecordKind::First, 1, Some(100), &frame));
    let event = decoder.next().unwrap();
    let Some(DecoderEvent::Announced { prefix, len: 100 }) = event else { panic!("{event:?}") };
    assert_eq!(prefix, frame[..HEADER_LEN]);
}

/// Reads as many of the `bytes` into the slices as fit. Returns the number of bytes in each.
fn read(decoder: &mut Decoder, bytes: &[u8]) -> [usize; 2] {
    let mut lens = [0; 2];
    let mut rest = bytes;
    for (slice, len) in decoder.read_slices().into_iter().zip(&mut lens) {
        *len = slice.len().min(rest.len());
        let (read, behind) = rest.split_at(*len);
        slice[..read.len()].copy_from_slice(read);
        rest = behind;
    }
    decoder.filled(lens[0] + lens[1]);
    lens
}

fn slice_lens(decoder: &mut Decoder) -> [usize; 2] {
    decoder.read_slices().map(|slice| slice.len())
}

#[test]
fn between_chunks_little_is_read_ahead() {
    let mut decoder = Decoder::new(Pool::new(0));
    assert!(decoder.is_between_frames() && !decoder.has_transfers());
    assert_eq!(slice_lens(&mut decoder), [0, BUFFER_LEN]);
    let first = record(RecordKind::First, 1, Some(100_000), &[1; 60_000]);
    assert_eq!(read(&mut decoder, &first[..50_000]), [0, 50_000]);
    assert!(!decoder.is_between_frames());
    assert!(matches!(decoder.next(), Ok(Some(DecoderEvent::Announced { len: 100_000, .. }))));
    assert_eq!(slice_lens(&mut decoder)[0], 0, "it is not admitted");
    decoder.admit(Admission::Accept { deadline: None, detacher: None });
    assert!(matches!(decoder.next(), Ok(None)));
    assert!(decoder.has_transfers() && !decoder.is_between_frames());
    let left = first.len() - 50_000;
    assert_eq!(slice_lens(&mut decoder), [left, AHEAD_LEN]);
    assert_eq!(read(&mut decoder, &first[50_000..]), [left, 0]);
    assert!(matches!(decoder.next(), Ok(None)));
    assert_eq!(decoder.acks.read_bytes(), 60_000);
    assert_eq!(slice_lens(&mut decoder), [0, AHEAD_LEN], "the next chunk is expected");
    assert!(!decoder.is_between_frames(), "a chunk is missing");
    let next = record(RecordKind::Next, 1, None, &[1; 40_000]);
    read(&mut decoder, &next[..RECORD_HEADER_LEN - 1]);
    assert_eq!(slice_lens(&mut decoder), [0, AHEAD_LEN]);
    read(&mut decoder, &next[RECORD_HEADER_LEN - 1..][..11]);
    assert!(matches!(decoder.next(), Ok(None)));
    assert_eq!(slice_lens(&mut decoder), [39_990, AHEAD_LEN]);
    read(&mut decoder, &next[RECORD_HEADER_LEN + 10..]);
    let event = decoder.next();
    assert!(matches!(event, Ok(Some(DecoderEvent::Frame { delivery: Delivery::Announced, .. }))));
    assert!(decoder.is_between_frames() && !decoder.has_transfers());
    assert_eq!((decoder.acks.read_bytes(), decoder.acks.take()), (100_000, None));
    assert_eq!(slice_lens(&mut decoder), [0, BUFFER_LEN]);
}

#[test]
fn a_single_record_after_a_chunk_is_read_whole() {
    let mut decoder = Decoder::new(Pool::new(0));
    read(&mut decoder, &record(RecordKind::First, 1, Some(100), &[1; 60]));
    assert!(matches!(decoder.next(), Ok(Some(DecoderEvent::Announced { .. }))));
    decoder.admit(Admission::Refuse);
    assert!(matches!(decoder.next(), Ok(None)));
    let single = record(RecordKind::Single, 0, None, &[2; 1000]);
    read(&mut decoder, &single[..RECORD_HEADER_LEN]);
    assert!(matches!(decoder.next(), Ok(None)));
    assert_eq!(slice_lens(&mut decoder), [0, BUFFER_LEN - RECORD_HEADER_LEN]);
    read(&mut decoder, &single[RECORD_HEADER_LEN..]);
    let event = decoder.next();
    assert!(matches!(event, Ok(Some(DecoderEvent::Frame { delivery: Delivery::Whole, .. }))));
}

#[test]
fn ack_requests_and_acks_are_decoded() {
    let mut decoder = Decoder::new(Pool::new(0));
    let mut first = record(RecordKind::First, 1, Some(100), &[1; 60]);
    first[1] = 1;
    read(&mut decoder, &[first, ack(77).to_vec()].concat());
    assert!(matches!(decoder.next(), Ok(Some(DecoderEvent::Announced { .. }))));
    decoder.admit(Admission::Refuse);
    assert!(matches!(decoder.next(), Ok(Some(DecoderEvent::Ack { read: 77 }))));
    assert_eq!(decoder.acks.take(), Some(60));
    let mut next = record(RecordKind::Next, 1, None, &[1; 40]);
    next[1] = 1;
    read(&mut decoder, &next);
    assert!(matches!(decoder.next(), Ok(None)), "it was refused");
    assert_eq!(decoder.acks.take(), Some(100));
    assert!(decoder.is_between_frames());
}

#[test]
fn concurrent_large_frames_are_limited() {
    let mut decoder = Decoder::new(Pool::new(0));
    let begin = |decoder: &mut Decoder, transfer| {
        read(decoder, &record(RecordKind::First, transfer, Some(100), &[1; HEADER_LEN]));
        let event = decoder.next();
        decoder.admit(Admission::Accept { deadline: None, detacher: None });
        event
    };
    for transfer in (1..).take(TRANSFERS_MAX) {
        assert!(matches!(begin(&mut decoder, transfer), Ok(Some(DecoderEvent::Announced { .. }))));
        assert!(matches!(decoder.next(), Ok(None)));
    }
    assert!(matches!(begin(&mut decoder, 99), Err(ProtocolError::Invalid { value: 99, .. })));
}

#[test]
fn an_empty_decoder_has_no_memory() {
    let pool = Pool::new(1 << 20);
    let [mut idle, mut next] = [Decoder::new(pool.clone()), Decoder::new(pool)];
    let address = idle.read_slices()[1].as_ptr();
    idle.release_if_empty();
    // The thread keeps it for the next read of any connection.
    assert_eq!(next.read_slices()[1].as_ptr(), address);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Frames in turns, some of them with vectors at their ends, are what was sent, however they
    /// are cut and read.
    #[test]
    fn frames_with_vectors_arrive_whole(
        lens in prop::collection::vec((0..300_usize, 1..200_000_usize), 1..4),
        chunk_lens in prop::collection::vec(HEADER_LEN..150_000, 0..6),
        steps in prop::collection::vec(1..100_000_usize, 1..6),
    ) {
        let frames: Vec<_> = (1..)
            .zip(&lens)
            .map(|(byte, (block_len, len))| frame_of_a_vector(*block_len, &vec![byte; *len]))
            .collect();
        let mut waiting: Vec<_> = (1..)
            .zip(&frames)
            .map(|(transfer, frame)| chunked(transfer, frame, &chunk_lens).into_iter())
            .collect();
        let mut stream = Vec::new();
        while waiting.iter().any(|records| records.len() > 0) {
            stream.extend(waiting.iter_mut().filter_map(Iterator::next).flatten());
        }
        let (mut decoder, mut rest) = (Decoder::new(Pool::new(0)), &stream[..]);
        let (mut received, mut steps) = (Vec::new(), steps.iter().cycle());
        while !rest.is_empty() {
            decoder.read(&mut rest, *steps.next().unwrap());
            while let Some(event) = decoder.next().unwrap() {
                match event {
                    DecoderEvent::Announced { .. } => {
                        let detacher = Some(VECTOR);
                        decoder.admit(Admission::Accept { deadline: None, detacher });
                    }
                    DecoderEvent::Frame { frame, delivery } => {
                        received.push(joined(frame, delivery));
                    }
                    DecoderEvent::Ack { .. } => {}
                }
            }
        }
        prop_assert!(decoder.is_between_frames());
        received.sort_by_key(|frame| *frame.last().unwrap());
        prop_assert_eq!(received, frames);
    }

    #[test]
    fn garbage_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        kind in 1u8..5,
    ) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() { *first = kind; }
        let mut decoder = Decoder::new(Pool::new(0));
        decoder.read_slices()[1][..bytes.len()].copy_from_slice(&bytes);
        decoder.filled(bytes.len());
        while let Ok(Some(event)) = decoder.next() {
            if let DecoderEvent::Announced { len, .. } = event {
                let accept = Admission::Accept { deadline: None, detacher: None };
                decoder.admit(if len < 1 << 20 { accept } else { Admission::Refuse });
            }
        }
    }
}
