//! Acknowledgements (acks) of the chunks that this side has read.
//!
//! Chunks ask for acks while the peer paces its writes (`window`). An ack is a cumulative count: it
//! acknowledges everything read so far, and a late ack replaces those that it delayed.

/// Counters of chunk bytes since the start of the connection.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    read: u64,
    /// End of the last chunk that asked for an ack.
    wanted: u64,
    /// The count in the last ack.
    acked: u64,
}

impl Acks {
    /// Records a chunk that asks for an ack and has `len` bytes to come.
    pub(crate) fn want(&mut self, len: usize) {
        self.wanted = self.read + len as u64;
    }

    /// Records bytes that were read.
    pub(crate) fn add(&mut self, len: usize) {
        self.read += len as u64;
    }

    /// Returns the number of chunk bytes read so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read
    }

    /// Returns true if the peer wants an ack and there is news for it.
    pub(crate) fn is_due(&self) -> bool {
        self.acked < self.wanted.min(self.read)
    }

    /// Returns the count for the next ack, if one is due.
    pub(crate) fn take(&mut self) -> Option<u64> {
        if !self.is_due() {
            return None;
        }
        self.acked = self.read;
        Some(self.read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requested_news_is_acknowledged() {
        let mut acks = Acks::default();
        acks.add(100);
        assert_eq!(acks.take(), None, "no chunk wants one");
        acks.want(50);
        acks.add(20);
        assert_eq!(acks.take(), Some(120));
        assert_eq!(acks.take(), None);
        acks.add(30);
        acks.add(40);
        assert_eq!(acks.take(), Some(190), "what followed is read, too");
        acks.add(40);
        assert_eq!(acks.take(), None, "all that was wanted is acknowledged");
        assert_eq!(acks.read_bytes(), 230, "all that was read is counted");
    }
}
