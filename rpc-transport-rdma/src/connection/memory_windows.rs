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
//! Memory is given back when the key that opens it is dead and not before: `B` stays here as long
//! as a window may still open it, and is handed out then for the caller to drop. A window that
//! comes back is used again last, so that a key stays unused for as long as can be. Nothing is
//! posted here.

use std::collections::{HashMap, VecDeque};

use crate::verbs::{Binding, QueuePair, RemoteKey, VerbsError, Window};

/// The memory of an offered frame.
#[derive(Debug)]
pub(crate) struct Exposed<B> {
    pub(crate) buffer: B,
    /// The key of its window; none when it is open as long as it is registered.
    pub(crate) key: Option<RemoteKey>,
}

/// The windows of one connection; `B` is memory that they open.
#[derive(Debug)]
pub(crate) struct MemoryWindowPool<B> {
    max: usize,
    allocated: usize,
    free: VecDeque<Window>,
    bound: HashMap<RemoteKey, Binding>,
    /// What was released before the device told of the bind, and whether the key is dead.
    early: HashMap<RemoteKey, (B, bool)>,
    to_kill: VecDeque<(Binding, B)>,
    /// What the invalidations guard that are posted, in their order.
    dying: VecDeque<B>,
    /// Why there is no window at all, which means that none will come back.
    failure: Option<VerbsError>,
}

impl<B> MemoryWindowPool<B> {
    /// At most `max` windows; none at all means that offers go without.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            allocated: 0,
            free: VecDeque::new(),
            bound: HashMap::new(),
            early: HashMap::new(),
            to_kill: VecDeque::new(),
            dying: VecDeque::new(),
            failure: None,
        }
    }

    /// Whether offers go out through windows.
    pub(crate) fn is_used(&self) -> bool {
        self.max > 0
    }

    /// Whether nothing waits to be killed.
    pub(crate) fn is_idle(&self) -> bool {
        self.early.is_empty() && self.to_kill.is_empty() && self.dying.is_empty()
    }

    /// How many released frames still wait for the death of the keys that open them.
    pub(crate) fn exposed_count(&self) -> usize {
        self.early.len() + self.to_kill.len() + self.dying.len()
    }

    /// Allocates one more window.
    pub(crate) fn allocate(&mut self, queue_pair: &mut QueuePair) -> Result<(), VerbsError> {
        self.free.push_back(queue_pair.allocate_window()?);
        self.allocated += 1;
        Ok(())
    }

    /// Sees to it that a window is free, if there may be more; false when the next has to be
    /// waited for.
    pub(crate) fn prepare(&mut self, queue_pair: &mut QueuePair) -> bool {
        if self.free.is_empty()
            && self.allocated < self.max
            && let Err(error) = self.allocate(queue_pair)
        {
            tracing::debug!(
                target: "farcall::rdma", %error, count = self.allocated, "no further memory window"
            );
            if self.allocated == 0 {
                self.failure = Some(error);
            } else {
                // Those that there are come back.
                self.max = self.allocated;
            }
        }
        !self.free.is_empty()
    }

    /// Why offers cannot go out any more.
    pub(crate) fn failure(&self) -> Option<&VerbsError> {
        self.failure.as_ref()
    }

    /// Takes the window that has been free for longest.
    pub(crate) fn take(&mut self) -> Option<Window> {
        self.free.pop_front()
    }

    /// Whether a window that the peer can read through has this key.
    pub(crate) fn is_live(&self, key: RemoteKey) -> bool {
        self.bound.contains_key(&key)
    }

    /// Records that a window is bound; gives memory that is free by that.
    pub(crate) fn handle_bound(&mut self, binding: Binding) -> Option<B> {
        let key = binding.remote().key;
        match self.early.remove(&key) {
            None => {
                self.bound.insert(key, binding);
                None
            }
            Some((buffer, is_taken)) => self.settle(binding, buffer, is_taken),
        }
    }

    /// Records that the peer has released memory, and gives it back if that is free. `is_taken`
    /// says that the peer took the key away; if not, the key has to be killed first.
    pub(crate) fn release(&mut self, exposed: Exposed<B>, is_taken: bool) -> Option<B> {
        let Exposed { buffer, key } = exposed;
        let Some(key) = key else { return Some(buffer) };
        match self.bound.remove(&key) {
            // A message can be there before the completion of the offer that it answers.
            None => {
                self.early.insert(key, (buffer, is_taken));
                None
            }
            Some(binding) => self.settle(binding, buffer, is_taken),
        }
    }

    fn settle(&mut self, mut binding: Binding, buffer: B, is_taken: bool) -> Option<B> {
        let key = binding.remote().key;
        if is_taken && binding.handle_invalidated(key) {
            self.free(binding);
            return Some(buffer);
        }
        self.to_kill.push_back((binding, buffer));
        None
    }

    /// The next binding that has to be invalidated.
    pub(crate) fn next_to_kill(&mut self) -> Option<Binding> {
        let (binding, buffer) = self.to_kill.pop_front()?;
        self.dying.push_back(buffer);
        Some(binding)
    }

    /// Records that an invalidation has completed; gives what it guarded, which is free.
    pub(crate) fn handle_dead(&mut self, binding: Binding) -> Option<B> {
        self.free(binding);
        self.dying.pop_front()
    }

    /// Revokes a key at once, by giving up its window; false when the device has not told of the
    /// bind yet. Not by an invalidation: the peer's own may be on its way, and the second of two
    /// is fatal.
    pub(crate) fn revoke(&mut self, queue_pair: &mut QueuePair, key: RemoteKey) -> bool {
        let binding = self.bound.remove(&key);
        let is_bound = binding.is_some();
        if let Some(binding) = binding {
            queue_pair.deallocate_window(binding);
            self.allocated -= 1;
        }
        is_bound
    }

    fn free(&mut self, binding: Binding) {
        match binding.into_window() {
            Ok(window) => self.free.push_back(window),
            // It stays with its queue pair, unused.
            Err(binding) => tracing::error!(
                target: "farcall::rdma", ?binding, "a window came back bound"
            ),
        }
    }
}
