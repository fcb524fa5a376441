//! Where the processes run that the driver starts.

mod placement;

pub use placement::Placement;
