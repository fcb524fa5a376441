//! What a device may do with a region.
//!
//! Apart from `region`, because the seam to devices names it, on which a region is built.

/// What a device may do with a region. Remote writing is deliberately not among the choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The peer may read it; the device never writes to it. For messages that are offered.
    Source,
    /// The peer may read what a window is bound to, and nothing else of it; the device never
    /// writes to it. For messages that are offered through windows.
    Windowed,
    /// Our own READs write to it; no peer can reach it. For messages that are fetched.
    Sink,
    /// Our own receives write to it, or it is only sent from; no peer can reach it.
    Eager,
}
