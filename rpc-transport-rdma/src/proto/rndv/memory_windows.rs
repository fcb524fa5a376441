//! The memory windows of one connection: which are free, which the peer reads through, and what
//! their keys guard until they are dead.
//!
//! ```text
//!  free ──take──> being bound ──bind completed──> bound ──released, key taken away──────> free
//!   ^                  │ released already           │
//!   │                  └─────────────────┐          ├──released, key alive──┐
//!   │                                    v          v                       v
//!   └──────invalidation completed────────────────────────────────────── to be killed
//! ```
//! Memory is given back when the key that opens it is dead and not before: `P` stays here as long
//! as a window may still open it, and is handed out then for the caller to drop. A window that
//! comes back is used again last, so that a key stays unused for as long as can be. Nothing is
//! posted here.

use std::collections::{HashMap, VecDeque};

use std::fmt::Debug;

use rpc_core::Reason;

use crate::proto::remote_memory::{RemoteKey, RemoteMemory};

/// A memory window and the part of memory that it opens, once that is posted.
pub(crate) trait Bind: Sized {
    /// A window that opens nothing.
    type Window: Debug;

    /// The memory as the peer names it while the window is bound.
    fn remote(&self) -> RemoteMemory;

    /// Records that an arrived message took this key away; false when it is not this window's key
    /// or that is not bound.
    fn handle_invalidated(&mut self, key: RemoteKey) -> bool;

    /// Gives the window back, or itself when the peer can still read through it.
    fn into_window(self) -> Result<Self::Window, Self>;
}

/// Windows that are allocated at a time at most.
const BATCH_MAX: usize = 16;

/// The windows of one connection; `P` is memory that they open.
#[derive(Debug)]
pub(crate) struct MemoryWindowPool<B: Bind, P> {
    max: usize,
    allocated: usize,
    /// Windows that are being allocated.
    awaited: usize,
    free: VecDeque<B::Window>,
    bound: HashMap<RemoteKey, B>,
    /// Memory that was released before the device reported the bind, and true if the key is dead.
    early: HashMap<RemoteKey, (P, bool)>,
    to_kill: VecDeque<(B, P)>,
    /// Memory whose keys posted invalidations and deallocations are about to kill. It is found by
    /// key, not in order: the device does not report a failed invalidation here, and a later one
    /// may have completed first.
    dying: HashMap<RemoteKey, P>,
}

impl<B: Bind + Debug, P> MemoryWindowPool<B, P> {
    /// At most `max` windows; none at all means that offers go without.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            allocated: 0,
            awaited: 0,
            free: VecDeque::new(),
            bound: HashMap::new(),
            early: HashMap::new(),
            to_kill: VecDeque::new(),
            dying: HashMap::new(),
        }
    }

    /// Returns true if offers use windows.
    pub(crate) fn is_used(&self) -> bool {
        self.max > 0
    }

    /// Returns the number of released frames that wait for the invalidation of their keys.
    pub(crate) fn exposed_count(&self) -> usize {
        self.early.len() + self.to_kill.len() + self.dying.len()
    }

    /// Returns the number of windows to allocate, unless some are being allocated: as many again as
    /// there are, and at most a batch. The owner reports each by
    /// [`handle_allocated`](Self::handle_allocated).
    pub(crate) fn ask(&mut self) -> Option<usize> {
        let missing = self.max.saturating_sub(self.allocated);
        if self.awaited > 0 || missing == 0 {
            return None;
        }
        self.awaited = self.allocated.clamp(1, BATCH_MAX).min(missing);
        Some(self.awaited)
    }

    /// Takes one more window, or why there is none.
    ///
    /// # Errors
    ///
    /// Returns the reason if there is no window at all, so that none will come back.
    pub(crate) fn handle_allocated(
        &mut self,
        window: Result<B::Window, Reason>,
    ) -> Result<(), Reason> {
        self.awaited = self.awaited.saturating_sub(1);
        match window {
            Ok(window) => {
                self.free.push_back(window);
                self.allocated += 1;
            }
            Err(error) if self.allocated == 0 => return Err(error),
            Err(error) => {
                tracing::debug!(
                    target: "farcall::rdma",
                    %error, count = self.allocated, "no further memory window"
                );
                // Those that there are come back.
                self.max = self.allocated;
            }
        }
        Ok(())
    }

    /// Takes the window that has been free for longest.
    pub(crate) fn take(&mut self) -> Option<B::Window> {
        self.free.pop_front()
    }

    /// Gives back what was taken last and not used.
    pub(crate) fn give_back(&mut self, window: Option<B::Window>) {
        if let Some(window) = window {
            self.free.push_front(window);
        }
    }

    /// Returns true if a window that the peer can read through has this key.
    pub(crate) fn is_live(&self, key: RemoteKey) -> bool {
        self.bound.contains_key(&key)
    }

    /// Records that a window is bound; gives memory that is free by that.
    pub(crate) fn handle_bound(&mut self, binding: B) -> Option<P> {
        let key = binding.remote().key;
        match self.early.remove(&key) {
            None => {
                self.bound.insert(key, binding);
                None
            }
            Some((buffer, is_taken)) => self.settle(binding, buffer, is_taken),
        }
    }

    /// Records that the peer has released memory that the window with this key opens, and gives it
    /// back if that is free. `is_taken` says that the peer took the key away; if not, the key has
    /// to be killed first.
    pub(crate) fn release(&mut self, buffer: P, key: RemoteKey, is_taken: bool) -> Option<P> {
        match self.bound.remove(&key) {
            // A message can be there before the completion of the offer that it answers.
            None => {
                // Kept, not freed: until the bind completes the device may still be about to open
                // the window.
                self.early.insert(key, (buffer, is_taken));
                None
            }
            Some(binding) => self.settle(binding, buffer, is_taken),
        }
    }

    fn settle(&mut self, mut binding: B, buffer: P, is_taken: bool) -> Option<P> {
        let key = binding.remote().key;
        // Freed at once only if the device reported the invalidation of this very key.
        if is_taken && binding.handle_invalidated(key) {
            self.free(binding);
            return Some(buffer);
        }
        self.to_kill.push_back((binding, buffer));
        None
    }

    /// The next binding that has to be invalidated.
    pub(crate) fn next_to_kill(&mut self) -> Option<B> {
        let (binding, buffer) = self.to_kill.pop_front()?;
        // The memory stays here until the device reports the invalidation. A READ may be on its
        // way.
        self.dying.insert(binding.remote().key, buffer);
        Some(binding)
    }

    /// Records that an invalidation has completed; gives what it guarded, which is free.
    pub(crate) fn handle_dead(&mut self, binding: B) -> Option<P> {
        let key = binding.remote().key;
        self.free(binding);
        self.dying.remove(&key)
    }

    /// Gives a window up, whose key is to be revoked at once by deallocating it; `None` when the
    /// device has not told of the bind yet. Not by an invalidation: the peer's own may be on its
    /// way, and the second of two is fatal.
    pub(crate) fn revoke(&mut self, key: RemoteKey) -> Option<B> {
        let binding = self.bound.remove(&key)?;
        // The caller deallocates the window, so there is room for another.
        self.allocated -= 1;
        Some(binding)
    }

    /// Keeps memory until the window that opened it by this key, which was given up, is gone.
    pub(crate) fn guard(&mut self, key: RemoteKey, buffer: P) {
        self.dying.insert(key, buffer);
    }

    /// Records that a window that was given up is gone; gives what it guarded, which is free.
    pub(crate) fn handle_revoked(&mut self, key: RemoteKey) -> Option<P> {
        self.dying.remove(&key)
    }

    fn free(&mut self, binding: B) {
        match binding.into_window() {
            Ok(window) => self.free.push_back(window),
            // It stays with its queue pair, unused.
            Err(binding) => tracing::error!(
                target: "farcall::rdma", ?binding, "a window came back bound"
            ),
        }
    }
}
