//! Memory in which small frames are made, kept for the next ones.
//!
//! A small frame's memory is free again as soon as the frame is sent, since what waits to be
//! written is gathered elsewhere: without this, every frame would allocate and free. What is kept
//! belongs to one connection, so that nobody else is locked out, and is small enough not to count
//! among the memory of an idle one. Received frames have memory of their own length instead, since
//! nobody knows for how long they are held.

use rpc_core::pool::{Pool, PoolBuffer};

/// The longest frame whose memory is kept. Copying as much costs less than a slice of its own
/// costs the kernel.
pub(crate) const LEN: usize = 2 << 10;

/// The most that is kept: enough for two threads that make frames at the same moment.
const COUNT_MAX: usize = 2;

/// Memory that is kept.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    buffers: Vec<PoolBuffer>,
}

impl Spare {
    /// Memory of `len` bytes that was kept.
    pub(crate) fn take(&mut self, len: usize) -> Option<PoolBuffer> {
        if len > LEN {
            return None;
        }
        self.buffers.pop()?.resized(len)
    }

    /// New memory of `len` bytes, which can be kept later if it is short.
    pub(crate) fn allocate(pool: &Pool, len: usize) -> PoolBuffer {
        let memory = pool.take(len.max(LEN));
        // It is at least that long.
        memory.resized(len).unwrap_or_else(|| pool.take(len))
    }

    /// Keeps memory, if it is short and there is not enough yet.
    pub(crate) fn keep(&mut self, memory: PoolBuffer) {
        if self.buffers.len() < COUNT_MAX && memory.len() <= LEN {
            self.buffers.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_memory_serves_again_and_long_memory_does_not() {
        let pool = Pool::new(0);
        let mut spare = Spare::default();
        let memory = Spare::allocate(&pool, 40);
        let address = memory.as_ptr();
        spare.keep(memory);
        spare.keep(Spare::allocate(&pool, LEN + 1));
        let again = spare.take(LEN).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (address, LEN));
        assert!(spare.take(40).is_none());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let pool = Pool::new(0);
        let mut spare = Spare::default();
        (0..2 * COUNT_MAX).for_each(|_| spare.keep(Spare::allocate(&pool, 1)));
        assert_eq!(spare.buffers.len(), COUNT_MAX);
    }
}
