//! Thread-local memory that short frames encode into.
//!
//! A short frame is copied into the next write's batch anyway. It needs no memory of its own before
//! that. It does not look at the queue before it is encoded either, so each frame takes the queue's
//! lock once.

use std::cell::Cell;

use rpc_core::transport::{OutFrame, TransportError};

use crate::codec::record::{RECORD_HEADER_LEN, RecordHeader, RecordKind};
use crate::send::batch::SHORT_LEN_MAX;

type Scratch = Box<[u8; SHORT_LEN_MAX]>;

thread_local! {
    /// Absent while a frame encodes itself, since its code may send another frame.
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
}

/// Returns true if the frame is short enough and has no tail.
pub(crate) fn fits(frame: &OutFrame<'_>) -> bool {
    frame.tail().is_none() && frame.head_len() <= SHORT_LEN_MAX - RECORD_HEADER_LEN
}

/// Calls `send` with the record of a frame that [`fits`].
///
/// # Errors
///
/// Returns the error of `send`, or `Withdrawn` if the frame has withdrawn itself.
pub(crate) fn with_record(
    frame: OutFrame<'_>,
    send: impl FnOnce(&[u8]) -> Result<(), TransportError>,
) -> Result<(), TransportError> {
    // Absent on a thread that is ending, and inside a frame that sends another.
    let kept = SCRATCH.try_with(Cell::take).ok().flatten();
    let mut scratch = kept.unwrap_or_else(|| Box::new([0; SHORT_LEN_MAX]));
    let len = frame.head_len();
    let record = &mut scratch[..RECORD_HEADER_LEN + len];
    let (header, body) = record.split_at_mut(RECORD_HEADER_LEN);
    header.copy_from_slice(&RecordHeader::new(RecordKind::Single, len).to_bytes());
    let written = frame.write_head(body).map_err(TransportError::from);
    let sent = written.and_then(|()| send(record));
    // A nested frame may have put its own memory back. One of the two is dropped.
    let _ = SCRATCH.try_with(|cell| cell.set(Some(scratch)));
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_may_send_another_while_it_encodes() {
        let write = |byte: u8, inner: bool| {
            let bytes = [byte; 100];
            let frame_sent = |record: &[u8]| {
                assert_eq!(record[RECORD_HEADER_LEN..], bytes);
                Ok(())
            };
            if inner {
                let other = [9; 10];
                with_record(OutFrame::new(10, None, &mut &other[..]), |_| Ok(())).unwrap();
            }
            with_record(OutFrame::new(bytes.len(), None, &mut &bytes[..]), frame_sent).unwrap();
        };
        write(1, false);
        write(2, true);
        let bytes = [3; 50];
        let sent = with_record(OutFrame::new(50, None, &mut &bytes[..]), |record| {
            write(4, true);
            assert_eq!(record[RECORD_HEADER_LEN..], bytes);
            Ok(())
        });
        assert_eq!(sent, Ok(()));
    }

    #[test]
    fn long_frames_do_not_fit() {
        let longest = [0; SHORT_LEN_MAX - RECORD_HEADER_LEN + 1];
        let frame_fits = |len: usize| fits(&OutFrame::new(len, None, &mut &longest[..len]));
        assert!(frame_fits(longest.len() - 1) && !frame_fits(longest.len()));
    }
}
