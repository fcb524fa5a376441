//! The devices in use: each is opened once, and one task a device waits for what happens to it.
//!
//! A device is in use as long as it has a worker. Only then is it kept open, because an open device
//! cannot be removed, and only then does a task receive its events, so that what is known of its
//! ports can be kept until an event says otherwise.
//!
//! Deliberately not here: the choice between ports, which is `device`'s, and what a worker does.

mod cache;
mod devices;
mod inquiry;
mod response;
mod searching;
mod watch;

pub(crate) use cache::OnLost;
pub(crate) use devices::Devices;
