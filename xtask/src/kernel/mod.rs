//! The kernels of the virtual machine: Debian's packages, unpacked into a cache folder and never
//! installed.
//!
//! The host's own kernel is of no use: cloud kernels have no InfiniBand, and reading it may need
//! privilege.

mod archive;
mod debian_source;
mod release;
mod unpacked;

pub use release::Series;
pub(crate) use unpacked::{Kernel, cache_folder};
