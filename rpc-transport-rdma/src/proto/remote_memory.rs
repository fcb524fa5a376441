//! Memory of the other side: an address, and the key that opens it.

use std::fmt;

/// The rkey of a memory region: lets the peer's READs use it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteKey(pub u32);

impl RemoteKey {
    /// The key that a window has when it is bound next: only the low byte is free to choose.
    pub(crate) fn next(self) -> Self {
        Self((self.0 & !0xff) | (self.0.wrapping_add(1) & 0xff))
    }
}

impl fmt::Debug for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A key is a capability, so it is kept out of logs.
        f.write_str("RemoteKey(..)")
    }
}

/// Memory in the peer (or, seen from there, here): where it begins and the key that opens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Virtual address in the process that registered the memory.
    pub address: u64,
    /// Key of the region.
    pub key: RemoteKey,
}

impl RemoteMemory {
    /// The same memory from `by` bytes on, or `None` when the address would overflow.
    #[must_use]
    pub fn offset(self, by: u64) -> Option<Self> {
        let address = self.address.checked_add(by)?;
        Some(Self { address, ..self })
    }
}
