//! Reading the file again while the program runs.
//!
//! [`changes`], which is pure, says what has changed and when it takes effect. [`registry`] knows
//! the channels and servers that are in use, and gives them what has changed. [`stamps`] tells a
//! file that was changed, and [`reloader`] does what is due. A reload is checked whole, with the
//! files of TLS, before anything of it is applied.

mod changes;
mod registry;
mod reloader;
mod stamps;

pub use changes::{Reload, SettingChange, TakesEffect};
pub(super) use registry::{Shared, read};
pub use reloader::Reloader;

#[cfg(test)]
mod tests;
