//! A decoder that turns the records of a connection into frames.
//!
//! Free of I/O: the reader asks for the slices to read into ([`Decoder::read_slices`]), reports the
//! number of bytes read, and takes events until there are none. A chunk of a large frame is read
//! directly into the frame's final memory. Only bytes that arrived with an earlier read are copied
//! there. A frame that ends with a vector has memory in two pieces: the vector is the second
//! ([`Decoder::tail`]).

use std::collections::HashMap;

use bytes::Bytes;
use rpc_core::codegen::Detacher;
use rpc_core::pool::{Pool, PoolBuffer};
use rpc_core::transport::{Admission, Delivery, Tail};
use rpc_core::wire::{FrameHeader, HEADER_LEN, ProtocolError};

use crate::codec::read_buffer::ReadBuffer;
use crate::codec::record::{
    ACK_LEN, FRAME_LEN_LEN, RECORD_HEADER_LEN, RecordHeader, RecordKind, SINGLE_LEN_MAX,
    TRANSFERS_MAX,
};
use crate::pacing::acks::Acks;

/// Length of the buffer: it holds the longest record that must be complete before it is decoded.
const BUFFER_LEN: usize = RECORD_HEADER_LEN + SINGLE_LEN_MAX;

/// Maximum number of bytes of metadata that are read before a large frame is announced. The last
/// field of its message is behind them.
const METADATA_SEEN_MAX: usize = 8 << 10;

/// Number of bytes of a message that are read before its large frame is announced: enough to see
/// the last field of one whose other fields are short.
const MESSAGE_SEEN_LEN: usize = 224;

/// Number of bytes to read beyond a chunk that goes directly to its frame, and before an expected
/// chunk: the next record's header, and everything that precedes a frame's own bytes. More would
/// have to be copied if the next record is a chunk, which it usually is.
const AHEAD_LEN: usize = RECORD_HEADER_LEN + FRAME_LEN_LEN + HEADER_LEN;

/// A decoded item.
#[derive(Debug)]
pub(crate) enum DecoderEvent {
    /// A large frame begins. The caller must call [`Decoder::admit`] next.
    Announced { prefix: [u8; HEADER_LEN], len: u64 },
    /// A frame is complete.
    Frame { frame: Bytes, delivery: Delivery },
    /// The peer has read `read` bytes of our chunks in total.
    Ack { read: u64 },
}

/// A large frame that is incomplete.
#[derive(Debug)]
enum Transfer {
    Receiving(Receiving),
    Discarding { left: u64 },
}

/// The memory of a large frame, in the order in which it is filled.
#[derive(Debug)]
struct Receiving {
    memory: PoolBuffer,
    /// Number of bytes in `memory` that are filled.
    at: usize,
    /// The end of the frame, where that has memory of its own.
    tail: Option<Box<Tail>>,
}

impl Receiving {
    /// Takes memory for a frame of `len` bytes, which begins with `first`.
    fn new(pool: &Pool, len: usize, first: &[u8], detacher: Option<Detacher>) -> Self {
        let tail = detacher.and_then(|detacher| Tail::find(detacher, first, len)).map(Box::new);
        let head_len = len - tail.as_ref().map_or(0, |tail| tail.len());
        Self { memory: pool.take(head_len), at: 0, tail }
    }

    /// Returns the number of bytes that are missing.
    fn left(&self) -> usize {
        self.memory.len() - self.at + self.tail.as_ref().map_or(0, |tail| tail.left())
    }

    /// Moves up to `len` bytes from the buffer.
    fn copy_from(&mut self, buffer: &mut ReadBuffer, len: usize) {
        let end = self.memory.len().min(self.at + len);
        let copied_len = buffer.copy_to(&mut self.memory[self.at..end]);
        self.at += copied_len;
        if let Some(tail) = &mut self.tail {
            buffer.append_to(tail.bytes_mut(), len - copied_len);
        }
    }

    /// The complete frame.
    fn into_frame(self) -> DecoderEvent {
        let delivery = self.tail.map_or(Delivery::Announced, Delivery::Split);
        DecoderEvent::Frame { frame: self.memory.freeze(), delivery }
    }
}

/// The position of the decoder between two bytes.
#[derive(Debug, Clone, Copy)]
enum DecoderState {
    Header,
    /// The large frame of this transfer awaits admission. `chunk_len` is the length of its first
    /// chunk.
    Admission {
        transfer: u32,
        chunk_len: usize,
        len: u64,
    },
    Chunk {
        transfer: u32,
        left: usize,
    },
}

/// A decoder with its read buffer and the large frames that are incomplete.
#[derive(Debug)]
pub(crate) struct Decoder {
    pool: Pool,
    buffer: ReadBuffer,
    state: DecoderState,
    transfers: HashMap<u32, Transfer>,
    pub(crate) acks: Acks,
}

impl Decoder {
    pub(crate) fn new(pool: Pool) -> Self {
        Self {
            buffer: ReadBuffer::new(pool.clone(), BUFFER_LEN),
            pool,
            state: DecoderState::Header,
            transfers: HashMap::new(),
            acks: Acks::default(),
        }
    }

    /// Returns the vector to read into, and the maximum number of bytes to append, if the next
    /// bytes belong to a frame's tail. If not, they go into the [`read_slices`](Self::read_slices).
    pub(crate) fn tail(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let DecoderState::Chunk { transfer, left } = self.state else { return None };
        match self.transfers.get_mut(&transfer)? {
            Transfer::Receiving(Receiving { memory, at, tail: Some(tail) })
                if *at == memory.len() =>
            {
                let len = left.min(tail.left());
                Some((tail.bytes_mut(), len))
            }
            Transfer::Receiving(_) | Transfer::Discarding { .. } => None,
        }
    }

    /// Records that `len` bytes were appended to the [`tail`](Self::tail).
    pub(crate) fn filled_tail(&mut self, len: usize) {
        if let DecoderState::Chunk { left, .. } = &mut self.state {
            *left -= len;
            self.acks.add(len);
        }
    }

    /// Returns the slices to read into, in order: the final memory of the current chunk, if any,
    /// and the buffer.
    pub(crate) fn read_slices(&mut self) -> [&mut [u8]; 2] {
        let (direct, len_max): (&mut [u8], usize) = match self.state {
            DecoderState::Header if self.transfers.is_empty() => (&mut [], BUFFER_LEN),
            // The next record is most likely another chunk. Only its header tells.
            DecoderState::Header if self.buffer.len() < RECORD_HEADER_LEN => (&mut [], AHEAD_LEN),
            // Of a frame that is announced beside others, no more than what announces it.
            DecoderState::Header => {
                let announced_len = self.announced_len().unwrap_or(usize::MAX);
                (&mut [], announced_len.saturating_sub(self.buffer.len()).max(AHEAD_LEN))
            }
            DecoderState::Chunk { transfer, left } => match self.transfers.get_mut(&transfer) {
                Some(Transfer::Receiving(Receiving { memory, at, .. })) if *at < memory.len() => {
                    let end = (*at + left).min(memory.len());
                    (&mut memory[*at..end], AHEAD_LEN)
                }
                _ => (&mut [], BUFFER_LEN),
            },
            DecoderState::Admission { .. } => (&mut [], BUFFER_LEN),
        };
        [direct, self.buffer.spare_capacity(len_max)]
    }

    /// Records that `len` bytes were read into the slices.
    pub(crate) fn filled(&mut self, mut len: usize) {
        if let DecoderState::Chunk { transfer, left } = &mut self.state
            && let Some(Transfer::Receiving(receiving)) = self.transfers.get_mut(transfer)
        {
            // A read fills the slices in order, so the first bytes belong to the chunk.
            let Receiving { memory, at, .. } = receiving;
            let direct = len.min(*left).min(memory.len() - *at);
            *at += direct;
            *left -= direct;
            self.acks.add(direct);
            len -= direct;
        }
        self.buffer.filled(len);
    }

    /// Releases the buffer if it is empty, so that an idle connection holds no memory.
    pub(crate) fn release_if_empty(&mut self) {
        self.buffer.release_if_empty();
    }

    /// Returns true if the stream may end here.
    pub(crate) fn is_between_frames(&self) -> bool {
        matches!(self.state, DecoderState::Header)
            && self.buffer.is_empty()
            && self.transfers.is_empty()
    }

    /// Returns true if large frames are incomplete.
    pub(crate) fn has_transfers(&self) -> bool {
        !self.transfers.is_empty()
    }

    /// Returns the number of bytes copied since the last call.
    pub(crate) fn take_copied_bytes(&mut self) -> u64 {
        self.buffer.take_copied_bytes()
    }

    /// Returns the next event; `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// Returns an error if the peer violates the record format.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<DecoderEvent>, ProtocolError> {
        loop {
            match self.state {
                DecoderState::Admission { .. } => return Ok(None),
                DecoderState::Chunk { transfer, left } => {
                    let left = left - self.copy_chunk(transfer, left);
                    self.state = DecoderState::Chunk { transfer, left };
                    if left > 0 {
                        return Ok(None);
                    }
                    self.state = DecoderState::Header;
                    if let Some(event) = self.finish(transfer) {
                        return Ok(Some(event));
                    }
                }
                DecoderState::Header => {
                    let Some(header) = self.peek::<RECORD_HEADER_LEN>(0) else { return Ok(None) };
                    let header = RecordHeader::parse(&header)?;
                    let event = match header.kind {
                        RecordKind::Single => self.single(header),
                        RecordKind::Ack => self.ack(),
                        RecordKind::First => self.first(header)?,
                        RecordKind::Next => {
                            self.next_chunk(header)?;
                            continue;
                        }
                    };
                    return Ok(event);
                }
            }
        }
    }

    /// Accepts or refuses the frame that was announced last.
    pub(crate) fn admit(&mut self, admission: Admission) {
        let DecoderState::Admission { transfer, chunk_len, len } = self.state else { return };
        // An accepted length is within the limits, so it always fits `usize`.
        let entry = match (admission, usize::try_from(len)) {
            (Admission::Accept { detacher, .. }, Ok(len)) => {
                let buffered = self.buffer.bytes();
                let first = &buffered[..buffered.len().min(chunk_len)];
                Transfer::Receiving(Receiving::new(&self.pool, len, first, detacher))
            }
            _ => Transfer::Discarding { left: len },
        };
        self.transfers.insert(transfer, entry);
        self.state = DecoderState::Chunk { transfer, left: chunk_len };
    }

    #[inline(always)]
    fn single(&mut self, header: RecordHeader) -> Option<DecoderEvent> {
        let frame = self.buffer.take(RECORD_HEADER_LEN, header.len)?;
        Some(DecoderEvent::Frame { frame, delivery: Delivery::Whole })
    }

    fn ack(&mut self) -> Option<DecoderEvent> {
        let read = self.peek::<ACK_LEN>(RECORD_HEADER_LEN)?;
        self.buffer.skip(RECORD_HEADER_LEN + ACK_LEN);
        Some(DecoderEvent::Ack { read: u64::from_le_bytes(read) })
    }

    fn first(&mut self, header: RecordHeader) -> Result<Option<DecoderEvent>, ProtocolError> {
        let Some(len) = self.peek::<FRAME_LEN_LEN>(RECORD_HEADER_LEN) else { return Ok(None) };
        let Some(prefix) = self.peek::<HEADER_LEN>(RECORD_HEADER_LEN + FRAME_LEN_LEN) else {
            return Ok(None);
        };
        let len = u64::from_le_bytes(len);
        let chunk_len = header.len - FRAME_LEN_LEN;
        // Consumes nothing until these bytes are there, so that the next call starts over.
        if self.announced_len().is_none_or(|len| self.buffer.bytes().len() < len) {
            return Ok(None);
        }
        check_chunk(len, chunk_len)?;
        // A reused number would mix the bytes of two frames, and an unbounded count would let a
        // peer fill the map with frames that never end.
        if self.transfers.contains_key(&header.transfer) || self.transfers.len() >= TRANSFERS_MAX {
            let value = header.transfer.into();
            return Err(ProtocolError::Invalid { what: "transfer of a first chunk", value });
        }
        self.buffer.skip(RECORD_HEADER_LEN + FRAME_LEN_LEN);
        self.begin_chunk(&header, chunk_len);
        self.state = DecoderState::Admission { transfer: header.transfer, chunk_len, len };
        Ok(Some(DecoderEvent::Announced { prefix, len }))
    }

    fn next_chunk(&mut self, header: RecordHeader) -> Result<(), ProtocolError> {
        let left = match self.transfers.get(&header.transfer) {
            Some(Transfer::Receiving(receiving)) => receiving.left() as u64,
            Some(Transfer::Discarding { left }) => *left,
            None => {
                let value = header.transfer.into();
                return Err(ProtocolError::Invalid { what: "transfer of a next chunk", value });
            }
        };
        check_chunk(left, header.len)?;
        self.buffer.skip(RECORD_HEADER_LEN);
        self.begin_chunk(&header, header.len);
        self.state = DecoderState::Chunk { transfer: header.transfer, left: header.len };
        Ok(())
    }

    fn begin_chunk(&mut self, header: &RecordHeader, len: usize) {
        if header.wants_ack {
            self.acks.want(len);
        }
    }

    /// Moves buffered bytes of a chunk to its frame. Returns their number.
    fn copy_chunk(&mut self, transfer: u32, left: usize) -> usize {
        let len = left.min(self.buffer.bytes().len());
        match self.transfers.get_mut(&transfer) {
            Some(Transfer::Receiving(receiving)) => receiving.copy_from(&mut self.buffer, len),
            Some(Transfer::Discarding { left }) => {
                *left -= len as u64;
                self.buffer.skip(len);
            }
            None => {}
        }
        // Discarded bytes count, too. Otherwise the peer's window would never open again.
        self.acks.add(len);
        len
    }

    /// Ends a transfer whose last chunk has arrived.
    fn finish(&mut self, transfer: u32) -> Option<DecoderEvent> {
        let is_whole = match self.transfers.get(&transfer)? {
            Transfer::Receiving(receiving) => receiving.left() == 0,
            Transfer::Discarding { left } => *left == 0,
        };
        if !is_whole {
            return None;
        }
        match self.transfers.remove(&transfer)? {
            Transfer::Receiving(receiving) => Some(receiving.into_frame()),
            Transfer::Discarding { .. } => None,
        }
    }

    /// Returns the length of what announces the large frame whose first chunk is next in the
    /// buffer. It is more once the frame's header is there, which says how long its metadata is.
    fn announced_len(&self) -> Option<usize> {
        let header = RecordHeader::parse(&self.peek(0)?).ok()?;
        if header.kind != RecordKind::First {
            return None;
        }
        let frame_at = RECORD_HEADER_LEN + FRAME_LEN_LEN;
        let prefix = self.peek::<HEADER_LEN>(frame_at);
        let prefix = prefix.and_then(|prefix| FrameHeader::parse(&prefix).ok());
        let metadata_len = prefix.map_or(0, |prefix| prefix.metadata_len as usize);
        let seen_len = HEADER_LEN + metadata_len.min(METADATA_SEEN_MAX) + MESSAGE_SEEN_LEN;
        Some(frame_at + seen_len.min(header.len - FRAME_LEN_LEN))
    }

    fn peek<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.buffer.bytes().get(at..at + N)?.first_chunk().copied()
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl Decoder {
    /// Takes up to `max` bytes off the front of `from`, as a connection reads them from a socket.
    pub(crate) fn read(&mut self, from: &mut &[u8], max: usize) {
        if let Some((tail, len)) = self.tail() {
            let len = len.min(max).min(from.len());
            tail.extend_from_slice(&from[..len]);
            *from = &from[len..];
            self.filled_tail(len);
            return;
        }
        let mut len = 0;
        for slice in self.read_slices() {
            let (part, rest) = from.split_at(slice.len().min(max - len).min(from.len()));
            slice[..part.len()].copy_from_slice(part);
            *from = rest;
            len += part.len();
        }
        self.filled(len);
    }
}

/// Accessors of a message whose first field is a vector.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) const VECTOR: Detacher = Detacher::new(|message, visit| {
    rpc_core::codegen::with_fields::<Vec<u8>>(message, |field| visit(&mut [(1, field)]));
});

/// The whole frame.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn joined(frame: Bytes, delivery: Delivery) -> Bytes {
    match delivery {
        Delivery::Whole | Delivery::Announced => frame,
        Delivery::Split(mut tail) => {
            assert_eq!(tail.left(), 0, "a tail that is not complete");
            [&frame[..], tail.bytes_mut()].concat().into()
        }
    }
}

fn check_chunk(left: u64, chunk_len: usize) -> Result<(), ProtocolError> {
    let len = chunk_len as u64;
    if len > left {
        return Err(ProtocolError::TooLong { what: "chunk of a frame", len, max: left });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
