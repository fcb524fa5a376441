//! Tools with which tests, fuzz targets and the scale simulation drive connections.
//!
//! They are in this crate because the state machines that they drive are not public.

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
