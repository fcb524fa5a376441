//! What tests, fuzz targets and the scale simulation play connections with.
//!
//! It stands in this crate since the state machines that it drives are no part of the interface.

#[cfg(any(test, feature = "sim"))]
mod jain;
#[cfg(feature = "sim")]
pub mod scale;
#[cfg(any(test, feature = "fuzzing"))]
pub mod script;
#[cfg(test)]
pub(crate) mod scripted;

#[cfg(any(test, feature = "sim"))]
pub use jain::jain;
