//! The processes that the driver starts: where they run, how it talks with them, and that none
//! outlives it or keeps it waiting.

mod placement;
mod process;

pub use placement::Placement;
pub use process::{Process, output};
