//! What the peer is told of how much of its large frames has been read.
//!
//! Pieces ask for receipts while the peer paces its writing (`unread`). A receipt is a cumulative
//! count, so that one does for all that was read since the last, and a later one makes up for it.

/// Bytes of pieces, counted from the connection's start.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    read: u64,
    /// Where the last piece ends that asked for a receipt.
    asked: u64,
    told: u64,
}

impl Receipts {
    /// Records a piece that asks, of which `len` bytes are to come.
    pub(crate) fn ask(&mut self, len: usize) {
        self.asked = self.read + len as u64;
    }

    /// Records bytes that have been read.
    pub(crate) fn add(&mut self, len: usize) {
        self.read += len as u64;
    }

    /// The bytes of pieces that have been read.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read
    }

    /// What the peer is to be told, if it has asked and does not know.
    pub(crate) fn take(&mut self) -> Option<u64> {
        if self.told >= self.asked.min(self.read) {
            return None;
        }
        self.told = self.read;
        Some(self.read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_news_that_was_asked_for_is_told() {
        let mut receipts = Receipts::default();
        receipts.add(100);
        assert_eq!(receipts.take(), None, "no piece asked");
        receipts.ask(50);
        receipts.add(20);
        assert_eq!(receipts.take(), Some(120));
        assert_eq!(receipts.take(), None);
        receipts.add(30);
        receipts.add(40);
        assert_eq!(receipts.take(), Some(190), "what followed is read, too");
        receipts.add(40);
        assert_eq!(receipts.take(), None, "all that asked is known");
    }
}
