//! The ledger of resources: how much heap a trial holds.
//!
//! The allocator counts for the whole process, so that trials run one at a time, on a runtime of
//! one thread. What a trial's script, its peer and its ledger hold is not the session's: it is
//! allocated [apart](Heap::apart), or stated as a constant where the session's tasks own it.

use std::alloc::System;
use std::collections::BTreeMap;

use parking_lot::Mutex;
use rpc_core::{Compression, Limits};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The most that each bound has been used so far.
static PEAKS: Mutex<BTreeMap<(&str, u64), u64>> = Mutex::new(BTreeMap::new());

/// Memory of a script's step while its frames arrive, in bytes: the input that it was drawn from,
/// and a list of sent frames.
const STEP_HELD: u64 = 4 << 10;

/// Memory of a caller's task, in bytes: the future of its call, and a buffer of tonic's
/// `Streaming`.
const CALLER_HELD: u64 = 4 << 10;

/// Memory of an HTTP connection, in bytes: hyper's buffers of both directions, and the tables of
/// HPACK.
const HTTP_HELD: u64 = 128 << 10;

/// Memory that a thread keeps for the next compressed message, in bytes: an inflater and a
/// compressor. They belong to no connection.
const CODECS_HELD: u64 = 384 << 10;

/// The bytes that are allocated.
fn allocated() -> u64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.wrapping_sub(stats.bytes_deallocated) as u64
}

/// Memory allocated since a moment, less what was freed.
#[derive(Debug)]
pub(crate) struct Heap {
    what: &'static str,
    start: u64,
    /// Bytes allocated apart. Negative if older memory was freed there.
    apart: i64,
    limits: Limits,
    /// Set if messages may be compressed. Then a call holds both its compressed and its inflated
    /// message.
    is_compressed: bool,
    peak: u64,
}

impl Heap {
    /// A ledger of what a session with `limits` holds, from now on.
    pub(crate) fn new(what: &'static str, limits: &Limits) -> Self {
        let (start, limits) = (allocated(), *limits);
        Self { what, start, apart: 0, limits, is_compressed: false, peak: 0 }
    }

    /// Allows what compressed messages take, if the session accepts them.
    pub(crate) fn allow_compressed(&mut self, compression: Compression) {
        self.is_compressed = compression.accept;
    }

    /// Does something of which the memory is not the session's.
    pub(crate) fn apart<T>(&mut self, act: impl FnOnce() -> T) -> T {
        let before = allocated();
        let done = act();
        self.apart += allocated().cast_signed() - before.cast_signed();
        done
    }

    /// The bytes that the session holds.
    pub(crate) fn held(&self) -> u64 {
        let held = allocated().cast_signed() - self.start.cast_signed() - self.apart;
        held.max(0).cast_unsigned()
    }

    /// Checks that the session holds what its limits state at most for as many calls, beside what
    /// the callers of some have.
    pub(crate) fn check(&mut self, call_count: usize, caller_count: usize) {
        let inflated = match self.is_compressed {
            true => CODECS_HELD + call_count as u64 * (self.limits.max_message_len + 1),
            false => 0,
        };
        let others = STEP_HELD + caller_count as u64 * CALLER_HELD + inflated;
        let (held, bound) = (self.held(), self.bound(call_count) + others);
        self.peak = self.peak.max(held.saturating_sub(others));
        let what = self.what;
        assert!(held <= bound, "{what} holds {held} bytes for {call_count} calls, not {bound}");
    }

    /// Checks that what HTTP has for a connection is held at most beside what the limits state.
    pub(crate) fn check_http(&mut self) {
        let (held, bound) = (self.held(), self.limits.max_connection_bytes() + HTTP_HELD);
        self.peak = self.peak.max(held.saturating_sub(HTTP_HELD));
        assert!(held <= bound, "{} holds {held} bytes, not {bound}", self.what);
    }

    /// Checks that what is held is counted in a server's budget, but for what HTTP has for a
    /// connection.
    pub(crate) fn check_counted(&self, counted: u64) {
        let (held, bound) = (self.held(), counted + HTTP_HELD);
        assert!(held <= bound, "{} holds {held} bytes, and counts {counted}", self.what);
    }

    fn bound(&self, call_count: usize) -> u64 {
        let max_calls = u32::try_from(call_count).unwrap_or(u32::MAX);
        self.limits.with_max_calls(max_calls).max_connection_bytes()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let mut peaks = PEAKS.lock();
        let peak = peaks.entry((self.what, self.limits.max_connection_bytes())).or_default();
        *peak = self.peak.max(*peak);
    }
}

/// Returns the peaks of `what` so far, each with its bound.
pub(crate) fn peaks(what: &str) -> Vec<(u64, u64)> {
    let peaks = PEAKS.lock();
    let matching = peaks.iter().filter(|((name, _), _)| *name == what);
    matching.map(|((_, bound), peak)| (*peak, *bound)).collect()
}

/// Runs a trial, and checks that nothing of it is left.
pub(crate) fn check_returned(trial: impl Fn()) {
    let left = || {
        let before = allocated();
        trial();
        allocated().cast_signed() - before.cast_signed()
    };
    // What a process allocates once is left of the first trial that needs it, and of no other.
    if left() != 0 {
        assert_eq!(left(), 0, "bytes are left of a trial, each time that it runs");
    }
}
