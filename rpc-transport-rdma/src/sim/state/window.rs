//! Memory windows as a simulated device has them.

/// A window in the network's table.
#[derive(Debug)]
pub(crate) struct WindowState {
    pub(crate) context: u32,
    /// The last key; it opens something only while the window is bound.
    pub(crate) key: u32,
    pub(crate) bound: Option<Bound>,
}

/// What a window opens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) queue_pair: u32,
    pub(crate) region: u32,
    pub(crate) address: u64,
    pub(crate) len: u64,
}

impl WindowState {
    pub(crate) fn is_bound_to(&self, region: u32) -> bool {
        self.bound.is_some_and(|bound| bound.region == region)
    }
}
