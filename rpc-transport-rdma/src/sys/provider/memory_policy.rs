//! The memory policy of a thread: the node that its new pages come from.
//!
//! A device reaches the memory of its own node in half the time, and without the link between the
//! nodes. A thread's pages come from the node of its processor unless a policy says otherwise. A
//! policy that the user has chosen (`numactl`) stays; where the system refuses one, as the filters
//! of containers do, pages come from where they came before.

use std::marker::PhantomData;
use std::ptr::{null, null_mut};

use nix::libc::{self, c_int, c_long, c_ulong};

/// `MPOL_DEFAULT` and `MPOL_PREFERRED` of `linux/mempolicy.h`.
const DEFAULT: c_int = 0;
const PREFERRED: c_int = 1;

/// Nodes of the longest mask, more than the 1,024 that Linux can be built for.
const NODES: usize = 2048;
const WORD_BITS: usize = c_ulong::BITS as usize;

/// This thread's pages come from one node, if that has some, until the value is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct PreferredNode {
    /// A policy is its thread's.
    _thread: PhantomData<*mut ()>,
}

impl PreferredNode {
    /// Prefers `node`. None where the thread has a policy already, or the system refuses.
    pub(crate) fn new(node: u32) -> Option<Self> {
        let node = usize::try_from(node).ok().filter(|node| *node < NODES)?;
        let mut mask = [0; NODES / WORD_BITS];
        mask[node / WORD_BITS] = 1 << (node % WORD_BITS);
        let is_set = mode()? == DEFAULT && set_mode(PREFERRED, &mask);
        // Made only then: dropping it ends the policy.
        is_set.then(|| Self { _thread: PhantomData })
    }
}

impl Drop for PreferredNode {
    fn drop(&mut self) {
        // It was the policy before, and no mask is refused for it.
        set_mode(DEFAULT, &[]);
    }
}

/// The mode of this thread's policy, or none where the system does not say.
fn mode() -> Option<c_int> {
    let mut mode: c_int = 0;
    let (no_mask, zero): (*mut c_ulong, c_ulong) = (null_mut(), 0);
    // SAFETY: the mode is written to a local variable, and nothing else is asked for.
    let result: c_long = unsafe {
        let address: *mut libc::c_void = null_mut();
        libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, no_mask, zero, address, zero)
    };
    (result == 0).then_some(mode)
}

/// Sets this thread's policy. Returns false where the system refuses.
fn set_mode(mode: c_int, mask: &[c_ulong]) -> bool {
    let bits = mask.len() * WORD_BITS;
    // An address with a length of 0 is refused.
    let mask = if mask.is_empty() { null() } else { mask.as_ptr() };
    // SAFETY: the kernel reads `bits` bits of the mask, and a policy changes no memory that
    // exists.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) };
    result == 0
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_preferred_for_as_long_as_the_value_lives() {
        let Some(preferred) = PreferredNode::new(0) else {
            // Containers may forbid it.
            assert!(mode().is_none() || !set_mode(PREFERRED, &[1]));
            return;
        };
        assert_eq!(mode(), Some(PREFERRED));
        assert!(PreferredNode::new(0).is_none(), "a policy that is set stays");
        assert_eq!(mode(), Some(PREFERRED));
        let other = std::thread::spawn(mode).join().unwrap();
        assert!(other.is_some());
        drop(preferred);
        assert_eq!(mode(), Some(DEFAULT));
    }

    #[test]
    fn a_node_that_cannot_be_is_no_policy() {
        for node in [2047, 2048, u32::MAX] {
            assert!(PreferredNode::new(node).is_none(), "{node}");
        }
        assert_ne!(mode(), Some(PREFERRED));
    }
}
