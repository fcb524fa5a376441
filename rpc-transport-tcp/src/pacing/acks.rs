//! When the peer gets an acknowledgement (ack) of the chunks that were read.
//!
//! Chunks ask for acks while the peer paces its writing (`window`). An ack is a cumulative count,
//! so that one acknowledges all that was read since the last, and a late one makes up for it.

/// Bytes of chunks, counted from the connection's start.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    read: u64,
    /// Where the last chunk ends that asked for an ack.
    wanted: u64,
    /// What the last ack said.
    acked: u64,
}

impl Acks {
    /// Records a chunk that asks for an ack, of which `len` bytes are to come.
    pub(crate) fn want(&mut self, len: usize) {
        self.wanted = self.read + len as u64;
    }

    /// Records bytes that have been read.
    pub(crate) fn add(&mut self, len: usize) {
        self.read += len as u64;
    }

    /// The bytes of chunks that have been read.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read
    }

    /// Whether the peer wants an ack, which would say something new.
    pub(crate) fn is_due(&self) -> bool {
        self.acked < self.wanted.min(self.read)
    }

    /// The count of the next ack, if it is due.
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
    fn only_news_that_the_peer_wants_is_acknowledged() {
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
