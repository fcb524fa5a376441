//! The places in which the driver's processes run.

mod placement;

pub use placement::Placement;
