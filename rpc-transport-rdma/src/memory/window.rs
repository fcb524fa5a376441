//! Memory windows: parts of a region that one peer may read until its key is taken away.
//!
//! ```text
//! Window ──LargeBuffer::bind──> Binding: unbound ──bind completed──> bound
//!    ^                             │                                   │ the peer took the key
//!    │                             │                                   │ away, or our own
//!    └────────into_window──────────┴───────────── dead <───────────────┘ invalidation completed
//! ```
//! A [`Window`] and a [`Binding`] are handles that move; the raw windows stay with their queue
//! pair, so that they are gone before it, wherever the handles went. A binding keeps its region
//! registered. Each time a window is bound it has another key, its last with the low byte counted
//! up: using free windows in turn keeps a key unused for as long as possible.
//!
//! The key of a window that is not bound must never be taken away. It fails the queue pair, and on
//! Soft-RoCE (seen on Linux 6.1 and 6.12) it panics the kernel of the window's host, because the
//! driver follows the null pointer that the first invalidation left. So a key that the peer may
//! still take away is better revoked by deallocating its window than by an invalidation.
//!
//! Deliberately not here: who may read what for how long.

use std::fmt;
use std::sync::Arc;

use slab::Slab;

use crate::memory::Region;
use crate::sys::provider::{
    Device, QueueIdentity, RawBind, RawMemoryWindow, RemoteKey, RemoteMemory, VerbsError,
};

/// A memory window that opens nothing.
pub struct Window {
    owner: QueueIdentity,
    index: usize,
    /// The key that it had last.
    key: RemoteKey,
}

/// A window and the part of a region that it is for.
pub struct Binding {
    window: Window,
    /// The key while it is bound.
    key: RemoteKey,
    state: BindState,
    region: Arc<Region>,
    address: u64,
    len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BindState {
    Unbound,
    Bound,
    Dead,
}

impl Binding {
    /// Binds `window` to a part of a region, once this is posted.
    pub(crate) fn new(window: Window, region: &Arc<Region>, offset: usize, len: usize) -> Self {
        Self {
            key: window.key.next(),
            window,
            state: BindState::Unbound,
            address: region.address_of(offset, len),
            region: Arc::clone(region),
            len,
        }
    }

    /// The memory as the peer names it while the window is bound.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory { address: self.address, key: self.key }
    }

    /// Records that an invalidation of our own has succeeded.
    pub(crate) fn handle_revoked(&mut self) {
        self.state = BindState::Dead;
    }

    /// Records that an arrived message took this key away; false when it is not this window's key
    /// or that is not bound, and nothing has changed.
    #[must_use]
    pub fn handle_invalidated(&mut self, key: RemoteKey) -> bool {
        let is_ours = self.state == BindState::Bound && key == self.key;
        if is_ours {
            self.state = BindState::Dead;
        }
        is_ours
    }

    /// Gives the window back to be bound again, unless the peer can still read through it.
    ///
    /// # Errors
    ///
    /// The binding, when the window is bound.
    pub fn into_window(self) -> Result<Window, Self> {
        match self.state {
            BindState::Unbound => Ok(self.window),
            BindState::Bound => Err(self),
            BindState::Dead => Ok(Window { key: self.key, ..self.window }),
        }
    }
}

/// The windows of one queue pair.
pub(crate) struct MemoryWindows {
    device: Device,
    owner: QueueIdentity,
    raw: Slab<Box<dyn RawMemoryWindow>>,
}

impl MemoryWindows {
    pub(crate) fn new(device: &Device, owner: QueueIdentity) -> Self {
        Self { device: device.clone(), owner, raw: Slab::new() }
    }

    /// The device that everything posted to the queue pair must be of.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn allocate(&mut self) -> Result<Window, VerbsError> {
        let raw = self.device.raw().allocate_window()?;
        Ok(self.adopt(raw))
    }

    /// Takes a window of the same device, allocated after the queue pair.
    pub(crate) fn adopt(&mut self, raw: Box<dyn RawMemoryWindow>) -> Window {
        let key = raw.key();
        Window { owner: self.owner, index: self.raw.insert(raw), key }
    }

    /// Gives a binding's window up. It is deallocated before the binding is dropped, which keeps
    /// the region, and before the queue pair is destroyed.
    pub(crate) fn detach(&mut self, binding: &Binding) -> Option<Box<dyn RawMemoryWindow>> {
        let window = &binding.window;
        if window.owner == self.owner { self.raw.try_remove(window.index) } else { None }
    }

    pub(crate) fn deallocate(&mut self, binding: Binding) -> Result<(), VerbsError> {
        let deallocated = self.detach(&binding).map_or(Ok(()), RawMemoryWindow::deallocate);
        // Not before: a region that a window is bound to cannot be deregistered.
        drop(binding);
        deallocated
    }

    pub(crate) fn deallocate_all(&mut self) {
        self.raw.clear();
    }

    /// The request to bind, or what is wrong with it.
    pub(crate) fn bind(&self, binding: &Binding) -> Result<RawBind, &'static str> {
        let window = self.of(binding)?;
        if binding.state != BindState::Unbound {
            return Err("the window has been bound before");
        }
        if binding.len == 0 {
            return Err("a window on nothing");
        }
        if !binding.region.is_of(&self.device) {
            return Err("the region is of another device");
        }
        Ok(RawBind {
            window: window.handle(),
            key: binding.key,
            region: binding.region.handle(),
            region_key: binding.region.local_key(),
            address: binding.address,
            len: binding.len as u64,
        })
    }

    /// The key to be taken away, or why that cannot be.
    pub(crate) fn bound_key(&self, binding: &Binding) -> Result<RemoteKey, &'static str> {
        self.of(binding)?;
        match binding.state {
            BindState::Bound => Ok(binding.key),
            BindState::Unbound | BindState::Dead => Err("the window is not bound"),
        }
    }

    /// Records that the request to bind has succeeded.
    pub(crate) fn handle_bound(&mut self, binding: &mut Binding) {
        binding.state = BindState::Bound;
        if let Some(window) = self.raw.get_mut(binding.window.index) {
            window.set_key(binding.key);
        }
    }

    fn of(&self, binding: &Binding) -> Result<&dyn RawMemoryWindow, &'static str> {
        let raw = self.raw.get(binding.window.index);
        let raw = raw.filter(|_| binding.window.owner == self.owner);
        raw.map(|raw| &**raw).ok_or("the window is another queue pair's")
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window {}", self.index)
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, len, state) = (self.window.index, self.len, self.state);
        write!(f, "Binding of window {index} to {len} bytes ({state:?})")
    }
}
