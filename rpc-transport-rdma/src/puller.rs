//! Which READ to post next: the transfers under way, chunk by chunk, each in its turn.
//!
//! ```text
//!   admitted ──begin──> pulling ──last READ completed──> done
//!       └── deadline passed before the first READ ──> expired
//! ```
//! Transfers take turns so that a long one does not hold up a short one, and at most as many READs
//! are outstanding as both devices agreed on. Pure: what is read into is an opaque value that
//! comes back when the last READ has completed.

use std::collections::{HashMap, VecDeque};

use rpc_core::wire::ProtocolError;

use crate::message::OfferedSegment;
use crate::verbs::RemoteMemory;

/// A READ that should be posted now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk<S> {
    /// What to read into.
    pub(crate) sink: S,
    /// Where in it.
    pub(crate) offset: usize,
    /// How much.
    pub(crate) len: u32,
    /// From where.
    pub(crate) remote: RemoteMemory,
}

/// The transfers that are being pulled; `S` is a handle to what they are read into.
#[derive(Debug)]
pub(crate) struct Puller<S> {
    transfers: HashMap<u32, Transfer<S>>,
    /// Transfers that have READs left to post, in the order of their turns.
    turns: VecDeque<u32>,
    /// The transfer of every READ that is posted, in the order of posting.
    posted: VecDeque<(u32, u32)>,
    reads_max: usize,
    chunk_len: u32,
}

#[derive(Debug)]
struct Transfer<S> {
    sink: S,
    segments: VecDeque<OfferedSegment>,
    /// Where the next READ goes.
    offset: usize,
    /// Bytes that have not arrived.
    missing: u64,
}

impl<S: Clone> Puller<S> {
    /// Pulls with at most `reads_max` READs of at most `chunk_len` bytes outstanding.
    pub(crate) fn new(reads_max: u8, chunk_len: u32) -> Self {
        Self {
            transfers: HashMap::new(),
            turns: VecDeque::new(),
            posted: VecDeque::new(),
            reads_max: reads_max.into(),
            chunk_len,
        }
    }

    /// Begins to pull an offered frame of `frame_len` bytes into `sink`.
    ///
    /// # Errors
    ///
    /// When the transfer is being pulled already.
    pub(crate) fn begin(
        &mut self,
        transfer: u32,
        segments: Vec<OfferedSegment>,
        sink: S,
    ) -> Result<(), ProtocolError> {
        if self.transfers.contains_key(&transfer) {
            let value = transfer.into();
            return Err(ProtocolError::Invalid { what: "transfer of an offer", value });
        }
        let missing = segments.iter().map(|segment| segment.len).sum();
        let entry = Transfer { sink, segments: segments.into(), offset: 0, missing };
        self.transfers.insert(transfer, entry);
        self.turns.push_back(transfer);
        Ok(())
    }

    /// The next READ to post; `None` when there is none, or enough are outstanding.
    pub(crate) fn next_chunk(&mut self) -> Option<Chunk<S>> {
        if self.posted.len() >= self.reads_max {
            return None;
        }
        let number = self.turns.pop_front()?;
        let transfer = self.transfers.get_mut(&number)?;
        let chunk = transfer.next_chunk(self.chunk_len)?;
        if !transfer.segments.is_empty() {
            self.turns.push_back(number);
        }
        self.posted.push_back((number, chunk.len));
        Some(chunk)
    }

    /// Takes note that the oldest posted READ has completed. Gives the transfer's number when it
    /// was the last one: everything is there.
    pub(crate) fn handle_read(&mut self) -> Option<u32> {
        let (number, len) = self.posted.pop_front()?;
        let transfer = self.transfers.get_mut(&number)?;
        transfer.missing -= u64::from(len);
        if transfer.missing > 0 {
            return None;
        }
        self.transfers.remove(&number);
        Some(number)
    }

    /// How many transfers are being pulled.
    pub(crate) fn transfer_count(&self) -> usize {
        self.transfers.len()
    }

    /// Forgets every transfer; READs that are posted own their sinks themselves.
    pub(crate) fn clear(&mut self) {
        self.transfers.clear();
        self.turns.clear();
    }
}

impl<S: Clone> Transfer<S> {
    fn next_chunk(&mut self, chunk_len: u32) -> Option<Chunk<S>> {
        let segment = self.segments.front_mut()?;
        let len = u32::try_from(segment.len).unwrap_or(u32::MAX).min(chunk_len);
        let (sink, offset, remote) = (self.sink.clone(), self.offset, segment.memory);
        self.offset += len as usize;
        segment.len -= u64::from(len);
        // An address that would wrap cannot be read anyway: the device refuses the READ.
        segment.memory.address = segment.memory.address.wrapping_add(len.into());
        if segment.len == 0 {
            self.segments.pop_front();
        }
        Some(Chunk { sink, offset, len, remote })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::verbs::RemoteKey;

    fn segment(address: u64, len: u64) -> OfferedSegment {
        OfferedSegment { memory: RemoteMemory { address, key: RemoteKey(1) }, len }
    }

    #[test]
    fn transfers_take_turns_and_the_depth_is_kept() {
        let mut puller = Puller::new(3, 10);
        puller.begin(1, vec![segment(100, 25)], 'a').unwrap();
        puller.begin(2, vec![segment(500, 25)], 'b').unwrap();
        let chunks: Vec<_> = std::iter::from_fn(|| puller.next_chunk()).collect();
        let order: Vec<_> = chunks.iter().map(|chunk| (chunk.sink, chunk.offset)).collect();
        assert_eq!(order, [('a', 0), ('b', 0), ('a', 10)]);
        assert_eq!(chunks[2].remote.address, 110);
        assert_eq!(puller.handle_read(), None);
        assert_eq!(puller.next_chunk().map(|chunk| chunk.sink), Some('b'));
    }

    #[test]
    fn a_transfer_that_is_offered_twice_is_a_violation() {
        let mut puller = Puller::new(1, 10);
        puller.begin(1, vec![segment(0, 5)], ()).unwrap();
        assert!(puller.begin(1, vec![segment(0, 5)], ()).is_err());
    }

    proptest! {
        #[test]
        fn every_byte_is_read_once_and_every_transfer_ends(
            lens in prop::collection::vec(prop::collection::vec(1u64..50, 1..4), 1..6),
            reads_max in 1u8..5,
            chunk_len in 1u32..20,
        ) {
            let mut puller = Puller::new(reads_max, chunk_len);
            for (number, segments) in (0u32..).zip(&lens) {
                let segments = segments.iter().map(|len| segment(0, *len)).collect();
                puller.begin(number, segments, number as usize).unwrap();
            }
            let mut next = vec![0; lens.len()];
            let mut ended = 0;
            let mut outstanding = 0;
            loop {
                while let Some(chunk) = puller.next_chunk() {
                    prop_assert_eq!(chunk.offset, next[chunk.sink]);
                    next[chunk.sink] += chunk.len as usize;
                    outstanding += 1;
                    prop_assert!(outstanding <= reads_max);
                }
                if outstanding == 0 { break; }
                outstanding -= 1;
                ended += usize::from(puller.handle_read().is_some());
            }
            prop_assert_eq!(ended, lens.len());
            for (read, segments) in next.iter().zip(&lens) {
                prop_assert_eq!(*read as u64, segments.iter().sum::<u64>());
            }
            prop_assert_eq!(puller.transfer_count(), 0);
        }
    }
}
