//! Record streams, read in steps of any length.

use proptest::prelude::*;

use super::*;
use crate::codec::record::ack;

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
        let mut len = 0;
        for slice in decoder.read_slices() {
            let take = slice.len().min(rest.len());
            slice[..take].copy_from_slice(&rest[..take]);
            rest = &rest[take..];
            len += take;
        }
        decoder.filled(len);
        while let Some(event) = decoder.next()? {
            match event {
                DecoderEvent::Announced { .. } if accept => {
                    decoder.admit(Admission::Accept { deadline: None });
                }
                DecoderEvent::Announced { .. } => decoder.admit(Admission::Refuse),
                DecoderEvent::Frame { frame, .. } => frames.push(frame),
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
    decoder.admit(Admission::Accept { deadline: None });
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
        decoder.admit(Admission::Accept { deadline: None });
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
                let accept = Admission::Accept { deadline: None };
                decoder.admit(if len < 1 << 20 { accept } else { Admission::Refuse });
            }
        }
    }
}
