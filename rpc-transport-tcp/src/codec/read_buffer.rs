//! A buffer for bytes that were read from a socket and not yet decoded.
//!
//! A short frame is copied out, so that a handler that keeps it holds no more memory than it needs.
//! The bytes behind a very short one are copied with it, as far as they fit into the same block of
//! memory: the very short frames among them are parts of the copy then. A long frame aliases the
//! memory that it was read into. The buffer then leaves this memory to its frames and takes other
//! memory for the next read. Only unread bytes are copied there.

use std::cell::Cell;
use std::ops::Range;

use bytes::{Buf as _, Bytes};
use rpc_core::pool::{Pool, PoolBuffer, SHORT_LEN_MAX, copy_with_next};

/// Minimum length of a frame that aliases the read memory, in bytes. The memory of a buffer is 64
/// KiB and a header, so a handler that keeps one frame holds at most about four times its length.
const ALIASED_LEN_MIN: usize = 16 << 10;

thread_local! {
    /// Memory that a buffer has released on this thread, for the next read of any connection. One
    /// call at a time takes and releases it for each read, and the pool has a lock. It is at most
    /// 128 KiB for each thread that reads, beside the bound of the pool.
    static KEPT: Cell<Option<PoolBuffer>> = const { Cell::new(None) };
}

/// The memory of a buffer.
#[derive(Debug)]
enum Memory {
    /// No frame aliases it, so it is writable.
    Exclusive(PoolBuffer),
    /// Frames alias it, so it is read-only.
    Shared(Bytes),
}

/// A buffer between a socket and frames. It holds memory only while it holds bytes.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    pool: Pool,
    capacity: usize,
    memory: Option<Memory>,
    /// The range of `memory` with bytes that are not yet taken.
    unread: Range<usize>,
    /// A copy of the first unread bytes.
    ahead: Bytes,
    copied_bytes: u64,
}

impl ReadBuffer {
    /// Creates a buffer of at most `capacity` bytes.
    pub(crate) fn new(pool: Pool, capacity: usize) -> Self {
        Self { pool, capacity, memory: None, unread: 0..0, ahead: Bytes::new(), copied_bytes: 0 }
    }

    /// Returns the unread bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.memory {
            Some(Memory::Exclusive(buffer)) => &buffer[self.unread.clone()],
            Some(Memory::Shared(bytes)) => &bytes[self.unread.clone()],
            None => &[],
        }
    }

    /// Returns the number of unread bytes.
    pub(crate) fn len(&self) -> usize {
        self.unread.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unread.is_empty()
    }

    /// Returns the memory to read into: at most `len_max` bytes, after the unread ones.
    pub(crate) fn spare_capacity(&mut self, len_max: usize) -> &mut [u8] {
        // It ends with a part of a frame at most.
        self.ahead = Bytes::new();
        let len = self.unread.len();
        match &mut self.memory {
            Some(Memory::Exclusive(buffer)) if self.unread.start > 0 => {
                // Moves the unread bytes to the front. A record that starts late in the buffer
                // would not fit.
                buffer.copy_within(self.unread.clone(), 0);
            }
            Some(Memory::Exclusive(_)) => {}
            memory => {
                let kept = KEPT.try_with(Cell::take).ok().flatten();
                let kept = kept.filter(|kept| kept.len() == self.capacity);
                let mut buffer = kept.unwrap_or_else(|| self.pool.take(self.capacity));
                if let Some(Memory::Shared(bytes)) = memory {
                    buffer[..len].copy_from_slice(&bytes[self.unread.clone()]);
                    self.copied_bytes += len as u64;
                }
                *memory = Some(Memory::Exclusive(buffer));
            }
        }
        self.unread = 0..len;
        let end = self.capacity.min(len.saturating_add(len_max));
        match &mut self.memory {
            Some(Memory::Exclusive(buffer)) => &mut buffer[len..end],
            _ => &mut [],
        }
    }

    /// Records that `len` bytes were read into the spare capacity.
    pub(crate) fn filled(&mut self, len: usize) {
        self.unread.end += len;
    }

    /// Drops the first `len` unread bytes.
    #[inline(always)]
    pub(crate) fn skip(&mut self, len: usize) {
        self.unread.start += len;
        match len < self.ahead.len() {
            true => self.ahead.advance(len),
            false => self.ahead = Bytes::new(),
        }
    }

    /// Takes `len` bytes behind the first `before` unread ones, which are dropped, as a frame.
    /// `None` if they are not all there.
    #[inline(always)]
    pub(crate) fn take(&mut self, before: usize, len: usize) -> Option<Bytes> {
        if self.unread.len() < before + len {
            return None;
        }
        self.skip(before);
        // A longer one never lies in a block, of which it would keep more than its receiver counts.
        if len <= SHORT_LEN_MAX {
            if self.ahead.len() < len {
                self.ahead = copy_with_next(self.bytes(), len);
            }
            self.copied_bytes += len as u64;
            self.unread.start += len;
            return Some(self.ahead.split_to(len));
        }
        let frame = if len < ALIASED_LEN_MIN {
            let frame = self.pool.copy(&self.bytes()[..len]);
            self.copied_bytes += len as u64;
            frame
        } else {
            // Freezing makes the memory read-only. The next read then takes other memory.
            let bytes = match self.memory.take() {
                Some(Memory::Exclusive(buffer)) => buffer.freeze(),
                Some(Memory::Shared(bytes)) => bytes,
                None => Bytes::new(),
            };
            let start = self.unread.start;
            let frame = bytes.slice(start..start + len);
            self.memory = Some(Memory::Shared(bytes));
            frame
        };
        self.skip(len);
        Some(frame)
    }

    /// Copies as many unread bytes to `to` as fit. Returns their number.
    pub(crate) fn copy_to(&mut self, to: &mut [u8]) -> usize {
        let len = to.len().min(self.unread.len());
        to[..len].copy_from_slice(&self.bytes()[..len]);
        self.copied_bytes += len as u64;
        self.skip(len);
        len
    }

    /// Appends up to `len` unread bytes to `to`.
    pub(crate) fn append_to(&mut self, to: &mut Vec<u8>, len: usize) {
        let len = len.min(self.unread.len());
        to.extend_from_slice(&self.bytes()[..len]);
        self.copied_bytes += len as u64;
        self.skip(len);
    }

    /// Releases the memory if it holds no bytes, so that an idle connection holds none. The thread
    /// keeps the memory of one buffer.
    pub(crate) fn release_if_empty(&mut self) {
        if self.is_empty() {
            if let Some(Memory::Exclusive(buffer)) = self.memory.take()
                && self.pool.keeps(buffer.len())
            {
                // Fails on a thread that is ending.
                let _ = KEPT.try_with(|kept| kept.set(Some(buffer)));
            }
            self.unread = 0..0;
        }
    }

    /// Returns the number of bytes copied since the last call, out of the buffer or to other
    /// memory.
    pub(crate) fn take_copied_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.copied_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 64 << 10;

    fn filled_buffer(bytes: &[u8]) -> ReadBuffer {
        let mut buffer = ReadBuffer::new(Pool::new(1 << 20), CAPACITY);
        read(&mut buffer, bytes);
        buffer
    }

    fn read(buffer: &mut ReadBuffer, bytes: &[u8]) {
        buffer.spare_capacity(bytes.len()).copy_from_slice(bytes);
        buffer.filled(bytes.len());
    }

    /// Returns bytes whose pairs are all different within 64 KiB.
    fn numbered(len: usize) -> Vec<u8> {
        (0..u16::MAX).flat_map(u16::to_le_bytes).take(len).collect()
    }

    #[test]
    fn long_frames_alias_the_read_memory() {
        let read_first = numbered(60_000);
        let mut buffer = filled_buffer(&read_first);
        let address = buffer.bytes().as_ptr();
        let frames = [20_000, 100, 30_000].map(|len| buffer.take(0, len).unwrap());
        assert_eq!(frames[0].as_ptr(), address);
        assert_eq!(frames[2].as_ptr(), address.wrapping_add(20_100));
        assert_eq!(buffer.take_copied_bytes(), 100);
        read(&mut buffer, &[9; 10]);
        assert_eq!(buffer.take_copied_bytes(), 9_900);
        assert_eq!(*buffer.bytes(), [&read_first[50_100..], &[9; 10]].concat());
        // Later reads do not touch the frames.
        assert_eq!(frames.concat(), read_first[..50_100]);
    }

    #[test]
    fn short_frames_are_copied_out_of_the_buffer() {
        let mut buffer = filled_buffer(&numbered(20_000));
        let address = buffer.bytes().as_ptr();
        let frame = buffer.take(0, ALIASED_LEN_MIN - 1).unwrap();
        assert_ne!(frame.as_ptr(), address);
        assert_eq!(frame, numbered(ALIASED_LEN_MIN - 1));
        read(&mut buffer, &[1]);
        assert_eq!(buffer.bytes().as_ptr(), address);
        assert_eq!(buffer.bytes().len(), 20_000 - ALIASED_LEN_MIN + 2);
    }

    #[test]
    fn frames_behind_a_very_short_one_are_parts_of_its_copy() {
        let bytes = numbered(20_000);
        let mut buffer = filled_buffer(&bytes);
        // One that a block has no room for, one that is longer than its rest, and others.
        let lens = [10, 1, 256, 700, 90, 257, 20, 2_000, 30, 400, 1_100, 256];
        let mut at = 0;
        let mut frames = Vec::new();
        for (before, len) in (0..).zip(lens) {
            at += before;
            let frame = buffer.take(before, len).unwrap();
            assert_eq!(frame, bytes[at..at + len]);
            at += len;
            assert_eq!(frame.is_unique(), len > SHORT_LEN_MAX, "{len}: in memory of its own");
            frames.push(frame);
        }
        assert_eq!(buffer.bytes(), &bytes[at..]);
        let address = frames[0].as_ptr();
        assert_eq!(frames[1].as_ptr(), address.wrapping_add(11));
        assert_eq!(frames[2].as_ptr(), address.wrapping_add(14));
        assert_eq!(buffer.take_copied_bytes(), lens.iter().sum::<usize>() as u64);
        // What comes later is not a part of it.
        assert_eq!(buffer.take(0, 10).unwrap(), bytes[at..at + 10]);
        read(&mut buffer, &[7; 30]);
        buffer.skip(buffer.bytes().len() - 30);
        assert_eq!(buffer.take(10, 20).unwrap(), [7; 20][..]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_thread_keeps_the_memory_of_one_buffer_for_the_next_read() {
        let pool = Pool::new(1 << 20);
        let [mut first, mut second, mut third] =
            [CAPACITY, CAPACITY, CAPACITY / 2].map(|len| ReadBuffer::new(pool.clone(), len));
        read(&mut first, &[1]);
        let address = first.bytes().as_ptr();
        assert_eq!(first.take(0, 1).unwrap()[..], [1]);
        first.release_if_empty();
        assert_eq!(first.bytes(), []);
        read(&mut second, &[2]);
        assert_eq!(second.bytes().as_ptr(), address);
        assert_eq!(second.take(0, 1).unwrap()[..], [2]);
        second.release_if_empty();
        // It is of another length, and goes back to its pool.
        read(&mut third, &[3]);
        assert_ne!(third.bytes().as_ptr(), address);
        let again = [pool.take(CAPACITY), pool.take(CAPACITY)];
        assert!(again.iter().any(|buffer| buffer.as_ptr() == address));
    }

    #[test]
    fn memory_is_released_with_the_last_frame() {
        let pool = Pool::new(1 << 20);
        let mut buffer = ReadBuffer::new(pool.clone(), CAPACITY);
        read(&mut buffer, &numbered(20_000));
        let address = buffer.bytes().as_ptr();
        let frame = buffer.take(0, 20_000).unwrap();
        buffer.release_if_empty();
        assert_ne!(pool.take(CAPACITY).as_ptr(), address);
        drop(frame);
        let again = [pool.take(CAPACITY), pool.take(CAPACITY)];
        assert!(again.iter().any(|buffer| buffer.as_ptr() == address));
    }

    #[test]
    fn spare_capacity_is_bounded_by_the_capacity() {
        let mut buffer = filled_buffer(&numbered(CAPACITY - 5));
        assert_eq!(buffer.spare_capacity(usize::MAX).len(), 5);
        assert_eq!(buffer.spare_capacity(3).len(), 3);
        drop(buffer.take(0, 20_000).unwrap());
        assert_eq!(buffer.spare_capacity(usize::MAX).len(), 20_005);
        buffer.skip(CAPACITY - 20_005);
        assert_eq!(buffer.spare_capacity(usize::MAX).len(), CAPACITY);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_frame_is_taken_when_it_is_whole() {
        let mut buffer = filled_buffer(&numbered(20_100));
        assert_eq!(buffer.take(100, 20_001), None);
        assert_eq!(buffer.bytes().len(), 20_100, "nothing is dropped");
        assert_eq!(buffer.take(100, 20_000).unwrap(), numbered(20_100)[100..]);
        read(&mut buffer, &numbered(8));
        assert_eq!((buffer.take(3, 6), buffer.take(3, 4).unwrap()[..].len()), (None, 4));
        assert_eq!(buffer.bytes(), &numbered(8)[7..]);
    }

    #[test]
    fn copied_bytes_are_counted() {
        let mut buffer = filled_buffer(&numbered(100));
        let mut memory = [0; 60];
        assert_eq!(buffer.copy_to(&mut memory), 60);
        assert_eq!(memory[..], numbered(60));
        assert_eq!(buffer.copy_to(&mut memory), 40, "no more is there");
        assert_eq!(memory[..40], numbered(100)[60..]);
        assert_eq!((buffer.take_copied_bytes(), buffer.take_copied_bytes()), (100, 0));
    }
}
