//! The key of a memory region for this process, as a newtype.
//!
//! An lkey and an rkey ([`RemoteKey`](super::RemoteKey)) are both `u32` in verbs, and a mix-up
//! would compile.

/// The lkey of a memory region: lets this process's own work requests use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalKey(pub u32);
